"""What a paper built on, in the words of a prompt: the works that it cites, and what was known of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sciscirl.task.papers import PaperView, Reference

#: What is said of each number, in order. Sums are not said, since they follow from number and mean.
_PHRASES: Final[tuple[dict[str, str], ...]] = (
    {
        "n_references": "{} reference{s}",
        "n_references_dated": "{} with a year",
        "reference_age_mean": "{} year{s} old on average",
        "reference_age_median": "median {}",
        "reference_age_min": "at least {}",
        "reference_age_max": "at most {}",
    },
    {
        "reference_citations_mean": "cited by {} earlier work{s} on average",
        "reference_citations_median": "median {}",
        "reference_citations_max": "at most {}",
        "reference_recent_citations_mean": "{} of the last five years",
        "share_references_uncited": "{} % of references by nobody",
    },
    {"n_references_with_cd": "{} with a CD index", "reference_cd_mean": "mean {}"},
    {
        "n_coupled": "some in common with {} earlier work{s}",
        "n_coupled_twice": "two or more with {}",
        "coupling_max": "at most {}",
        "coupling_mean": "{} on average",
    },
)


def describe_context(view: PaperView) -> dict[str, Any]:
    """Say in JSON types what a paper built on, as far as it is to be shown: its references, and numbers in words."""
    context: dict[str, Any] = {}
    # An empty list says that a paper cites nothing. It is left out beside a number that says otherwise.
    if view.references or (view.references is not None and not (view.at_publication or {}).get("n_references")):
        context["references"] = [name_reference(one) for one in view.references]
    if view.at_publication is not None:
        context["at_publication"] = put_in_words(view.at_publication)
    return context


def name_reference(reference: Reference) -> str:
    r"""Name a reference in one line.

    Example:
        >>> name_reference(Reference("On\nsleep", 1998, "Sleep")), name_reference(Reference("On dreams"))
        ('On sleep (1998), Sleep', 'On dreams')
    """
    year = f" ({reference.publication_year})" if reference.publication_year is not None else ""
    venue = f", {reference.source_name}" if reference.source_name else ""
    return " ".join(f"{reference.title}{year}{venue}".split())


def put_in_words(numbers: Mapping[str, float | None]) -> str | None:
    """Say columns of PUBLICATION_FEATURES in one sentence; what is null is left out. None: all of it is.

    Shares are in percent, an index has three decimals, and other numbers have one at most.

    Example:
        >>> put_in_words({"n_references": 33, "reference_age_mean": 8.54, "coupling_max": None, "n_coupled": 1})
        '33 references, 8.5 years old on average; some in common with 1 earlier work.'
    """
    clauses: list[str] = []
    for phrases in _PHRASES:
        known = [(name, value) for name in phrases if (value := numbers.get(name)) is not None]
        said = [(phrases[name], _write_number(name, value)) for name, value in known]
        if said:
            clauses.append(", ".join(words.format(number, s="s" * (number != "1")) for words, number in said))
    return f"{'; '.join(clauses)}." if clauses else None


def _write_number(name: str, value: float) -> str:
    if name == "reference_cd_mean":
        return f"{value:z.3f}"
    if name == "share_references_uncited":
        return f"{100 * value:.0f}"
    return f"{value:,.1f}".removesuffix(".0")

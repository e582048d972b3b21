"""What to write in a methods section: text about a release, made from its manifest alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

from sciscidata.eligibility import list_removed
from sciscidata.errors import ConfigError
from sciscidata.own_label import stated_label
from sciscidata.release.context import MOST_REFERENCES, has_context
from sciscidata.release.documents import find_changed_options, list_references, name_source, remark_on_release
from sciscidata.release.manifest import describe_given_split, describe_judged, lacks_scores
from sciscidata.release.read import Release, list_splits, read_release, read_settings
from sciscidata.release.remarks import list_one_sided
from sciscidata.sampling.manifest_entries import describe_unread
from sciscidata.schemas import AS_PUBLISHED, has_own_scores
from sciscidata.terminal.messages import counted, printable
from sciscidata.terminal.shares import percent

_WIDTH: Final = 90
_HOLST: Final = (
    "Holst, Algaba, Tori, Wenmackers, Ginis (2024). Dataset Artefacts are the Hidden Drivers of the Declining "
    "Disruptiveness in Science. arXiv:2402.14583"
)


def describe_methods(release: Release | str | Path) -> str:
    """Write the methods section of a release: source, index, labels, who was left out, the draw, and what to cite.

    Args:
        release: a release, or its folder.

    Returns:
        Paragraphs of plain text that can be pasted: Markdown, 90 signs a line. It follows from the manifest alone.

    Raises:
        ConfigError: it is something else, such as a frame.
        InputNotFoundError, VerificationError: the folder holds no release, or one that was changed.

    Example:
        >>> import logging
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata import BuildConfig, ExampleConfig, build
        >>> logging.getLogger("sciscidata").setLevel(logging.ERROR)
        >>> with TemporaryDirectory() as home:
        ...     config = BuildConfig(source=ExampleConfig(), out=f"{home}/out", cache_dir=f"{home}/cache", novelty=None)
        ...     print(describe_methods(build(config)).splitlines()[0])
        **Data.** We read 4,381 works from the example (SYNERGY), as of 2023-04-01. They were
    """
    if not isinstance(cast("object", release), Release | str | PathLike):
        raise ConfigError(
            f"describe_methods: release is of type {type(release).__name__}, needs a release, which build or "
            "read_release returns, or the path of its folder."
        )
    manifest = (release if isinstance(release, Release) else read_release(release)).manifest
    paragraphs = [
        ("Data", _describe_data(manifest)),
        ("Disruption", _describe_index(manifest)),
        ("Labels", _describe_labels(manifest)),
        ("Novelty", _describe_novelty(manifest)),
        ("Works left out", _describe_left_out(manifest)),
        ("Sample", _describe_sample(manifest)),
        ("How sure the labels are", _describe_confidence(manifest)),
        ("Software", _describe_software(manifest)),
    ]
    written = [
        textwrap.fill(f"**{name}.** {' '.join(said)}", _WIDTH, break_on_hyphens=False)
        for name, text in paragraphs
        if (said := [*text])
    ]
    cited = list_references(manifest)
    if (manifest.get("cd") or {}).get("zero_references") == "null" and not has_own_scores(manifest.get("source", {})):
        cited.append(_HOLST)
    written.append("\n".join(["**References.**", "", *(f"- {work}" for work in cited)]) if cited else "")
    return printable("\n\n".join(filter(None, written)) + "\n", lines=True)


def _describe_data(manifest: Mapping[str, Any]) -> Iterator[str]:
    source, counts = manifest.get("source", {}), manifest.get("counts", {})
    date = source.get("data_date")
    n = counts.get("filters", {}).get("works")
    works = counted(n, "work") if n is not None else "works"
    yield f"We read {works} from {name_source(source)}{f', as of {date}' if date else ''}."
    if not date and source.get("kind") != "synthetic":
        is_named = source.get("kind") in ("sciscinet", "openalex", "snapshot", "records")
        yield f"[Name {'' if is_named else 'the source and '}the day of its data here.]"
    first, last = counts.get("first_year"), counts.get("last_year")
    if first is not None and last is not None:
        yield f"They were published from {first} on; the last year of the data is {last}."
    cited = next((check for check in manifest.get("diagnostics", []) if check["name"] == "cited_ids"), None)
    if cited is not None and cited["of"]:
        known = cited["of"] - cited["n"]
        share = f"{known:,} ({percent(known / cited['of'], 1)})"
        yield f"They cite {cited['of']:,} different works, of which {share} are among those read."


def _describe_index(manifest: Mapping[str, Any]) -> Iterator[str]:
    source, cd = manifest.get("source", {}), manifest.get("cd") or {}
    if lacks_scores(manifest):
        return
    if has_own_scores(source) or not cd:
        scores = source.get("scores", AS_PUBLISHED)
        yield f"The CD index (Funk & Owen-Smith 2017) is that of {name_source(source)}, {scores}."
        return
    first, years = 0 if cd.get("same_year") else 1, cd.get("window_years")
    window = f"{first} or more years" if years is None else f"{first} to {years} years"
    yield (
        "For each focal work we computed the CD index (Funk & Owen-Smith 2017) over the works published "
        f"{window} later: (n_i - n_j) / (n_i + n_j + n_k). Here n_i of them cite the focal work but none of its "
        "references, n_j cite both, and n_k cite only its references."
    )
    changed, named = find_changed_options(cd)
    if named:
        yield f"The convention is that of {' and of '.join(named)}."
    else:
        if not cd.get("same_year"):
            yield "Citers of the focal work's own year do not count."
        if changed:
            stated = ", ".join(f"{name} = {value}" for name, value in changed.items())
            yield f"Options that differ from those of Funk & Owen-Smith here: {stated}."
    if cd.get("zero_references") == "null":
        yield (
            "Works without a reference on record have no index (Holst et al. 2024). Nor have works where nothing in "
            "the window cites them or their references."
        )
    yield "A work that cites itself was not counted as its own citer; citers that share an author were."


def _describe_labels(manifest: Mapping[str, Any]) -> Iterator[str]:
    label = stated_label(manifest)
    if label is not None:
        yield f"Each text has one of the labels {', '.join(label.classes)}, named {label.name}."
    if lacks_scores(manifest):
        return
    thresholds, _ = read_settings(manifest)
    if thresholds.cells:
        yield (
            "Works are disruptive or consolidating by their rank within field and five years. Works between the "
            "cut-offs of their cell, which are in the manifest, have no label."
        )
    else:
        above, below = ("at least", "at most") if thresholds.inclusive else ("above", "below")
        yield (
            f"A work is disruptive if its unrounded index is {above} {thresholds.disruptive_min}, consolidating if it "
            f"is {below} {thresholds.consolidating_max}, and neutral otherwise."
        )
    classes = manifest.get("counts", {}).get("scored", {}).get("disruption_label", {})
    if n := sum(classes.values()):
        yield f"{counted(n, 'work has', 'works have')} a label: {_list_classes(classes)}."
    if judged := describe_judged(manifest, of_these=n > 0):
        yield judged
        if by_label := manifest["counts"].get("judged"):
            yield f"Among all judged works, {_list_classes(by_label['scored']['disruption_label'])}."
    elif n:
        yield (
            "Which of them are judged is not known, since the source does not say how many works cite them in the "
            "window: uncited ones may be among the neutral ones."
        )


def _list_classes(classes: Mapping[str, int]) -> str:
    *first, last = (f"{n:,} are {name}" for name, n in classes.items())
    return f"{', '.join(first)} and {last}"


def _describe_novelty(manifest: Mapping[str, Any]) -> Iterator[str]:
    novelty = manifest.get("atypicality") or {}
    if not manifest["novelty"]["available"] or lacks_scores(manifest):
        return
    thresholds, _ = read_settings(manifest)
    config = novelty.get("config")
    yield "Novelty follows Uzzi et al. (2013): z-scores of the pairs of venues that a work cites together."
    if config and config["null"] == "analytic":
        yield (
            "The null model permutes venues among references of one age; its means and deviations are in closed form."
        )
    elif config:
        times = f"{config['n_shuffles']} times (seed {config['seed']})"
        yield f"The null model permutes venues among references of one age, {times}."
    else:
        yield "The z-scores are as published."
    if background := novelty.get("background"):
        yield f"It was made of a background of works of {background['first_year']} to {background['last_year']}."
    if novelty.get("scored_works"):
        yield f"{counted(novelty['scored_works'], 'work')} of {novelty['works']:,} have a score."
    if thresholds.novelty_rule == "uzzi":
        yield (
            f"A work has tail novelty if the 10th percentile of its z is below {thresholds.uzzi_tail_max}, and is "
            f"conventional if their median is above quantile {thresholds.uzzi_median_share} of all scored works."
        )
    else:
        yield (
            "A work is novel if the sigmoid of minus the 10th percentile of its z exceeds that of their median by more "
            f"than {thresholds.novelty_margin}, conventional if it is as far below, and balanced otherwise."
        )


def _describe_left_out(manifest: Mapping[str, Any]) -> Iterator[str]:
    counts = manifest.get("counts", {})
    if "filters" not in counts:
        return
    removed = list_removed(manifest)
    if removed:
        listed = "; ".join(f"{note} ({n:,})" for _, note, n in removed)
        yield f"Left out were, in this order: {listed}."
    if removed and (judged := counts.get("judged")):
        n = sum(
            sum(judged[name]["disruption_label"].values()) * sign for name, sign in (("scored", 1), ("eligible", -1))
        )
        yield f"{counted(n, 'of these is judged and has', 'of these are judged and have')} an index."
    yield f"{counted(counts['filters']['eligible'], 'work is', 'works are')} left."
    if unread := describe_unread(counts):
        yield unread


def _describe_sample(manifest: Mapping[str, Any]) -> Iterator[str]:
    if given := describe_given_split(manifest):
        yield given
        return
    _, split = read_settings(manifest)
    sizes = ", ".join(f"{manifest['sides'][name]['rows']:,} for {name}" for name in list_splits(manifest))
    label = stated_label(manifest)
    names = {"disruption": "disruption label", "pool": "disruption label", "novelty": "novelty label"}
    names |= {"joint": "pair of both labels", "label": label.name if label else "own label"}
    of, within, _ = split.balance.partition("_within_field_year")
    balance = "as they come" if of == "none" else f"with equal numbers of each {names[of]}"
    balance += ", also within each field and five years" if within else ""
    balance += f", of the labels {' and '.join(split.labels)} only" if split.labels else ""
    if split.test_fields:
        yield f"{' and '.join(split.test_fields)} is held out: all test works are of it, all others of other fields."
    yield f"We drew {sizes} from these, {balance}, by the SHA-256 of each work's id and the seed {split.seed}."
    if split.balance != "none":
        yield "So shares of classes in the sample say nothing of the source."
    if has_context(manifest):
        yield (
            f"Each work has up to {MOST_REFERENCES} of its references, and what earlier years said of all of them: "
            "both were known when it appeared."
        )


def _describe_confidence(manifest: Mapping[str, Any]) -> Iterator[str]:
    if ceiling := manifest.get("ceiling"):
        yield (
            "A label is a draw of citers: cited anew, some works would have another one. So no predictor of the "
            f"disruption label can be expected to exceed an accuracy of {ceiling['accuracy']:.3f} and a macro-F1 of "
            f"{ceiling['macro_f1']:.3f} on this sample. Both are estimates, right to about 0.02 in "
            "worlds like real graphs."
        )
    if "label_prior" in manifest:
        yield "Confidence in a label has as its prior that of all works read, which is in the manifest."
    if remarks := [remark.text for remark in remark_on_release(manifest)] + list_one_sided(manifest):
        yield "Checks of the data and the labels found:"
        yield " ".join(f"{one[0].upper()}{one[1:]}" + "." * (one[-1] not in ".?") for one in remarks)


def _describe_software(manifest: Mapping[str, Any]) -> Iterator[str]:
    versions = manifest.get("versions", {})
    named = ", ".join(f"{name} {versions[name]}" for name in ("polars", "numba", "python") if name in versions)
    what = "Labels and sample were" if has_own_scores(manifest.get("source", {})) else "Everything was"
    yield f"{what} computed by sciscidata {versions.get('sciscidata', '')} ({named})."
    digest = manifest.get("manifest_sha256")
    yield f"All options and counts are in the manifest of the release, whose SHA-256 is {digest}."

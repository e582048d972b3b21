"""Slow, obvious implementations of the definitions, written from the papers and not from our kernels."""

from __future__ import annotations

from typing import Any

from dateutil.relativedelta import relativedelta

from sciscidata.disruption.index import CDConfig


def end_of(time: Any, window: int | str) -> Any:
    """The last year, or day, of a window; a day that a month lacks is its last one."""
    if isinstance(window, str) and window.startswith("until"):
        year = int(window.removeprefix("until"))
        return year if isinstance(time, int) else type(time)(year, 12, 31)
    if isinstance(time, int):
        return time + window
    if isinstance(window, int):
        return time + relativedelta(years=window)
    unit = "days" if window.endswith("d") else "months"
    return time + relativedelta(**{unit: int(window.rstrip("dmo"))})


def cd_family(
    years: dict[int, Any], edges: list[tuple[int, int]], config: CDConfig, window: int | str | None = -1
) -> dict[int, dict[str, float | int | None]]:
    """Score every work with plain sets: ``years`` holds the works with a record, ``edges`` any citations.

    ``years`` may be dates instead. ``window`` replaces that of ``config``; -1: it does not.
    """
    window = config.window_years if window == -1 else window
    references: dict[int, set[int]] = {}
    for citing, cited in edges:
        if citing != cited:
            references.setdefault(citing, set()).add(cited)

    def year(work: int) -> Any:
        return years.get(work)

    def is_too_late(time: Any) -> bool:
        """Did the work come out after the year with which the window ends? Then nothing counts."""
        return isinstance(window, str) and window.startswith("until") and time > end_of(time, window)

    def counts_as_citer(citer: int, cited: int, focal: int) -> bool:
        """Does the citation citer -> cited count when ``focal`` is scored?"""
        if year(citer) is None:
            return False
        if is_too_late(year(focal)):
            return False
        if config.window_from == "cited":
            return year(cited) is not None and year(cited) <= year(citer) <= end_of(year(cited), window)
        if window is not None and year(citer) > end_of(year(focal), window):
            return False
        if year(citer) == year(focal):
            return config.same_year
        return year(citer) > year(focal) or config.earlier_citers

    scores = {}
    for focal in years:
        if year(focal) is None:
            scores[focal] = None
            continue
        r = references.get(focal, set())
        citing_focal = {c for c, cited in references.items() if focal in cited and counts_as_citer(c, focal, focal)}
        citing_refs = {c for c, cited in references.items() if any(counts_as_citer(c, x, focal) for x in cited & r)}
        if not config.focal_in_n_k:
            citing_refs.discard(focal)
        if config.window_from == "cited":
            to_date = citing_focal
        else:
            to_date = {
                c
                for c, cited in references.items()
                if focal in cited
                and year(c) is not None
                and not is_too_late(year(focal))
                and (window is None or year(c) <= end_of(year(focal), window))
            }
        if config.focal_citers == "any":
            citing_focal = to_date
        n_i = len(citing_focal - citing_refs)
        n_j = len(citing_focal & citing_refs)
        n_k = len(citing_refs - citing_focal)
        shared = {c: sum(counts_as_citer(c, x, focal) for x in references[c] & r) for c in citing_focal}
        n_jl = sum(n >= config.di_l for n in shared.values())
        ever = any(focal in cited for cited in references.values())
        is_cited = {"keep": True, "null": n_i + n_j > 0, "null_if_never": ever}[config.uncited]
        usable = (bool(r) or config.zero_references == "keep") and is_cited

        def ratio(above: int, below: int, usable: bool = usable) -> float | None:
            return above / below if usable and below else None

        cd = ratio(n_i - n_j, n_i + n_j + n_k)
        scores[focal] = {
            "n_i": n_i,
            "n_j": n_j,
            "n_k": n_k,
            "cd_index": 0.0 if cd is None and config.undefined == "zero" else cd,
            "n_refs": len(r),
            f"n_j{config.di_l}": n_jl,
            "n_shared": sum(shared.values()),
            "mcd_index": None if cd is None else cd * len(to_date),
            f"di{config.di_l}_index": ratio(n_i - n_jl, n_i + n_jl + n_k),
            "di_nok_index": ratio(n_i - n_j, n_i + n_j),
            "dependence": ratio(sum(shared.values()), n_i + n_j),
        }
    return scores

"""What a multiverse varies, and what came out of it: one row per specification, and which choice matters most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
import polars as pl

from sciscidata.disruption.config import COMPAT, CDConfig, Window, WindowYears
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.judged import Population
from sciscidata.options.checks import Configuration, Share, Year
from sciscidata.terminal.messages import counted
from sciscidata.terminal.shares import percent

_Some = msgspec.Meta(min_length=1)
_INDEX: Final = "cd_index|mcd_index|di[1-9][0-9]{0,3}_index|di_nok_index|di[1-9][0-9]{0,3}_nok_index|orig_base"
_Index = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^({_INDEX}|dependence|inverse_dependence)$",
        description="a column of compute_cd_variants, such as 'cd_index', 'di5_index' or 'di_nok_index'",
    ),
]
_Window = WindowYears | Annotated[str, msgspec.Meta(pattern="^until[0-9]{4}$")]
_Windows = msgspec.Meta(
    min_length=1, description="a list of windows: years from 0 to 9999, a last year ('until2017'), or None for no end"
)
_Least = Annotated[int, msgspec.Meta(ge=0)]
#: The convention of a ``CDConfig`` without options.
DEFAULT: Final = "default"
_Spans = msgspec.Meta(
    min_length=1, description="a list of first and last years, such as years=[(1990, 2000)], or None for every year"
)
if TYPE_CHECKING:
    _Convention: TypeAlias = str
else:
    _Convention = Literal[DEFAULT, *COMPAT]

#: What a specification gave. Every other column of the frame is a choice.
OUTCOMES: Final = pl.Schema(
    {"works": pl.Int64(), "estimate": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(), "problem": pl.String()}
)
SELF_CITATIONS: Final = ("counted", "left out")
_ALIKE: Final = 1e-12  # of the largest: estimates that lie closer differ by rounding


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class MultiverseConfig(Configuration):
    """The choices that a multiverse combines, each with each. The first of every list makes the main specification.

    Attributes:
        conventions: ``"default"``, or names of ``CDConfig.compat``: who counts as a citer, and what is undefined.
        windows: years after publication in which citers count; ``"until2017"``; None: without end, where late works
            have fewer citers.
        indices: columns of ``compute_cd_variants``, such as ``"cd_index"``, ``"di5_index"`` and ``"di_nok_index"``. Mix
            no scales: ``"mcd_index"`` has no bounds, and ``"dependence"`` is high where a work consolidates.
        populations: ``"judged"`` works, or ``"all"`` that have an index.
        min_references: fewest references of a work in the data.
        min_citers: fewest citers of a work in the window.
        years: first and last publication year, such as ``(1990, 2005)``; None: every year. Works of other years still
            count as citers.
        missing: shares of citations taken away by chance, as ``find_effect_of_missing_data`` does.
        seed: of what is missing.

    Raises:
        ConfigError: on construction, if a list is empty or holds a value twice, or a convention has no such window.

    Example:
        >>> MultiverseConfig(windows=[3, 5], min_citers=[0]).n_specifications
        96
    """

    conventions: Annotated[tuple[_Convention, ...], _Some] = (DEFAULT, "sciscinet_v1_cd5")
    windows: Annotated[tuple[_Window, ...], _Windows] = (5, 10, None)
    indices: Annotated[tuple[_Index, ...], _Some] = ("cd_index", "di5_index", "di_nok_index")
    populations: Annotated[tuple[Population, ...], _Some] = ("judged", "all")
    min_references: Annotated[tuple[_Least, ...], _Some] = (0, 10)
    min_citers: Annotated[tuple[_Least, ...], _Some] = (0, 5)
    years: Annotated[tuple[tuple[Year, Year] | None, ...], _Spans] = (None,)
    missing: Annotated[tuple[Share, ...], _Some] = (0.0, 0.1)
    seed: int = 0

    def _check(self) -> None:
        for field in fields(self):
            values: Any = getattr(self, field.name)
            if field.name == "seed":
                continue
            twice = [value for i, value in enumerate(values) if value in values[:i]]
            if twice:
                raise ConfigError(f"MultiverseConfig.{field.name} holds {twice[0]!r} twice. Leave one out.")
        if wrong := [span for span in self.years if span and span[0] > span[1]]:
            raise ConfigError(f"MultiverseConfig.years holds {wrong[0]}, whose last year comes first. Swap them.")
        for convention, shared in product(self.conventions, self.least_shared):
            try:
                self.config_of(convention, shared)
            except ConfigError as error:
                raise ConfigError(f"MultiverseConfig: convention {convention!r} has no such window. {error}") from None

    @property
    def n_specifications(self) -> int:
        """How many specifications there are, without authors; with them twice as many."""
        return sum(1 for _ in product(*self.choices().values()))

    @property
    def n_passes(self) -> int:
        """How many passes over the citations there are."""
        return len(self.missing) * len(self.conventions) * len(self.least_shared)

    @property
    def least_shared(self) -> list[int]:
        """How many references a strong citer shares, for each index that asks: the 5 of ``di5_index``."""
        return sorted({least_shared(index) for index in self.indices})

    def config_of(self, convention: str, shared: int) -> CDConfig:
        """Return the convention with all windows, and the family with strong citers of ``shared`` references.

        Example:
            >>> MultiverseConfig(windows=[3, None]).config_of("cdindex", 5).all_windows
            {'': 3, '_all': None}
        """
        own = [window for window in self.windows if window is None or not isinstance(window, str)]
        first: Any = own[0] if own else 5
        further = tuple(window for window in self.windows if window not in own[:1])
        options: dict[str, Any] = {"window_years": first, "windows": further, "family": True, "di_l": shared}
        return CDConfig(**options) if convention == DEFAULT else CDConfig.compat(convention, **options)

    def choices(self, *, has_authors: bool = False) -> dict[str, list[Any]]:
        """Return the values of every choice, as the columns of the specifications write them."""
        return {
            "convention": [*self.conventions],
            "window": [name_of_window(window) for window in self.windows],
            "index": [*self.indices],
            "population": [*self.populations],
            "self_citations": [*(SELF_CITATIONS if has_authors else SELF_CITATIONS[:1])],
            "min_references": [*self.min_references],
            "min_citers": [*self.min_citers],
            "years": [*map(_name_years, self.years)],
            "missing": [*self.missing],
        }

    def span_of(self, years: str) -> tuple[int, int] | None:
        """Return the first and last year of a value of ``years``; None for every year."""
        return {_name_years(span): span for span in self.years}[years]

    def list_specifications(self, *, has_authors: bool = False) -> Iterator[dict[str, Any]]:
        """Yield every combination of choices, the main specification first."""
        choices = self.choices(has_authors=has_authors)
        for values in product(*choices.values()):
            yield dict(zip(choices, values, strict=True))


def name_of_window(window: Window) -> str:
    """Write a window as the specifications do: ``"5"``, or ``"all"`` without end."""
    return "all" if window is None else str(window)


def _name_years(span: tuple[int, int] | None) -> str:
    return "all" if span is None else f"{span[0]} to {span[1]}"


def least_shared(index: str) -> int:
    """Return the l of an index DI_l; 5 for those without one.

    Example:
        >>> least_shared("di3_index"), least_shared("cd_index")
        (3, 5)
    """
    digits = index.removeprefix("di").split("_")[0]
    return int(digits) if index.startswith("di") and digits.isdigit() else 5


def name_specification(choices: Mapping[str, Any]) -> str:
    """Name a specification in a message.

    Example:
        >>> name_specification({"window": "5", "missing": 0.1})
        "window='5', missing=0.1"
    """
    return ", ".join(f"{name}={value!r}" for name, value in choices.items())


@dataclass(frozen=True, slots=True, repr=False)
class Multiverse:
    """What came out of all specifications.

    ``specifications`` has one row each, the main one first: a column for every choice, then works (Int64, how many the
    frame had), estimate, low and high (Float64; null where the function gave none, NaN or an error), and problem
    (String, why there is no estimate). Further columns that you add are choices, too, so two runs can be put together:
    ``Multiverse(pl.concat([...]))``.

    Raises:
        SchemaMismatchError: when made of a frame that lacks one of these columns.
    """

    specifications: pl.DataFrame

    def __post_init__(self) -> None:
        object.__setattr__(self, "specifications", require_specifications(self.specifications, "Multiverse"))

    def __repr__(self) -> str:
        """Count specifications and estimates."""
        return f"Multiverse({counted(self.specifications.height, 'specification')}, {self.n_failed:,} without estimate)"

    @property
    def choices(self) -> list[str]:
        """The columns of choices."""
        return [name for name in self.specifications.columns if name not in OUTCOMES]

    @property
    def n_failed(self) -> int:
        """How many specifications have no estimate."""
        return self.specifications["estimate"].null_count()

    @property
    def sign(self) -> int:
        """The commonest sign of the estimates: 1 or -1; 0 where both are as common."""
        signs = self.specifications["estimate"].drop_nulls().sign()
        above, below = int((signs > 0).sum()), int((signs < 0).sum())
        return (above > below) - (above < below)

    @property
    def share_same_sign(self) -> float:
        """The share of estimates that have the commonest sign."""
        signs = self.specifications["estimate"].drop_nulls().sign()
        return float(max((signs > 0).mean() or 0.0, (signs < 0).mean() or 0.0))  # pyright: ignore[reportArgumentType]

    @property
    def share_off_zero(self) -> float | None:
        """The share of intervals off 0 on the side of the commonest sign, or above 0 where both are as common.

        None without intervals. An interval without its estimate does not count.
        """
        return self._share_on_side(self.sign or 1)

    @property
    def share_against(self) -> float | None:
        """The share of intervals off 0 on the other side; None without intervals."""
        return self._share_on_side(-(self.sign or 1))

    def _share_on_side(self, side: int) -> float | None:
        ends = self.specifications.select("estimate", "low", "high").drop_nulls()
        off = ends["low"] > 0 if side > 0 else ends["high"] < 0
        return float(off.mean()) if ends.height else None  # pyright: ignore[reportArgumentType]

    @property
    def influence(self) -> pl.DataFrame:
        """How much each choice alone explains of the variance of the estimates, the largest first.

        One row per choice that has several values: choice (String), share_of_variance (Float64, between its values),
        then the value with the lowest mean estimate and with the highest (String), and both means (Float64). Shares add
        up to less than 1 where choices act together. Null where all estimates are alike.
        """
        return find_influence(self.specifications)

    def describe(self) -> str:
        """Say it in sentences, for a results section.

        Raises:
            EmptyInputError: if no specification has an estimate.
        """
        known = self.specifications["estimate"].drop_nulls()
        if known.is_empty():
            raise EmptyInputError("Multiverse: no specification has an estimate. The column problem says why.")
        least, middle, most = (known.quantile(share, "linear") for share in (0.0, 0.5, 1.0))
        side = {1: "above 0", -1: "below 0", 0: "on either side of 0"}[self.sign]
        text = (
            f"{counted(len(known), 'specification')}: estimates from {least:.4g} to {most:.4g}, median {middle:.4g}; "
            f"{percent(self.share_same_sign, 1)} {side}"
        )
        if self.share_off_zero is not None and self.share_against is not None:
            here, there = ("off 0 there", "on the other side") if self.sign else ("above 0", "below")
            text += f", {percent(self.share_off_zero, 1)} with an interval {here}"
            text += f" and {percent(self.share_against, 1)} {there}"
        text += "."
        influence = self.influence
        if influence.height and influence["share_of_variance"][0] is not None:
            first = influence.row(0, named=True)
            text += (
                f" The choice of {first['choice'].replace('_', ' ')} matters most: it explains "
                f"{percent(first['share_of_variance'])} of the variance, with means from {first['mean_lowest']:.4g} "
                f"({first['lowest']}) to {first['mean_highest']:.4g} ({first['highest']})."
            )
        return text + (f" {counted(self.n_failed, 'specification')} without an estimate." if self.n_failed else "")


def require_specifications(frame: AnyFrame, stage: str) -> pl.DataFrame:
    """Check the columns of specifications, and return them as a frame."""
    rows = to_lazy(frame, "specifications", stage).collect()
    if lacks := [name for name in OUTCOMES if name not in rows.columns]:
        raise SchemaMismatchError(
            f"{stage}: specifications lack column {lacks[0]!r}; they have {', '.join(rows.columns) or 'none'}. Give "
            "those of run_multiverse, or add it; null where it is not known."
        )
    return rows.cast(dict(OUTCOMES))  # pyright: ignore[reportArgumentType]


def find_influence(specifications: pl.DataFrame) -> pl.DataFrame:
    """Find the share of variance that each choice alone explains: see ``Multiverse.influence``."""
    known = specifications.drop_nulls("estimate")
    estimates = known["estimate"]
    width, largest = (estimates.max() or 0.0) - (estimates.min() or 0.0), estimates.abs().max() or 0.0  # pyright: ignore
    whole = estimates.var(ddof=0) if width > _ALIKE * largest else None  # pyright: ignore
    found: list[dict[str, Any]] = []
    for choice in specifications.columns:
        if choice in OUTCOMES or known[choice].n_unique() < 2:
            continue
        means = known.group_by(choice).agg(n=pl.len(), mean=pl.col("estimate").mean()).sort("mean", choice)
        between = means.select(((pl.col("mean") - known["estimate"].mean()) ** 2 * pl.col("n")).sum()).item()
        found.append(
            {
                "choice": choice,
                "share_of_variance": between / known.height / whole if whole else None,
                "lowest": str(means[choice][0]),
                "mean_lowest": means["mean"][0],
                "highest": str(means[choice][-1]),
                "mean_highest": means["mean"][-1],
            }
        )
    text = ("choice", "lowest", "highest")
    order = ("choice", "share_of_variance", "lowest", "mean_lowest", "highest", "mean_highest")
    schema = {name: pl.String() if name in text else pl.Float64() for name in order}
    return pl.DataFrame(found, schema).sort("share_of_variance", "choice", descending=[True, False], nulls_last=True)

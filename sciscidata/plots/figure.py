"""How every picture looks and is saved: for one or two columns of a journal, as PNG, SVG or PDF."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from sciscidata.errors import ConfigError
from sciscidata.options.did_you_mean import suggest
from sciscidata.release.documents import name_source
from sciscidata.release.read import Release
from sciscidata.schemas import Corpus
from sciscidata.storage import atomic_file, check_file, refuse_unwritable
from sciscidata.terminal.messages import counted, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: One colour per label everywhere; colour-blind readers can tell them apart (Okabe & Ito 2008).
COLOURS: Final = {
    "disruptive": "#D55E00",
    "consolidating": "#0072B2",
    "neutral": "#777777",
    "novel": "#007A59",  # their green, darker: as text it has to be read
    "conventional": "#A3487E",  # their purple, darker
    "balanced": "#777777",
}
INK: Final = "#333333"
PALE: Final = "#BBBBBB"

_COLUMNS_MM: Final = {"one": 85.0, "two": 180.0}
_MM_PER_INCH: Final = 25.4
_MM_PER_LETTER: Final = 1.5  # of a title
_FORMATS: Final = (".png", ".svg", ".pdf")
_DPI: Final = 300
_STYLE: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine has it
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.0,
    "svg.hashsalt": "sciscidata",  # else ids in the file are random
    "pdf.fonttype": 42,  # journals refuse Type 3
}
_LOCK: Final = threading.RLock()  # matplotlib's settings are global


class Look(TypedDict, total=False):
    """Keywords of every ``plot_*`` function: where a picture goes, and what it says of its data.

    Attributes:
        data: what the numbers are of: a name, a ``Corpus`` or a ``Release``. The title ends with it.
        title: replaces the sentence that describes the picture; "" leaves it out, for a caption below. The sentence is
            the label of the figure in any case (``figure.get_label()``), and the title of the file. With ``ax`` it is
            not written above the picture.
        width: ``"one"`` column of a journal (85 mm) or ``"two"`` (180 mm, the default).
        path: file to write: PNG, SVG or PDF by its suffix. An existing file is replaced.
        ax: an Axes to draw in, or a list with one for each panel; else a figure is made. A second call on the same Axes
            takes the next colour.

    Raises:
        ConfigError: an option is unknown or wrong.
        StorageError: the file cannot be written.
    """

    data: str | Corpus | Release | Mapping[str, Any] | None
    title: str | None
    width: Literal["one", "two"]
    path: str | Path | None
    ax: Axes | Sequence[Axes] | npt.NDArray[Any] | None


@dataclass
class Picture:
    """A picture while it is drawn; ``title`` is the sentence that describes it, without the name of its data."""

    figure: Figure
    panels: list[Axes]
    width_mm: float
    title: str = ""

    @property
    def is_narrow(self) -> bool:
        """Whether it fills one column."""
        return self.width_mm < _COLUMNS_MM["two"]


@contextmanager
def drawing(
    look: Look, *, heights_mm: Sequence[float], ratios: Sequence[float] = (), stacked: bool = False, share: str = ""
) -> Generator[Picture]:
    """Give panels to draw in, of some heights; then write the title, and the file if one is asked for.

    Panels lie side by side across two columns (``ratios`` of their widths), or ``stacked`` in one column. ``share``
    names the axis that all panels have in common.
    """
    from matplotlib import rc_context

    from sciscidata.plots._notebook_figure import NotebookFigure

    n = len(heights_mm)
    path, width_mm = _check_look(look, n)
    own_axes = axes_of(look)
    style: dict[Any, Any] = {} if own_axes else _STYLE
    with _LOCK, rc_context(style):
        if own_axes:
            panels = own_axes
            picture = Picture(panels[0].figure.figure, panels, width_mm)
        else:
            below = stacked or width_mm < _COLUMNS_MM["two"]
            height = sum(heights_mm) if below else heights_mm[0]
            figure = NotebookFigure(figsize=(width_mm / _MM_PER_INCH, height / _MM_PER_INCH), layout="constrained")
            grid = {"height_ratios": heights_mm} if below else {"width_ratios": ratios or [1] * n}
            common: dict[str, Any] = {"sharex": share == "x" and below, "sharey": share == "y" and not below}
            axes = figure.subplots(n if below else 1, 1 if below else n, squeeze=False, **grid, **common)
            picture = Picture(figure, [*axes.flat], width_mm)
        yield picture
        name = name_data(look.get("data"))
        caption = f"{picture.title} Data: {name}." if picture.title and name else picture.title
        picture.figure.set_label(caption)
        asked = look.get("title", "" if own_axes else caption)
        title = plain(caption if asked is None else asked)
        wrapped = textwrap.fill(title, int(width_mm / _MM_PER_LETTER), break_on_hyphens=False)
        if not own_axes and title:
            picture.figure.suptitle(wrapped, x=0.01, ha="left")
        elif title and n == 1:
            picture.panels[0].set_title(wrapped)
        if path is not None:
            save(picture.figure, path, title=caption, dpi=_DPI)


def letter_panels(picture: Picture) -> None:
    """Write a, b, ... above the panels, as the title calls them."""
    for letter, panel in zip("abcd", picture.panels, strict=False):
        panel.set_title(letter, loc="left", fontweight="bold")


def _check_look(look: Look, n_panels: int) -> tuple[Path | None, float]:
    known = Look.__annotations__
    for name in look:
        if name not in known:
            remedy = suggest(name, known) or f" It has {', '.join(known)}."
            raise ConfigError(f"a picture has no option {name!r}.{remedy}")
    width = look.get("width", "two")
    if width not in _COLUMNS_MM:
        raise ConfigError(
            f"width is {width!r}, needs 'one' (85 mm) or 'two' (180 mm). For another size draw into axes of your own."
        )
    own, path = axes_of(look), look.get("path")
    if own and len(own) != n_panels:
        raise ConfigError(f"ax holds {len(own)} Axes, this picture has {n_panels} panels. Give a list of {n_panels}.")
    if path is not None:
        check_picture(Path(path))
    return None if path is None else Path(path), _COLUMNS_MM[width]


def check_picture(path: Path) -> None:
    """Raise before any work unless a picture may be written there; what Matplotlib has drawn may be replaced."""
    if path.suffix.lower() not in _FORMATS:
        raise ConfigError(
            f"a picture is written as PNG, SVG or PDF, got {path.name!r}. Let its name end in .png, .svg or .pdf."
        )
    check_file(path, b"Matplotlib", "picture that Matplotlib has drawn")
    refuse_unwritable(path)


def axes_of(look: Look) -> list[Axes]:
    """Return the Axes that a user gave; an empty list where a figure is to be made."""
    ax = look.get("ax")
    return [] if ax is None else [*np.ravel(np.asarray(ax, dtype=object))]


def name_data(data: object) -> str:
    """Name what numbers were computed from, as a title says it; "" where it is not known.

    Example:
        >>> name_data({"kind": "synthetic", "config": {"n_works": 20_000}})
        'a synthetic world of 20,000 works'
        >>> name_data("hep-th"), name_data(None)
        ('hep-th', '')
    """
    if data is None or isinstance(data, str):
        return data or ""
    if isinstance(data, Release):
        data = data.manifest.get("source")
    provenance: Any = data.provenance if isinstance(data, Corpus) else data
    if not isinstance(provenance, Mapping):
        raise ConfigError(f"data is a {type(data).__name__}, needs a name, a Corpus or a Release.")
    kind = provenance.get("kind")
    name = name_source(provenance, str(kind or ""))
    config: Any = provenance.get("config")
    n_works = provenance.get("works", config.get("n_works") if isinstance(config, Mapping) else None)
    date = provenance.get("data_date")
    of = f" of {n_works:,} works" if isinstance(n_works, int) and name else ""
    return name + of + (f", {date[:10]}" if isinstance(date, str) else "")


def plain(text: str) -> str:
    r"""Write a text so that matplotlib draws it as it is: no formula after a dollar, no forged line.

    Example:
        >>> plain("runs/$x^2$")
        'runs/\\$x^2\\$'
    """
    return printable(text).replace("$", r"\$")


def save(figure: Figure, path: str | Path, *, title: str = "", dpi: int = 130) -> None:
    """Write a figure as PNG, SVG or PDF by the suffix, without a window system; equal figures give equal bytes.

    Raises:
        ConfigError: the name has another suffix.
        ReleaseExistsError: a file is there that is no picture of Matplotlib.
        StorageError: the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path = Path(path)
    check_picture(path)
    kind = path.suffix.lower().removeprefix(".")
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    FigureCanvasAgg(figure)
    with _LOCK, rc_context({name: _STYLE[name] for name in ("svg.hashsalt", "pdf.fonttype")}):
        metadata = {**dates.get(kind, {}), **({"Title": title} if title else {})}
        with atomic_file(path, recheck=partial(check_picture, path)) as new:
            figure.savefig(new, dpi=dpi, format=kind, metadata=metadata)


def tick_numbers(axis: Axis, n: int | None = None, *, is_whole: bool = True) -> None:
    """Put about ``n`` ticks at round numbers, written in full; by default ten at most, as pictures of releases have."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    axis.set_major_locator(MaxNLocator(n or 10, integer=is_whole, steps=(1, 2, 5, 10) if n else None))
    if isinstance(writer := axis.get_major_formatter(), ScalarFormatter):
        writer.set_useOffset(False)


def count_works(n: int) -> str:
    """Write a number of works."""
    return counted(n, "work")


def write_share(share: float, _: object = None) -> str:
    """Write a share as a tick says it: 2.5%."""
    return f"{round(100 * share, 6):g}%"

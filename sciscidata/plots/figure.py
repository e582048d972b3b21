"""How every picture looks and is saved: for one or two columns of a journal, as PNG, SVG or PDF."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
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
_POINTS_PER_MM: Final = 72 / _MM_PER_INCH
_LINE_MM: Final = 3.4  # of a title
_TITLE_SHARE: Final = 0.91  # of the width: on a screen letters are some percent wider than on paper
_UNKNOWN: Final = 1.2  # of its height: the box in place of a letter that the font lacks
_FREE_LINES: Final = {"one": 4, "two": 2}  # of a title, for which the heights of pictures have room
#: Fonts for what DejaVu Sans lacks, such as Chinese, Japanese and Korean; those that are installed are used.
_OTHER_FONTS: Final = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Source Han Sans", "WenQuanYi Zen Hei", "Microsoft YaHei"),
    *("Malgun Gothic", "Yu Gothic", "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Arial Unicode MS"),
)
_FORMATS: Final = (".png", ".svg", ".pdf")
_DPI: Final = 300
#: Settings of matplotlib that all pictures have: ``plt.rcParams.update(STYLE)`` gives them to your own.
STYLE: Final[dict[str, Any]] = {
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
    look: Look, *, heights_mm: Sequence[float], ratios: Sequence[float] = (), columns: int = 0, share: str = ""
) -> Generator[Picture]:
    """Give panels to draw in, of some heights; then write the title, and the file if one is asked for.

    Panels lie side by side across two columns of a journal (``ratios`` of their widths), and one below the other in
    one; or in rows of some ``columns``. ``share`` names the axis that all panels have in common, or "both". A picture
    is higher where its title is long, so that the panels keep their heights.
    """
    from matplotlib import rc_context

    from sciscidata.plots._notebook_figure import NotebookFigure

    n = len(heights_mm)
    path, width_mm = _check_look(look, n)
    own_axes = axes_of(look)
    style: dict[Any, Any] = {} if own_axes else {**STYLE, "font.family": [STYLE["font.family"], *_find_other_fonts()]}
    with _LOCK, rc_context(style):
        if own_axes:
            panels = own_axes
            picture = Picture(panels[0].figure.figure, panels, width_mm)
        else:
            across = columns or (1 if width_mm < _COLUMNS_MM["two"] else n)
            rows_mm = [max(heights_mm[at : at + across]) for at in range(0, n, across)]
            figure = NotebookFigure(
                figsize=(width_mm / _MM_PER_INCH, sum(rows_mm) / _MM_PER_INCH), layout="constrained"
            )
            grid = {"height_ratios": rows_mm, "width_ratios": ratios if len(ratios) == across else [1] * across}
            common: dict[str, Any] = {
                "sharex": share == "both" or (share == "x" and across == 1),
                "sharey": share == "both" or (share == "y" and across == n),
            }
            axes = figure.subplots(len(rows_mm), across, squeeze=False, **grid, **common)
            for spare in axes.flat[n:]:
                spare.remove()
            picture = Picture(figure, [*axes.flat[:n]], width_mm)
        yield picture
        name = name_data(look.get("data"))
        caption = f"{picture.title} Data: {name}." if picture.title and name else picture.title
        picture.figure.set_label(caption)
        asked = look.get("title", "" if own_axes else caption)
        title = plain(caption if asked is None else asked)
        if not own_axes and title:
            wrapped = fit(title, _TITLE_SHARE * width_mm)
            picture.figure.suptitle(wrapped, x=0.01, ha="left")
            more = wrapped.count("\n") + 1 - _FREE_LINES[look.get("width", "two")]
            height = picture.figure.get_figheight()
            picture.figure.set_figheight(height + max(more, 0) * _LINE_MM / _MM_PER_INCH)
        elif title and n == 1:
            box = picture.panels[0].get_window_extent()
            size = float(picture.panels[0].title.get_fontsize())
            picture.panels[0].set_title(fit(title, box.width / picture.figure.dpi * _MM_PER_INCH, size=size))
        if path is not None:
            save(picture.figure, path, title=caption, dpi=_DPI)


def fit(text: str, width_mm: float, *, size: float = STYLE["font.size"], n_lines: int = 0, end: str = "") -> str:
    r"""Break a text into lines that are no wider than ``width_mm``; with ``n_lines``, what is left over is cut off.

    Lines end at blanks, or where there are none, as in Chinese, at any letter. ``end`` stands after the text, however
    much of it is cut off.

    Example:
        >>> fit("a title of six short words", 20, size=8)
        'a title of six\nshort words'
        >>> fit("a title of six short words", 20, size=8, n_lines=1)
        'a title of six…'
        >>> fit("a title of six short words", 20, size=8, n_lines=2, end=" (7)")
        'a title of six\nshort wo… (7)'
    """
    room = width_mm * _POINTS_PER_MM
    lines, line, used = list[str](), "", 0.0
    for part in re.findall(r"[^ \n]+[ \n]*", text + end):
        word = part.rstrip(" \n")
        width = _measure(word, size)
        if line and used + width > room:
            lines, line, used = [*lines, line.rstrip()], "", 0.0
        while width > room and len(word) > 1:
            head = _head(word, room, size)
            lines, word = [*lines, head], word[len(head) :]
            width = _measure(word, size)
        line, used = f"{line}{word} ", used + width + _measure(" ", size)
    lines = [*lines, line.rstrip()]
    if n_lines and len(lines) > n_lines:
        last = lines[n_lines - 1]
        while last and _measure(f"{last}…{end}", size) > room:
            last = last[:-1]
        lines = [*lines[: n_lines - 1], f"{last.rstrip()}…{end}"]
    return "\n".join(lines)


def _head(word: str, room: float, size: float) -> str:
    """Return the first letters of a word that have room, at least one."""
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _measure(word[:middle], size) <= room else (low, middle - 1)
    return word[:low]


@cache
def _find_other_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import get_font_names

    installed = {*get_font_names()}
    return tuple(name for name in _OTHER_FONTS if name in installed)


@lru_cache(maxsize=4_096)
def _measure(text: str, size: float) -> float:
    """Return how wide a text is, in points."""
    from matplotlib.font_manager import FontProperties, fontManager, get_font
    from matplotlib.ft2font import LoadFlags

    font = get_font(fontManager.findfont(FontProperties(family=STYLE["font.family"])))
    known = font.get_charmap()
    units = [font.load_char(code, flags=LoadFlags.NO_SCALE).horiAdvance for one in text if (code := ord(one)) in known]
    return size * (sum(units) / font.units_per_EM + _UNKNOWN * (len(text) - len(units)))


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
    with _LOCK, rc_context({name: STYLE[name] for name in ("svg.hashsalt", "pdf.fonttype")}):
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

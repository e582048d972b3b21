"""How every picture looks and is saved: for one or two columns of a journal, as PNG, SVG or PDF."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from sciscidata.errors import ConfigError
from sciscidata.options.did_you_mean import suggest
from sciscidata.plots.palette import as_letters
from sciscidata.release.documents import name_source
from sciscidata.release.findings import mark_synthetic
from sciscidata.release.read import Release
from sciscidata.schemas import Corpus
from sciscidata.storage import atomic_file, check_file, refuse_unwritable
from sciscidata.terminal.messages import counted, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_COLUMNS_MM: Final = {"one": 85.0, "two": 180.0}
_MM_PER_INCH: Final = 25.4
_POINTS_PER_MM: Final = 72 / _MM_PER_INCH
_TITLE_SIZE: Final = 9.0
_CAPTION_SIZE: Final = 7.0
_CAPTION: Final = "caption"  # the gid of the sentence below a picture
_LEADING: Final = 1.22  # from line to line, of the size of letters
_GAP_MM: Final = 1.5  # between a caption and what is above it
_TITLE_SHARE: Final = 0.91  # of the width: on a screen letters are some percent wider than on paper
_UNKNOWN: Final = 1.2  # of its height: the box in place of a letter that the font lacks
_ROOM_MM: Final = {"one": 5.0, "two": 6.8}  # of the heights of pictures, for what stands above the panels
#: Fonts for what DejaVu Sans lacks, such as Chinese, Japanese and Korean; those that are installed are used.
_OTHER_FONTS: Final = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Source Han Sans", "WenQuanYi Zen Hei", "Microsoft YaHei"),
    *("Malgun Gothic", "Yu Gothic", "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Arial Unicode MS"),
)
_FORMATS: Final = (".png", ".svg", ".pdf")
_EXAMPLE: Final = "the example (SYNERGY, 4,381 works)"
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
        data: what the numbers are of: a name, a ``Corpus`` or a ``Release``. The caption ends with it.
        title: what the picture shows, in bold above it. None: what the numbers say, where the function finds it. The
            caption below says how the picture was made. "" leaves out both, for a caption of your own. The caption is
            the label of the figure in any case (``figure.get_label()``), and the title of the file. With ``ax`` only a
            title that is given is written.
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
    """A picture while it is drawn.

    Attributes:
        caption: the sentences that say how it was made, without the name of its data.
        finding: what its numbers say, for a title; "" where that is not known.
        common_x: the name of the axis that all panels share.
        legend: what ``figure.legend`` takes, of a legend between the panels and the caption.
    """

    figure: Figure
    panels: list[Axes]
    width_mm: float
    caption: str = ""
    finding: str = ""
    common_x: str = ""
    legend: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_narrow(self) -> bool:
        """Whether it fills one column."""
        return self.width_mm < _COLUMNS_MM["two"]


@contextmanager
def drawing(
    look: Look, *, heights_mm: Sequence[float], ratios: Sequence[float] = (), columns: int = 0, share: str = ""
) -> Generator[Picture]:
    """Give panels to draw in, of some heights; then write title and caption, and the file if one is asked for.

    Panels lie side by side across two columns of a journal (``ratios`` of their widths), and one below the other in
    one; or in rows of some ``columns``. ``share`` names the axis that all panels have in common, or "both". A picture
    is as high as its panels and words need, so that panels keep their heights.
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
        name, asked = name_data(look.get("data")), look.get("title")
        caption = f"{picture.caption} Data: {name}." if picture.caption and name else picture.caption
        picture.figure.set_label(caption)
        finding = picture.finding
        if _provenance_of(look.get("data")).get("kind") == "synthetic":
            finding = mark_synthetic(finding)
        if own_axes:
            box = picture.panels[0].get_window_extent()
            size = float(picture.panels[0].title.get_fontsize())
            if asked and n == 1:
                width = box.width / picture.figure.dpi * _MM_PER_INCH
                picture.panels[0].set_title(fit(plain(asked), width, size=size))
        else:
            _write_words(picture, finding if asked is None else asked, "" if asked == "" else caption, look)
        if path is not None:
            save(picture.figure, path, title=caption, dpi=_DPI)


def _write_words(picture: Picture, title: str, caption: str, look: Look) -> None:
    """Write the title above the panels and the caption below them, and make the figure as high as they need."""
    figure, width = picture.figure, _TITLE_SHARE * picture.width_mm
    above = fit(plain(title), width, size=_TITLE_SIZE, weight="bold") if title else ""
    below = fit(plain(caption), width, size=_CAPTION_SIZE) if caption else ""
    height = figure.get_figheight() * _MM_PER_INCH - _ROOM_MM[look.get("width", "two")]
    line_mm = {size: _LEADING * size / _POINTS_PER_MM for size in (_TITLE_SIZE, _CAPTION_SIZE)}
    bottom = (below.count("\n") + 1) * line_mm[_CAPTION_SIZE] + _GAP_MM if below else 0.0
    legend = figure.legend(**picture.legend, loc="lower center") if picture.legend else None
    listed = _height_of(picture.legend) if picture.legend else 0.0
    named = line_mm[_TITLE_SIZE] if picture.common_x else 0.0
    height += bottom + listed + named + ((above.count("\n") + 1) * line_mm[_TITLE_SIZE] if above else 0.0)
    figure.set_figheight(height / _MM_PER_INCH)
    if above:
        figure.suptitle(above, x=0.01, ha="left", fontweight="bold", fontsize=_TITLE_SIZE)
    share = bottom / height
    if below:
        words: dict[str, Any] = {
            "va": "bottom",
            "fontsize": _CAPTION_SIZE,
            "color": as_letters("#666666"),
            "gid": _CAPTION,
        }
        figure.text(0.01, 1.0 / height, below, linespacing=1.15, **words)
    if legend is not None:
        legend.set_bbox_to_anchor((0, share, 1, 1), figure.transFigure)
        legend.set_in_layout(False)
        share += listed / height
    if picture.common_x:
        size = STYLE["axes.labelsize"]
        figure.supxlabel(picture.common_x, y=share, va="bottom", fontsize=size).set_in_layout(False)
        share += named / height
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, share, 1, 1 - share))


def _height_of(legend: Mapping[str, Any]) -> float:
    """Return how high a legend is, in mm: without drawing it, which warns of letters that a font lacks."""
    size, title = STYLE["legend.fontsize"], legend.get("title", "")
    n_rows = -(-len(legend["labels"]) // legend.get("ncols", 1))
    rows = sorted((label.count("\n") + 1 for label in legend["labels"]), reverse=True)[:n_rows]
    lines = sum(_LEADING * n + 0.5 for n in [*rows, *[1.2] * bool(title)])
    return size * (lines + 1.3) / _POINTS_PER_MM


def take_words(figure: Figure) -> tuple[str, str]:
    """Take title and caption out of a figure, and return both: beside it, a phone can break them."""
    title = " ".join(figure.get_suptitle().split())
    for text in figure.texts:
        if text.get_gid() == _CAPTION:
            text.set_text("")
    figure.suptitle("").set_in_layout(False)
    return title.replace(r"\$", "$"), str(figure.get_label())


def fit(
    text: str,
    width_mm: float,
    *,
    size: float = STYLE["font.size"],
    n_lines: int = 0,
    end: str = "",
    weight: Literal["normal", "bold"] = "normal",
) -> str:
    r"""Break a text into lines that are no wider than ``width_mm``; with ``n_lines``, what is left over is cut off.

    Lines end at blanks, but not before a percent sign, or where there are none, as in Chinese, at any letter. ``end``
    stands after the text, however much of it is cut off.

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
    for part in re.findall(r"[^ \n]+(?: %[^ \n]*)?[ \n]*", text + end):
        word = part.rstrip(" \n")
        width = _measure(word, size, weight)
        if line and used + width > room:
            lines, line, used = [*lines, line.rstrip()], "", 0.0
        while width > room and len(word) > 1:
            head = _head(word, room, size, weight)
            lines, word = [*lines, head], word[len(head) :]
            width = _measure(word, size, weight)
        line, used = f"{line}{word} ", used + width + _measure(" ", size, weight)
    lines = [*lines, line.rstrip()]
    if n_lines and len(lines) > n_lines:
        last = lines[n_lines - 1]
        while last and _measure(f"{last}…{end}", size, weight) > room:
            last = last[:-1]
        lines = [*lines[: n_lines - 1], f"{last.rstrip()}…{end}"]
    return "\n".join(lines)


def _head(word: str, room: float, size: float, weight: str) -> str:
    """Return the first letters of a word that have room, at least one."""
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _measure(word[:middle], size, weight) <= room else (low, middle - 1)
    return word[:low]


@cache
def _find_other_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import get_font_names

    installed = {*get_font_names()}
    return tuple(name for name in _OTHER_FONTS if name in installed)


@lru_cache(maxsize=4_096)
def _measure(text: str, size: float, weight: str) -> float:
    """Return how wide a text is, in points."""
    from matplotlib.font_manager import FontProperties, fontManager, get_font
    from matplotlib.ft2font import LoadFlags

    font = get_font(fontManager.findfont(FontProperties(family=STYLE["font.family"], weight=weight)))
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
    provenance = _provenance_of(data)
    kind = provenance.get("kind")
    if kind == "example":
        return _EXAMPLE
    name = name_source(provenance, str(kind or ""))
    config: Any = provenance.get("config")
    n_works = provenance.get("works", config.get("n_works") if isinstance(config, Mapping) else None)
    date = provenance.get("data_date")
    of = f" of {n_works:,} works" if isinstance(n_works, int) and name else ""
    return name + of + (f", {date[:10]}" if isinstance(date, str) else "")


def _provenance_of(data: object) -> Mapping[str, Any]:
    """Return where data come from; nothing of data that are a name alone."""
    if data is None or isinstance(data, str):
        return {}
    if isinstance(data, Release):
        data = data.manifest.get("source")
    provenance: Any = data.provenance if isinstance(data, Corpus) else data
    if not isinstance(provenance, Mapping):
        raise ConfigError(f"data is a {type(data).__name__}, needs a name, a Corpus or a Release.")
    return provenance


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
    """Write a share as a tick says it: 2.5 %."""
    return f"{round(100 * share, 6):g} %".replace("-", "−")

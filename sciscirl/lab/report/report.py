"""Write a report of many runs: one HTML file that loads nothing else, and a folder with its pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Final

import jinja2
from markupsafe import Markup, escape
from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscidata.storage import atomic_file, atomic_folder
from sciscidata.terminal.progress import progress_bar
from sciscirl.errors import SciSciRLError
from sciscirl.lab.report.figures import is_of_report
from sciscirl.lab.report.layout import Picture, Section
from sciscirl.lab.report.runs import Run, judge_baselines, read_runs
from sciscirl.lab.report.tables import (
    view_comparison,
    view_cost,
    view_overview,
    view_published,
    view_runs,
    view_seeds,
)
from sciscirl.lab.report.views import (
    view_balance,
    view_challenges,
    view_confusion,
    view_contract,
    view_examples,
    view_reliability,
    view_rewards,
    view_trajectories,
)

_TEMPLATE: Final = Path(__file__).with_name("report.html.jinja")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """Options of a report.

    Attributes:
        runs: folders of training runs, evaluations and sweeps, in the order in which they are shown.
        out: the HTML file; its pictures go into a folder beside it, ``report_pictures`` for ``report.html``.
        release: the folder of a release, to show papers with the answers to them, and baselines beside the runs.
        n_examples: right, wrong and invalid answers of each run to show, this many of each.
        title: of the page.

    Raises:
        SciSciRLError: on construction, if there is no run, or a value is impossible.
    """

    runs: Annotated[tuple[Path, ...], Meta(min_length=1)]
    out: Path = Path("report.html")
    release: Path | None = None
    n_examples: Annotated[int, Meta(ge=0)] = 3
    title: str = "Runs on disruption and novelty"

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.out.suffix not in {".html", ".htm"}:
            msg = f"ReportConfig.out is {str(self.out)!r}, needs a name that ends in .html."
            raise SciSciRLError(msg)

    @property
    def pictures(self) -> Path:
        """The folder of the pictures."""
        return self.out.with_name(f"{self.out.stem}_pictures")


def write_report(config: ReportConfig) -> Path:
    """Write a report of runs in any state: finished, unfinished, not evaluated. Reads files only.

    The same folders give the same bytes. The page loads nothing from anywhere, and runs no script.

    Returns:
        The HTML file.

    Raises:
        RunFolderError: if a folder holds no run, or is given twice.
        ReleaseError: if ``release`` is no release, or was altered.
        SciSciRLError: if the folder of pictures holds something else.
        StorageError: if the report cannot be written.
    """
    _check_pictures(config.pictures)
    runs = read_runs(config.runs)
    runs += judge_baselines(runs, config.release) if config.release is not None else []
    sections = _name_pictures(make_sections(runs, config))
    html = render_report(sections, config.title)
    with atomic_folder(config.pictures, overwrite=True) as folder:
        for section in sections:
            for picture in section.pictures:
                (folder / f"{picture.name}.png").write_bytes(picture.png)
    with atomic_file(config.out) as path:
        path.write_text(html, "utf-8")
    return config.out


def make_sections(runs: Sequence[Run], config: ReportConfig) -> list[Section]:
    """Make every view of the runs that has something to show."""
    views: tuple[Callable[[Sequence[Run]], Section | None], ...] = (
        view_overview,
        view_seeds,
        view_runs,
        view_published,
        view_comparison,
        view_trajectories,
        view_balance,
        view_contract,
        view_reliability,
        view_confusion,
        view_challenges,
        view_rewards,
        partial(view_examples, n_each=config.n_examples, release=config.release),
        view_cost,
    )
    sections: list[Section] = []
    with progress_bar("plot views", total=len(views), unit="views") as advance:
        for view in views:
            section = view(runs)
            sections += [section] if section is not None else []
            advance(1)
    return sections


def render_report(sections: Sequence[Section], title: str) -> str:
    """Put sections into a page. Every text in them is escaped: abstracts and answers may hold markup of their own.

    Example:
        >>> page = render_report([Section("one", "One", "<script>alert(1)</script>")], "Runs")
        >>> "<script" in page, "&lt;script&gt;" in page
        (False, True)
    """
    return _template().render(sections=sections, title=title)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_TEMPLATE.read_text("utf-8"))


def _breakable(text: str) -> Markup:
    """Escape a text, let it break after the signs inside long names, and keep an interval in one piece."""
    value, bracket, interval = text.partition(" [")
    broken = Markup(re.sub(r"([_/])", r"\1<wbr>", str(escape(value))))
    return broken + Markup(' <span class="interval">[{}</span>').format(interval) if bracket else broken


def _name_pictures(sections: Sequence[Section]) -> list[Section]:
    """Number pictures whose names would be equal."""
    taken: set[str] = set()

    def rename(picture: Picture) -> Picture:
        name, number = picture.name, 1
        while name.lower() in taken:  # some file systems ignore case
            number += 1
            name = f"{picture.name}-{number}"
        taken.add(name.lower())
        return replace(picture, name=name)

    return [replace(section, pictures=[rename(picture) for picture in section.pictures]) for section in sections]


def _check_pictures(folder: Path) -> None:
    """Refuse to replace a folder that holds anything but pictures of a report."""
    if os.path.lexists(folder) and (
        folder.is_symlink() or not folder.is_dir() or not all(is_of_report(path) for path in folder.iterdir())
    ):
        msg = f"{folder} holds something other than pictures of a report. Choose another ReportConfig.out, or move it."
        raise SciSciRLError(msg)

"""Write a report of many runs: one HTML file that loads nothing else. Its first line says whether training helped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import jinja2
from markupsafe import Markup, escape
from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscidata.storage import atomic_file, check_file
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.report.answer import group_runs, view_answer
from sciscirl.lab.report.judged_files import list_change, read_change
from sciscirl.lab.report.layout import Section, leave_out_empty
from sciscirl.lab.report.own_metrics import view_kept
from sciscirl.lab.report.runs import RecordedRun, read_runs
from sciscirl.lab.report.verdict import is_trained
from sciscirl.lab.report.views import (
    view_answers,
    view_classes,
    view_cost,
    view_curves,
    view_examples,
    view_published,
    view_runs,
)
from sciscirl.task.papers import OwnTarget

_GENERATOR: Final = '<meta name="generator" content="sciscirl report">'
_TEMPLATE: Final = Path(__file__).with_name("report.html.jinja")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """Options of a report.

    Attributes:
        runs: folders of training runs, evaluations and sweeps, in the order in which they are shown.
        out: the HTML file.
        release: the folder of a release, to show papers with the answers to them, baselines beside the runs, and how
            high its labels let any model get.
        n_examples: right, wrong and invalid answers of each run to show, this many of each.
        title: of the page; None: the tasks of the runs.
        start: the evaluation of a model before training, wherever that was, or one for each of ``trained``: PATH,PATH.
        trained: the evaluation after training, or those of several seeds: PATH,PATH.

    Raises:
        SciSciRLError: on construction, if there is no run, or a value is impossible.
    """

    runs: tuple[Path, ...] = ()
    out: Path = Path("report.html")
    release: Path | None = None
    n_examples: Annotated[int, Meta(ge=0)] = 3
    title: str | None = None
    start: Annotated[str | None, Meta(title="PATH")] = None
    trained: Annotated[str | None, Meta(title="PATH")] = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.out.suffix not in {".html", ".htm"}:
            raise SciSciRLError(f"ReportConfig.out is {str(self.out)!r}, needs a name that ends in .html.")
        if not list_change(self.start, self.trained) and not self.runs:
            raise SciSciRLError(
                "ReportConfig.runs is empty, needs at least one folder. Or give start=PATH trained=PATH."
            )


def write_report(config: ReportConfig) -> Path:
    """Write a report of runs in any state: finished, unfinished, not evaluated. Reads files only.

    The same folders give the same bytes. The page loads nothing from anywhere, and runs no script.

    Returns:
        The HTML file.

    Raises:
        RunFolderError: if a folder is missing or given twice, or no folder holds a run that can be read.
        PredictionsError: if what ``start`` and ``trained`` name cannot be read, or is not of the same papers.
        ReleaseError: if ``release`` is no release, or was altered.
        ReleaseExistsError: if ``out`` is a file, but no report.
        StorageError: if the report cannot be written.
    """
    check = partial(check_file, config.out, _GENERATOR.encode(), "report")
    check()
    change = list_change(config.start, config.trained)
    runs = [*(read_change(change) if change else ()), *(read_runs(config.runs) if config.runs else ())]
    if twice := [run.name for run in runs if [one.name for one in runs].count(run.name) > 1]:
        raise RunFolderError(f"{twice[0]} is given twice. Give each once, or another name: trained=NAME=PATH.")
    # Keep the whole name of an own label: "part", without its ending, would mislead.
    targets = [run.target for run in runs if run.kind != "unreadable"]
    names = [target.label.name if type(target) is OwnTarget else target for target in targets]
    is_training = any(is_trained(run) for run in runs if run.kind not in {"baseline", "unreadable"})
    is_model = any(run.kind != "baseline" for run in runs)
    what = "Training" if is_training else "Evaluations" if is_model else "Baselines"
    title = config.title or f"{what} on {' and '.join(dict.fromkeys(names))}"
    html = render_report(make_sections(runs, config), title)
    with atomic_file(config.out, recheck=check) as path:
        path.write_text(html, "utf-8")
    return config.out


def make_sections(runs: Sequence[RecordedRun], config: ReportConfig) -> list[Section]:
    """Make every view of the runs that has something to show."""
    sections = [
        view_answer(group_runs(runs, config.release)),
        view_published(runs, config.release),
        view_kept({run.name: (run.facts, run.last.metrics) for run in runs if run.last}),
        *(view(runs) for view in (view_runs, view_cost, view_classes, view_curves, view_answers)),
        view_examples(runs, n_each=config.n_examples, release=config.release),
    ]
    tidied = (section for section in sections if section is not None)
    return [replace(one, tables=[leave_out_empty(table) for table in one.tables]) for one in tidied]


def render_report(sections: Sequence[Section], title: str) -> str:
    """Put sections into a page. Every text in them is escaped: abstracts and answers may hold markup of their own."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["breakable"] = _breakable
    return environment.from_string(_TEMPLATE.read_text("utf-8")).render(sections=sections, title=title)


def _breakable(text: str) -> Markup:
    """Escape a text, let it break after the signs inside long names, and keep an interval in one piece."""
    value, bracket, interval = text.partition(" [")
    broken = Markup(re.sub(r"([_/])", r"\1<wbr>", str(escape(value))))
    return broken + Markup(' <span class="interval">[{}</span>').format(interval) if bracket else broken

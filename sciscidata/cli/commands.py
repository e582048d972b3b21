"""The commands of ``sciscidata``: their parameters are their options, their docstrings their help.

``settings`` stands for settings of a build, ``arguments`` for those of a function.
"""

from __future__ import annotations

import dataclasses
import logging
import shlex
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import sciscidata
from sciscidata.errors import SciSciDataError
from sciscidata.options.commands import (
    GENERAL,
    InFile,
    Part,
    Program,
    Values,
    arguments,
    call,
    list_options,
    read_sections,
)
from sciscidata.options.parser import ARGUMENTS, REQUIRED, Option, translate
from sciscidata.terminal.messages import tell
from sciscidata.terminal.progress import StepLines

if TYPE_CHECKING:
    import sciscidata.changes.compare
    import sciscidata.cli.explain_page
    import sciscidata.cli.page
    import sciscidata.engines.config
    import sciscidata.engines.engine
    import sciscidata.hubs.fetch
    import sciscidata.hubs.publish
    import sciscidata.stages

logger = logging.getLogger(__name__)

_Config: TypeAlias = "sciscidata.BuildConfig"
_Engine: TypeAlias = "partial[sciscidata.engines.config.EngineConfig]"
_PARQUET: Final = "Parquet file to write"
_API: Final = "openalex"
#: What the help of a command says that goes on where it was stopped.
GOES_ON: Final = "A run that was stopped goes on where it ended."


def build(
    config: Annotated[_Config, settings("all")],
    *,
    dry_run: bool = False,
    print_config: bool = False,
    from_manifest: Path | None = None,
    verbose: bool = False,
) -> None:
    """Read works, score and label them, and write a release.

    Args:
        dry_run: say what would be read, which classes are likely, and what it takes in time and dollars.
        print_config: print the settings of this run as a file for --config, and end.
        from_manifest: release, or its manifest.json, to repeat; it names no paths, so flags name those of its source.
        verbose: print facts of the source, removed works by class, and the SHA-256 of every file, too.

    Shown:
        --source --input --works --citations --exports --sciscinet --snapshot --corpus --labelled --label --email
        --n-train --n-test --seed --balance --window-years --novelty --dry-run --out --overwrite

    Example:
        sciscidata build --input works.jsonl.gz --n-train 300 --n-test 30 --out slices/mine
    """
    from sciscidata import pipeline
    from sciscidata.cli.summary import print_lines, print_release

    if print_config:
        from sciscidata.cli.repeat_run import render_toml

        print_lines(render_toml(config).splitlines())
        return
    if dry_run:
        from sciscidata.cli.dry_run import describe_plan

        print_lines(describe_plan(config))
        return
    start = time.monotonic()
    release = pipeline.build(config)
    print_release(release, time.monotonic() - start, verbose=verbose)
    if from_manifest is not None:
        from sciscidata.cli.repeat_run import compare_lines

        print_lines([compare_lines(release, from_manifest)])


def background(
    config: Annotated[
        _Config,
        settings(
            "ingested corpus novelty",
            without="texts recompute score min_pairs unique_pairs undefined_pairs",
            writes=_PARQUET,
        ),
    ],
    engine: _Engine,
) -> None:
    """Save the null model of novelty of a whole corpus, for `build --background`.

    Shown:
        --source --input --works --citations --exports --sciscinet --snapshot --corpus --null --n-shuffles
        --novelty-seed --engine --out --overwrite

    Example:
        sciscidata background --snapshot openalex --out field.parquet
    """
    from sciscidata.cli.summary import print_background
    from sciscidata.errors import ConfigError
    from sciscidata.pipeline import write_background

    start = time.monotonic()
    if config.novelty is None or config.background is not None:
        setting = "novelty = false" if config.novelty is None else f"background = {config.background}"
        raise ConfigError(
            f"{setting} has no effect: this command makes a null model of the source's own works. Leave it out."
        )
    with _open(config, engine) as places:
        table = write_background(config.source, config.out, config.novelty, **places)
    print_background(table, time.monotonic() - start)


def ingest(
    config: Annotated[_Config, settings("ingested", without="recompute", writes="folder of the corpus to write")],
    stage: Annotated[partial[Any], arguments(sciscidata.stages.ingest, "texts", "keep_authors")],
    engine: _Engine,
) -> None:
    """Read a whole source once into a corpus on disk. A run that was stopped goes on where it ended.

    Given a newer snapshot, or newer records, it reads only what is new or changed into the same folder.

    Shown:
        --source --input --works --citations --tables-preset --id --year --citing --cited --exports --sciscinet
        --snapshot --n-works --texts --keep-authors --corrupt --n-workers --engine --out --overwrite

    Example:
        sciscidata ingest --snapshot openalex --out corpora/openalex
    """
    from sciscidata.cli.summary import measured, print_corpus

    with measured(), _open(config, engine) as places:
        stage(config.source, config.out, **places)
        print_corpus(config.out)
    _log_next("diagnose {}  (what may be wrong with these data)", "cd {} --out cd.parquet", path=config.out)


def graph(config: Annotated[_Config, settings("", "cache_dir", of_corpus=True)], *, citers: bool = False) -> None:
    """Build the citation graph of a corpus. A run that was stopped goes on where it ended.

    Args:
        citers: keep who cites each work too, so that `explain` answers at once; 4 bytes a citation.

    Example:
        sciscidata graph corpora/openalex
    """
    from sciscidata.cli.summary import measured, print_graph, print_lines
    from sciscidata.corpus.folder import open_corpus_graph
    from sciscidata.graph.citers import write_citers
    from sciscidata.graph.graph import graph_folder
    from sciscidata.stages import warn_of_graph

    folder = _corpus(config)
    with measured():
        opened = open_corpus_graph(folder, cache_dir=config.cache_dir)
        warn_of_graph(opened, folder)
        print_graph(opened, graph_folder(opened))
        if citers:
            print_lines([f"citers: {write_citers(opened)}"])
    _log_next("cd {} --out cd.parquet", path=folder)


def cd(
    config: Annotated[_Config, settings("cd", of_corpus=True, writes=_PARQUET)],
    stage: Annotated[partial[Path], arguments(sciscidata.stages.write_cd_index, "shard")],
    engine: _Engine,
) -> None:
    """Score every work of a corpus by its CD index. A run that was stopped goes on where it ended.

    Shown:
        --out --window-years --window --time --compat --same-year --family --shard --engine --overwrite

    Example:
        sciscidata cd corpora/openalex --window-years 5 --out cd.parquet
    """
    # The first window of --window 5 10 has its columns without a name at their ends already.
    further = tuple(window for window in config.cd.windows if window != config.cd.window_years)
    _score(partial(stage, config=dataclasses.replace(config.cd, windows=further)), config, engine)


def null_cd(
    config: Annotated[_Config, settings("cd", without="family di_l", of_corpus=True, writes=_PARQUET)],
    stage: Annotated[partial[Path], arguments(sciscidata.stages.write_null_cd_index, "null", "n_draws", "seed")],
    engine: _Engine,
) -> None:
    """Compare the CD index of every work of a corpus with that of rewired citations.

    Shown:
        --out --null --n-draws --seed --window-years --compat --engine --overwrite

    Example:
        sciscidata null-cd corpora/openalex --n-draws 100 --out null.parquet
    """
    _score(partial(stage, config=config.cd), config, engine)


def sweep(
    config: Annotated[_Config, settings("", of_corpus=True, writes=_PARQUET)],
    stage: Annotated[
        partial[Path], arguments(sciscidata.stages.write_cd_sweep, "windows", "conventions", "n_draws", "seed")
    ],
    engine: _Engine,
) -> None:
    """Score every work of a corpus by its CD index in many windows and conventions, and draw it.

    A run that was stopped goes on where it ended.

    Shown:
        --out --window --convention --n-draws --seed --engine --overwrite

    Example:
        sciscidata sweep corpora/openalex --window 3 5 10 all --convention default crossdi --out sweep.parquet
    """
    _score(stage, config, engine, draws=True)


def novelty(
    config: Annotated[
        _Config, settings("novelty", "out background cache_dir overwrite", of_corpus=True, writes=_PARQUET)
    ],
    engine: _Engine,
) -> None:
    """Score every work of a corpus by its venue pairs. A run that was stopped goes on where it ended.

    Shown:
        --out --null --n-shuffles --novelty-seed --novelty-compat --score --years --background --engine --overwrite

    Example:
        sciscidata novelty corpora/openalex --out novelty.parquet
    """
    from sciscidata.stages import write_atypicality

    _score(partial(write_atypicality, config=config.novelty, background=config.background), config, engine)


def tasks(
    path: Path, work: Annotated[partial[list[str]], arguments(sciscidata.engines.engine.do_listed, "run")]
) -> None:
    """List the tasks of a stage that `--engine list` has left, or do one of them.

    Args:
        path: where it lies.

    Example:
        sciscidata tasks corpora/openalex/cache/cd-1f6d.tasks --run 17
    """
    from sciscidata.cli.summary import print_lines

    print_lines(work(path))


def export(
    config: Annotated[
        _Config,
        settings(
            "ingested corpus cd novelty thresholds label", "out novelty background cache_dir", writes="folder to write"
        ),
    ],
    engine: _Engine,
) -> None:
    """Label every work of a source, instead of drawing some of them.

    Shown:
        --source --input --works --citations --exports --sciscinet --snapshot --corpus --window-years --preset --novelty
        --background --engine --out

    Example:
        sciscidata export --corpus corpora/openalex --out labelled
    """
    from sciscidata.cli.summary import measured, print_labelled
    from sciscidata.pipeline import export_labelled

    with measured(), _open(config, engine) as places:
        print_labelled(export_labelled(config, engine=places["engine"]), config.out)


def score(
    config: Annotated[
        _Config,
        settings(
            "ingested corpus api cd novelty thresholds",
            "out ids id_column background cache_dir overwrite",
            without="family di_l windows time",
            writes="CSV or Parquet file to write",
        ),
    ],
    *,
    prior: str = "corpus",
    dry_run: bool = False,
) -> None:
    """Score the works of a list of ids: one row each, in its order. A run that was stopped goes on where it ended.

    Args:
        prior: whose works label confidence rests on: corpus, shipped, or a file of `sciscidata cd`.
        dry_run: say what would be read or asked, and what it costs.

    Shown:
        --ids --id-column --source --corpus --input --works --citations --sciscinet --snapshot --email --api-key
        --max-cost-usd --window-years --background --prior --dry-run --out --overwrite

    Example:
        sciscidata score --ids dois.csv --corpus corpora/openalex --out scores.csv
    """
    from sciscidata.by_id.write_scores import describe_plan, write_id_scores
    from sciscidata.cli.summary import measured, print_lines

    if dry_run:
        print_lines(describe_plan(config))
        return
    with measured():
        print_lines(write_id_scores(config, prior))


def verify(path: Path) -> None:
    """Check that a release, corpus, graph, export, file of scores or background is whole.

    Args:
        path: where it lies.

    Example:
        sciscidata verify slices/mine
    """
    from sciscidata.cli.summary import print_verified
    from sciscidata.release import verify as release

    print_verified(release.verify(path))


def describe(
    path: Path,
    page: Annotated[
        partial[None], arguments(sciscidata.cli.page.describe_path, "html", "overwrite", "methods", "verbose")
    ],
) -> None:
    """Print what a release, corpus, graph, file of scores or background holds.

    Args:
        path: where it lies.

    Example:
        sciscidata describe slices/mine --html mine.html
    """
    page(path)


def compare(
    a: Path,
    b: Path,
    find: Annotated[
        partial[sciscidata.changes.compare.Comparison],
        arguments(sciscidata.changes.compare.compare, "conventions", "windows", "out", "overwrite", "cache_dir"),
    ],
    *,
    picture: Path | None = None,
) -> None:
    """Say what changed between two releases, corpora or files of scores. Labels that moved have a cause each.

    Args:
        a: a release, a corpus, or a file of CD indices.
        b: another one of the same kind; or the same corpus, with two conventions or windows.
        picture: file to draw labels and causes into: PNG, SVG or PDF. None: no picture.

    Example:
        sciscidata compare slices/october slices/november --out changes.parquet
    """
    from sciscidata import plots
    from sciscidata.cli.summary import measured, print_comparison
    from sciscidata.plots.figure import check_picture
    from sciscidata.storage import refuse_input

    if picture is not None:
        refuse_input(picture, "--picture", (a, b))
        check_picture(picture)
    with measured():
        found = find(a, b)
        if picture is not None:
            plots.plot_changes(found.changes, path=picture)
        out = find.keywords.get("out")
        print_comparison(found, None if out is None else Path(out), picture)


def explain(
    config: Annotated[_Config, settings("cd thresholds api", "background", of_corpus=True)],
    work: str,
    show: Annotated[
        partial[None],
        arguments(
            sciscidata.cli.explain_page.explain_path, "scores", "pairs", "html", "overwrite", "dry_run", "cache_dir"
        ),
    ],
) -> None:
    """Explain the CD index of one work of a corpus, a graph or a release: the papers behind it, and how sure it is.

    `openalex` in place of a corpus asks the API for the work and the papers around it.

    Args:
        work: its work_id, its own id, an OpenAlex id or address, or its DOI.

    Shown:
        --html --overwrite --scores --pairs --background --window-years --compat --preset --dry-run --api-key
        --max-cost-usd

    Example:
        sciscidata explain corpora/openalex 10.1038/s41586-019-1797-8 --html paper.html
    """
    show(None if isinstance(config.source, sciscidata.OpenAlexConfig) else _corpus(config), work, config)


def diagnose(
    config: Annotated[_Config, settings("", "cache_dir", of_corpus=True)], *, picture: Path | None = None
) -> None:
    """Count what makes the scores of a corpus wrong: swapped citations, lost references, merged works.

    Args:
        picture: file to draw the checks into: PNG, SVG or PDF. None: no picture.

    Shown:
        --picture --cache-dir

    Example:
        sciscidata diagnose corpora/openalex --picture checks.png
    """
    from sciscidata.cli.summary import print_lines
    from sciscidata.corpus.folder import scan_corpus
    from sciscidata.diagnostics.diagnose import diagnose as check
    from sciscidata.diagnostics.picture import plot_diagnostics
    from sciscidata.plots.figure import check_picture

    if picture is not None:
        check_picture(picture)
    folder = _corpus(config)
    works, citations, _ = scan_corpus(folder)
    table = check(works, citations, cache_dir=config.cache_dir)
    print_lines(f"{level:8} {text}" for level, text in table.select("level", "text").rows())
    if picture is not None:
        plot_diagnostics(table, picture, title=folder.name)
    _log_next("diagnose {} --picture checks.png", "cd {} --out cd.parquet", path=folder)


def publish(
    path: Path,
    send: Annotated[
        partial[sciscidata.hubs.publish.Published],
        arguments(sciscidata.hubs.publish.publish, "to", "creators", "private", "dry_run"),
    ],
) -> None:
    """Send a release to the Hugging Face Hub or a folder. A run that was stopped goes on where it ended.

    Args:
        path: where it lies.

    Example:
        sciscidata publish slices/mine --to hf:ada/slices --dry-run
    """
    from sciscidata.cli.summary import print_published

    print_published(send(path))


def fetch(address: str, get: Annotated[partial[Path], arguments(sciscidata.hubs.fetch.fetch, "out")]) -> None:
    """Fetch a release from the Hugging Face Hub and verify it. A run that was stopped goes on where it ended.

    Args:
        address: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.

    Example:
        sciscidata fetch hf:ada/slices@v1 --out slices/ada
    """
    verify(get(address))


def settings(
    sections: str, top: str = "out cache_dir overwrite", *, without: str = "", of_corpus: bool = False, writes: str = ""
) -> Part:
    """Stand for settings that come from flags and from the file of ``--config``: a BuildConfig.

    Args:
        sections: of the file: their names, "ingested" for all sources that can be a corpus, "all" for all of them and
            all settings outside.
        top: those outside all sections, beside the source.
        without: names that have no flag here.
        of_corpus: the source is the corpus that the command names, which has the cache too.
        writes: what ``--out`` names, without which the command cannot run; "": a release.
    """

    def list_own() -> list[Option]:
        import msgspec

        from sciscidata.cli.build_options import INGESTED, SECTIONS, SOURCES, list_settings
        from sciscidata.options.checks import Hint

        groups: dict[str, Collection[str]] = {"all": ("", *SECTIONS), "ingested": INGESTED}
        known = {one for name in sections.split() for one in groups.get(name, (name,))}
        changes: dict[str, dict[str, Any]] = {}
        if of_corpus:
            text = "what `sciscidata ingest` has made"
            changes["corpus.folder"] = {"flag": "CORPUS", "text": text, "title": GENERAL}
            changes[".cache_dir"] = {"default": "CORPUS/cache"}
        elif sections != "all":
            asks = {"openalex"} if "api" in known else set[str]()
            some = Hint(Literal[*(name for name in SOURCES if name in known | asks)])
            changes[".source"] = {"hint": some, "default": None}
            if "ids" in top.split():
                changes[".ids"] = {"default": REQUIRED, "text": "file of DOIs or OpenAlex ids; - is standard input"}
                changes[".background"] = {"text": "saved null model to score novelty against. None: novelty is null."}
        if writes:
            changes[".out"] = {"text": writes, "default": REQUIRED}
        named = {f".{name}" for name in top.split()} | {"corpus.folder" if of_corpus else ".source"}
        file = Hint(Annotated[Path, msgspec.Meta(title="FILE")])
        text = "TOML file of settings, which flags go over"
        return [
            Option("", ARGUMENTS, "config", "--config", file, None, text, GENERAL),
            *(
                dataclasses.replace(option, **changes.get(option.key, {}))
                for option in list_settings()
                if (option.section in known and option.name not in without.split()) or option.key in named
            ),
        ]

    def make(values: Values, in_file: InFile) -> _Config:
        """Put the flags over the settings file, and note in ``in_file`` which settings are left of the file."""
        from sciscidata.cli.build_options import merge, read_toml, resolve

        flags: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            section, dot, name = key.partition(".")
            if dot:
                flags.setdefault(section, {})[name] = value
        file = read_toml(Path(values["config"])) if "config" in values else {}
        in_file |= {(section, name) for section, one in file.items() for name in one}
        in_file -= {(section, name) for section, one in flags.items() for name in one}
        typed = merge(file, flags)
        if "from_manifest" in values:
            from sciscidata.cli.repeat_run import check_files, read_release_settings

            path = Path(values["from_manifest"])
            config = resolve(merge(read_release_settings(path, typed), typed), typed)
            check_files(config, path)
            return config
        base = {"": {"cache_dir": str(Path(flags["corpus"]["folder"]) / "cache")}} if of_corpus else {}
        if of_corpus and "api" in sections.split() and _is_api(flags["corpus"]["folder"]):
            base, typed = {"": {"source": _API}}, {name: one for name, one in typed.items() if name != "corpus"}
        return resolve(merge(base, typed))

    return Part(list_own, make)


def _score(stage: Callable[..., Path], config: _Config, engine: _Engine, *, draws: bool = False) -> None:
    """Score the corpus that a command names into the file of ``--out``, and print what it holds."""
    from sciscidata.cli.summary import measured, print_lines, print_result

    with measured(), _open(config, engine) as places:
        file = stage(_corpus(config), config.out, **places)
        print_result(file)
        picture = file.with_suffix(".png")
        if draws and picture.exists():  # there is none if no work has an index
            print_lines([f"picture: {picture}"])
    if not draws:
        _log_next("describe {} --html scores.html  (these scores on one page, for a browser)", path=config.out)


@contextmanager
def _open(config: _Config, named: _Engine) -> Generator[dict[str, Any]]:
    """Connect to the engine that flags name, if any; with where a stage keeps things, it is among its arguments."""
    from sciscidata.engines.engine import engine

    with engine(**named.keywords) if named.keywords else nullcontext() as runner:
        yield {"engine": runner, "cache_dir": config.cache_dir, "overwrite": config.overwrite}


def _is_api(corpus: str | Path) -> bool:
    """Whether the word in place of a corpus stands for the API: a folder of that name goes first."""
    return str(corpus) == _API and not Path(corpus).exists()


def _corpus(config: _Config) -> Path:
    """Return the corpus that the command names; it is a source like any other."""
    return Path(config.source.folder)  # pyright: ignore[reportAttributeAccessIssue]


def _log_next(*lines: str, path: Path) -> None:
    """Say what to type next; on standard error, because standard output has the facts."""
    for word, line in zip(("next", "then"), lines, strict=False):
        logger.info("%s: sciscidata %s", word, line.format(shlex.quote(str(path))))


class _Program(Program):
    """The commands, which log with the flags that were typed."""

    _corpus = "CORPUS"

    def run(self, words: Sequence[str]) -> int:
        """Run a command; without one, list them all on standard error."""
        if not words:
            tell(self.render())
            return 2
        return super().run(words)

    def call(self, name: str, words: Sequence[str], in_file: InFile) -> None:
        """Call a command, and write each log message as a line to standard error, with the flags of the command."""
        values = self.read(name, words)
        self._corpus = values.get("corpus.folder", "CORPUS")
        handler, formatter = StepLines(holds=name == build.__name__), logging.Formatter()
        handler.format = lambda record: self.name_flags(name, formatter.format(record), in_file)
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        logging.getLogger("matplotlib").setLevel(logging.WARNING)  # else it says that it listed the fonts, once
        try:
            call(self.commands[name], values, in_file)
        except SciSciDataError:
            handler.tell_held()
            raise
        finally:
            handler.end_line()

    def name_flags(self, name: str, message: str, in_file: InFile) -> str:
        """Name flags; those of ``build`` too where a command reads what others have made, with their options."""
        options = list_options(self.commands[name])
        if all(option.section == ARGUMENTS for option in options):
            own_names = {option.name for option in options}
            options += [option for option in list_options(build) if option.name not in own_names]
        message = message.replace("diagnose(works, citations)", f"sciscidata diagnose {self._corpus}")
        return translate(message, options, in_file)

    def about_interrupt(self, words: Sequence[str]) -> str:
        """Say what has become of a command that was interrupted."""
        command = self.commands.get(words[0]) if words else None
        said = " ".join(read_sections(command)[""].split()) if command else ""
        return "the same command goes on" if GOES_ON in said else "nothing was released"


_COMMANDS: Final = (
    *(build, background, ingest, graph, cd, null_cd, sweep, novelty, tasks, export, score),
    *(verify, describe, explain, compare, diagnose, publish, fetch),
)
PROGRAM: Final = _Program(
    "sciscidata",
    "Labels for scientific impact, from the citation record.",
    sciscidata.__version__,
    {command.__name__.replace("_", "-"): command for command in _COMMANDS},
)

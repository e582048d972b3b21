"""The ladder of a model on a Tinker server: zero-shot, supervised, by reward, and both, on one release.

Dev makes every choice. Test is looked at when all training is over, once for each row and seed.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.storage.sums import remove_sealed
from sciscidata.terminal.messages import align_columns, printable
from sciscidata.terminal.shares import percent
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES, evaluate_baselines
from sciscirl.lab.analysis.compare import CompareConfig, Comparison, compare_predictions, list_asked
from sciscirl.lab.analysis.result_file import RESULT_END, save_result
from sciscirl.lab.dry_run import estimate_usage
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.evaluation.results import PREDICTIONS_FILE
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.final import FINALS, judge_finally
from sciscirl.lab.label_scoring import make_scoring
from sciscirl.lab.report.judged_files import read_named
from sciscirl.lab.report.layout import ABSENT, show_estimate
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.lab.studies.ladder_options import LadderOptions
from sciscirl.lab.studies.sweep import PlannedRun, check_papers, plan_sweep, run_sweep
from sciscirl.lab.studies.sweep_options import SweepOptions
from sciscirl.lab.sweep_folder import SWEEP_FILE, begin_sweep, check_sweep
from sciscirl.options import OF_EVALUATION, ModelOptions, ServerOptions, TaskOptions, resolve_preset, resolve_run
from sciscirl.runs.checkpoints import count_test_looks, is_over
from sciscirl.runs.folder import expand_home, locked_folder, refuse_release
from sciscirl.runs.logs import write_json
from sciscirl.runs.prices import Usage, say_price
from sciscirl.runs.record import RUN_FILE, describe_run
from sciscirl.runs.server_checks import check_server
from sciscirl.task.papers import CONTEXT, list_labels
from sciscirl.task.release import open_release

_log = logging.getLogger(__name__)
_RUNGS: Final = (
    "check the release, the key, and the server's models",
    "say the price of what is left",
    "train, judged by dev",
    "judge the baselines by test",
    "ask the untrained model about test",
    "choose a checkpoint of each run by dev, and judge it by test, once",
    "compare, and write the page and the result files",
)
#: What may change when a ladder goes on.
_FREE: Final = (
    "jobs", "base_url", "ttl_seconds", "wandb_project", "wandb_name", "out", "dry_run", "release",
    "behavior_if_log_dir_exists",
)  # fmt: skip
#: The rows of the untrained model, and how it is asked.
_UNTRAINED: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {"zero_shot": {}, "logprobs": {"answers": "logprobs", "prior_correction": "train"}}
)
#: What each row is compared with: the first that is there.
_REFERENCES: Final = ("at_publication", "words", "majority")
_TRAINING, _BASELINES = "training", "baselines"
_FINAL: Final = FINALS[0]
_NOTHING: Final = Usage(prefill=0, sample=0, train=0)


class _Ladder(NamedTuple):
    """What follows from the options."""

    options: LadderOptions
    sweep: SweepOptions
    runs: Sequence[PlannedRun]
    out: Path
    untrained: Sequence[str] = tuple(_UNTRAINED)  # the rows of the untrained model

    @property
    def release(self) -> Path:
        """The folder of the release."""
        return Path(self.options.release)

    def list_looks(self) -> Iterator[tuple[str, int | None, Path]]:
        """List what judges a model by test: its row, its seed, and the folder."""
        yield from ((name, None, self.out / name) for name in self.untrained)
        names = dict.fromkeys(run.name for run in self.runs)
        yield from ((name, run.seed, run.folder / _FINAL) for name in names for run in self.runs if run.name == name)


@dataclass(frozen=True, slots=True)
class LadderResult:
    """What ``run_ladder`` came to; ``n_looks`` at test are by run, ``steps`` that dev chose by row and seed."""

    comparison: Comparison
    page: Path
    steps: Mapping[str, Mapping[int, int]]
    n_looks: Mapping[str, int]


async def run_ladder(options: LadderOptions, confirm: Callable[[str], bool]) -> LadderResult:
    """Train and judge what is not there yet, then compare all rows on test.

    ``confirm`` is shown the price of what is left, and says whether to pay it. Writes ``ladder.html``,
    ``comparison.json``, and for each row and seed ``results/NAME.result.json``.

    Raises:
        ReleaseError: the release is missing, was altered, or has no development split.
        SciSciRLError: the server is down, refuses the key, or does not offer the model. Or the folder is in use or
            holds another ladder, the price is not confirmed, or a run has not ended: then test is not looked at.
    """
    ladder = _settle(options)
    with locked_folder(ladder.out, user="ladder", option="folder: out="):
        if (ladder.out / SWEEP_FILE).exists():
            check_sweep(ladder.out, _describe(ladder)["settings"], free=_FREE)
        check_papers(ladder.runs)
        _tell(1)
        price = price_ladder(ladder)
        if price.is_due:
            for model in dict.fromkeys(resolve_preset(run.options).model for run in ladder.runs):
                check_server(model, options.base_url)
            _tell(2)
            if not confirm(price.text):
                raise SciSciRLError("the price was not confirmed, so nothing was begun. To confirm it, add --yes.")
        begin_sweep(ladder.out, _describe(ladder), free=_FREE)
        _tell(3)
        await _train(ladder)
        _tell(4)
        evaluate_baselines(replace(_ask(ladder, "zero_shot"), out=ladder.out / _BASELINES))
        _tell(5)
        for name in ladder.untrained:
            if not _is_judged(ladder.out / name, clear=True):
                await evaluate_model(_ask(ladder, name))
        _tell(6)
        for number, run in enumerate(ladder.runs, 1):
            _log.info("look %d of %d: %s, seed %d", number, len(ladder.runs), run.name, run.seed)
            if not _is_judged(run.folder / _FINAL, clear=True):
                await judge_finally([run.folder], ladder.release, base_url=options.base_url, has_last=False)
        _tell(7)
        return _write_results(ladder)


def _tell(number: int) -> None:
    _log.info("rung %d of %d: %s", number, len(_RUNGS), _RUNGS[number - 1])


def _settle(options: LadderOptions) -> _Ladder:
    if options.eval_split is not None:
        raise SciSciRLError(
            f"LadderOptions.eval_split is {options.eval_split!r} and cannot be set: dev makes the choices of a ladder, "
            "and test is for its end. Leave it out."
        )
    out = expand_home(options.out)
    given: dict[str, Any] = {one.name: getattr(options, one.name) for one in fields(SweepOptions)}
    given |= {"eval_split": "dev", "out": (out / _TRAINING).as_posix(), "dry_run": False}
    sweep = SweepOptions(**given)
    runs = plan_sweep(sweep)  # what is wrong with the options is said before the release is read
    release = open_release(options.release)
    if lacking := [name for name in ("dev", "test") if name not in release.splits]:
        raise ReleaseError(
            f"{options.release} has no {lacking[0]} split: dev makes the choices of a ladder, and test is for its end. "
            "Build a release with both: sciscidata build ... --n-dev 500 --n-test 1000."
        )
    if not {*CONTEXT} & {*release.test.columns}:
        _log.warning(
            "%s does not say what its papers built on, so the baseline at_publication will see less than a reader "
            "could. Build it with --context.",
            options.release,
        )
    ladder = _Ladder(options, sweep, runs, out)
    subjects = {name: find_subject(_ask(ladder, name)) for name in _UNTRAINED}
    try:
        make_scoring(subjects["logprobs"].preset, None, tuple)
    except SciSciRLError:
        _log.warning("labels are not scored for preset %s, so the row logprobs is left out.", options.preset)
        return ladder._replace(untrained=("zero_shot",))
    return ladder


def _describe(ladder: _Ladder) -> dict[str, Any]:
    facts = describe_run(ladder.release, json.loads(json.dumps(asdict(ladder.options))))
    facts["settings"] |= facts["release"]
    return facts | {"runs": [run.folder.relative_to(ladder.out).as_posix() for run in ladder.runs]}


async def _train(ladder: _Ladder) -> None:
    if all(is_over(run.folder) for run in ladder.runs) and (ladder.out / _TRAINING / "sweep.csv").exists():
        return
    swept = await run_sweep(ladder.sweep)
    if swept.n_missing:
        problems = "".join(f"\n{name}: {problem}" for name, problem in swept.problems.items())
        raise SciSciRLError(
            f"{swept.n_missing:,} of {swept.n_runs:,} runs have not ended, so test was not looked at. The same command "
            f"goes on with them.{problems}"
        )


def _is_judged(folder: Path, *, clear: bool = False) -> bool:
    """Say whether an evaluation is there; ``clear`` removes the answers of one that was killed while it wrote."""
    if (folder / RUN_FILE).is_file():
        return True
    if clear and (folder / PREDICTIONS_FILE).exists():
        remove_sealed(folder / PREDICTIONS_FILE)
    return False


def _ask(ladder: _Ladder, name: str) -> EvaluationConfig:
    """Return how the untrained model is asked about test."""
    options, how = ladder.options, _UNTRAINED[name]
    kinds = (TaskOptions, ModelOptions, ServerOptions)
    shared: dict[str, Any] = {one.name: getattr(options, one.name) for kind in kinds for one in fields(kind)}
    del shared["ids"]  # of training
    if "answers" in how:
        del shared["max_tokens"]
    else:
        shared |= {name: getattr(options, own) for name, own in OF_EVALUATION.items()}
    preset = options.preset.partition(",")[0].strip()
    return EvaluationConfig(
        **{**shared, **how}, preset=preset, release=ladder.release, split="test", out=ladder.out / name
    )


class Price(NamedTuple):
    """What is left to pay, in words, and whether that is anything."""

    text: str
    is_due: bool


def price_ladder(ladder: _Ladder) -> Price:
    """Estimate what is left to pay, as dry runs do: every answer as long as it may be, no prompt cached."""
    n_test, first = open_release(ladder.release).test.height, resolve_preset(ladder.runs[0].options)
    estimates: dict[str, tuple[Usage, Usage]] = {}

    def estimate(name: str) -> tuple[Usage, Usage]:
        if name not in estimates:
            run = next(run for run in ladder.runs if run.name == name)
            alone: dict[str, Any] = {"dry_run": ladder.options.dry_run}
            alone |= {"load_checkpoint": None} if run.begins_from else {}
            estimates[name] = estimate_usage(resolve_run(replace(run.options, **alone)), n_test)
        return estimates[name]

    left: dict[str, tuple[int, int, Usage]] = {}
    for name in dict.fromkeys(run.name for run in ladder.runs):
        runs = [run for run in ladder.runs if run.name == name]
        n_runs = sum(not is_over(run.folder) for run in runs)
        n_looks = sum(not _is_judged(run.folder / _FINAL) for run in runs)
        training, look = estimate(name) if n_runs + n_looks else (_NOTHING, _NOTHING)
        left[name] = (n_runs, n_looks, _repeat(training, n_runs) + _repeat(look, n_looks))
    labels = list_labels(first.rules.target).values()
    for name in ladder.untrained:
        n_looks = int(not _is_judged(ladder.out / name))
        _, look = estimate(ladder.runs[0].name) if n_looks else (_NOTHING, _NOTHING)
        if "answers" in _UNTRAINED[name]:  # a prompt is read once with each answer, those of the prior too
            read = (look.prefill + look.sample) // (n_test * first.judging.eval_group_size)
            n_papers = n_test + _ask(ladder, name).n_prior
            look = Usage(prefill=read * n_papers * math.prod(map(len, labels)), sample=0, train=0)
        left[name] = (0, n_looks, look)
    rows = [["", "runs", "looks at test", "tokens read", "sampled", "trained on", "dollars"]]
    for name, (n_runs, n_looks, usage) in left.items():
        dollars = usage.dollars(first.model)
        rows.append(
            [printable(name), str(n_runs), str(n_looks)]
            + [f"{n:,}" for n in (usage.prefill, usage.sample, usage.train)]
            + [ABSENT if dollars is None else f"{dollars:.2f}"]
        )
    total = sum((usage for *_, usage in left.values()), _NOTHING)
    cost = (
        f"left to pay for {first.model}, if every answer is as long as it may be: {total.prefill:,} tokens read, "
        f"{total.sample:,} sampled, {total.train:,} trained on\ncost: {say_price(total, first.model)}"
    )
    return Price("\n".join([*align_columns(rows), cost]), any(n_runs + n_looks for n_runs, n_looks, _ in left.values()))


def _repeat(usage: Usage, times: int) -> Usage:
    return Usage(prefill=usage.prefill * times, sample=usage.sample * times, train=usage.train * times)


def render_ladder_plan(options: LadderOptions) -> str:
    """List the steps of a ladder, and what is left to pay, for a terminal; asks no server."""
    ladder = _settle(options)
    refuse_release(ladder.out, "folder: out=")
    if (ladder.out / SWEEP_FILE).exists():
        check_sweep(ladder.out, _describe(ladder)["settings"], free=_FREE)
    check_papers(ladder.runs)
    rungs = [f"rung {number} of {len(_RUNGS)}: {rung}" for number, rung in enumerate(_RUNGS, 1)]
    return "\n".join([*rungs, "", price_ladder(ladder).text])


def _write_results(ladder: _Ladder) -> LadderResult:
    looks = list(ladder.list_looks())
    judged = [(name, None, ladder.out / _BASELINES / name) for name in BASELINES]
    ways: dict[str, dict[int, pl.DataFrame]] = {}
    asked: dict[str, Mapping[str, Any]] = {}
    steps: dict[str, dict[int, int]] = {}
    ceiling: Mapping[str, float] | None = None
    for name, seed, folder in [one for one in judged if _is_judged(one[2])] + looks:
        ((table, facts, _),) = read_named([str(folder.absolute())]).values()
        ways.setdefault(name, {})[seed or 0] = table
        asked.setdefault(name, list_asked(facts["settings"]))
        ceiling = facts["ceiling"]
        if selected := facts["settings"].get("selected"):
            steps.setdefault(name, {})[seed or 0] = selected["step"]
        facts["settings"] |= {"row": name} | ({} if seed is None else {"seed": seed})
        place = re.sub(r"[^A-Za-z0-9_.+-]+", "-", name if seed is None else f"{name} seed{seed}")
        save_result(ladder.out / "results" / f"{place}{RESULT_END}", table, facts)
    reference = next(name for name in (*_REFERENCES, *ways) if name in ways)
    comparison = compare_predictions(ways, CompareConfig(reference=reference), asked, ceiling)
    write_json(ladder.out / "comparison.json", comparison.to_json())
    shown = (*(run.folder for run in ladder.runs), *(ladder.out / name for name in ladder.untrained))
    title = f"The ladder of {ladder.options.model}"
    page = write_report(ReportConfig(runs=shown, out=ladder.out / "ladder.html", release=ladder.release, title=title))
    n_looks = {f"{run.name}, seed {run.seed}": count_test_looks(run.folder) for run in ladder.runs}
    return LadderResult(comparison, page, steps, n_looks)


def render_ladder(result: LadderResult) -> str:
    """Write the table as the page of the ladder has it, what dev chose, and how often test was looked at."""
    comparison = result.comparison
    reference = comparison.config.reference
    minus = {pair.left: show_estimate(pair.differences["label_match"], signed=True) for pair in comparison.pairs}
    rows = [
        [printable(name), show_estimate(scores["label_match"]), minus.get(name, ""), comparison.saw.get(name, "")]
        for name, scores in comparison.scores.items()
    ]
    table = [f"| | accuracy | minus `{reference}` | knows |", "|---|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows]
    chosen = [
        f"{printable(name)}: {', '.join(f'{step:,} (seed {seed})' for seed, step in by_seed.items())}"
        for name, by_seed in result.steps.items()
    ]
    again = [f"{name} {n:,} times" for name, n in result.n_looks.items() if n > 1]
    top = (comparison.ceiling or {}).get("label_match", (comparison.ceiling or {}).get("accuracy"))
    over = "papers and, for trained rows of several seeds, seeds"
    return "\n".join(
        [
            *table,
            "",
            f"{comparison.n_papers:,} papers of test{'' if top is None else f', ceiling {top:.3f}'}; "
            f"{percent(comparison.config.level)} intervals over {over}",
            f"steps that dev chose (0: what the run began with): {'; '.join(chosen)}",
            f"test was looked at once for each row and seed{', but for ' if again else ''}{', '.join(again)}",
        ]
    )  # fmt: skip

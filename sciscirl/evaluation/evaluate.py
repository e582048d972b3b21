"""Evaluate a model, a checkpoint, or saved predictions in one split of a release.

First come the options (EvaluationConfig) and the two calls (``evaluate_model``, ``evaluate_predictions``). Then comes
which model is asked (Subject, from the options or a run folder). Last comes the result: metrics, files, a table for a
terminal. Baselines are in the lab.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import polars as pl
from msgspec import Meta

from sciscidata.errors import StorageError
from sciscidata.options.checks import PositiveInt, check_value
from sciscidata.storage import hash_file, real_path
from sciscidata.terminal.messages import align_columns, one_line, printable
from sciscirl.errors import SciSciRLError
from sciscirl.lab_parts import load_part
from sciscirl.metrics.bootstrap import bootstrap_intervals
from sciscirl.metrics.collapse import explain_doubt
from sciscirl.metrics.metrics import COMPARED, FEWEST, measure_predictions, relate_to_ceiling, tie_metrics
from sciscirl.metrics.predictions import find_target, read_predictions, write_predictions
from sciscirl.options import (
    OF_EVALUATION,
    AnswersBy,
    Precision,
    PriorCorrection,
    ServerOptions,
    TaskOptions,
    Threads,
    Weights,
    list_given,
    partial_of_preset,
    resolve_preset,
)
from sciscirl.presets import describe_rules, find_preset, recall_preset
from sciscirl.runs.folder import (
    RUN_FILE,
    describe_run,
    find_ceiling,
    find_eval_split,
    is_local,
    is_taught,
    list_evaluations,
    list_weights,
    locked_folder,
    name_facts,
    name_run,
    note_test_look,
    read_facts,
    refuse_release,
    write_json,
)
from sciscirl.runs.lineage import render_start, warn_of_other_release
from sciscirl.task.experiment import Preset, Temperature, TopP
from sciscirl.task.papers import (
    PAIRS,
    VOCABULARIES,
    EvalSplit,
    OwnTarget,
    Paper,
    PartName,
    choose_target,
    read_part,
    short_name,
)
from sciscirl.task.rules import TaskRules

if TYPE_CHECKING:
    from sciscirl.evaluation.evaluator import LabelEvaluator

PREDICTIONS_FILE: Final = "predictions.parquet"
METRICS_FILE: Final = "metrics.json"

_DEFAULT_OUT: Final = Path("evaluations/RELEASE/NAME")
#: What errors call the folder of an evaluation.
OUT_OPTION: Final = "folder: EvaluationConfig.out"
#: What options are called in a preset; some share their name with another number there.
_NAMES: Final = {**OF_EVALUATION, "batch_size": "", "seed": ""}
#: Options that a server does not take.
_LOCAL: Final = ("batch_size", "dtype", "n_threads")
#: Options that a server of messages does not take.
_NOT_IN_CHAT: Final = (
    *("run", "local_model", "checkpoint", "base_url", "renderer", "group_size", "max_paper_tokens"),
    *("prior_correction", *_LOCAL),
)


@partial_of_preset()
class EvaluationConfig(TaskOptions, ServerOptions):
    """Options of an evaluation.

    Attributes:
        release: the folder of a release; on the command line also hf:OWNER/NAME@REVISION.
        out: the folder of the result; RELEASE is the name of the release's folder, NAME that of the run, or of model
            and preset. Baselines go below it, or into evaluations/RELEASE. Another result is never replaced.
        split: of the release; held_out: training papers that the run did not train on. None: with a run, that of its
            own evaluations, else test.
        preset: prompt, contract, reward and how answers are sampled; None: those of the run, else baseline, greedy.
        model: the base model; None: the preset's.
        checkpoint: weights to sample from (tinker://...); None: the base model itself.
        local_model: a folder with a model or adapter to load into this process, without a server.
        run: the folder of a training run; its last checkpoint, preset, model and chat format are used.
        step: evaluate the checkpoint of this step of the run, instead of the last one; 0: what it began with, which
            is the base model, or on a server the weights of ``load_checkpoint``.
        renderer: the chat format; None: the model's own, without thinking.
        chat_url: an OpenAI-compatible server with the model, like http://127.0.0.1:8000/v1. It gets OPENAI_API_KEY.
            The same command goes on where it stopped.
        temperature: of sampling, 0 is greedy; None: that of the evaluations of the preset.
        top_p: of sampling, from the most probable tokens with this share; None: the preset's.
        n_papers: evaluate only so many papers, each class in its share; None: all.
        group_size: answers to each paper; None: the preset's.
        answers: sampled: the model writes its answer; logprobs: the probabilities of the labels in its place, and
            nothing is written. None: as the run was judged, else sampled.
        prior_correction: with logprobs: divide each label's probability by its mean over records without content
            (content_free) or over training papers (train); None: none.
        n_prior: over so many training papers, each class in its share.
        batch_size: prompts in one pass of a local model; None: as many as its completer takes.
        dtype: number format of a local model; None: as saved, or as its adapter was trained.
        n_threads: of PyTorch within one operation of a local model; None: as many as cores are at rest.
        seed: of the sampled answers of a local model, and of the random baseline; a server draws by itself.

    Raises:
        SciSciRLError: on construction, if values contradict each other or are impossible.
    """

    release: Path
    out: Path = _DEFAULT_OUT
    split: PartName | None = None
    preset: str | None = None
    model: str | None = None
    checkpoint: Weights | None = None
    local_model: Path | None = None
    run: Path | None = None
    step: Annotated[int, Meta(ge=0)] | None = None
    renderer: str | None = None
    chat_url: str | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    n_papers: PositiveInt | None = None
    group_size: PositiveInt | None = None
    answers: AnswersBy | None = None
    prior_correction: PriorCorrection | None = None
    n_prior: PositiveInt = 64
    batch_size: PositiveInt | None = None
    dtype: Precision | None = None
    n_threads: Threads | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        TaskOptions.__post_init__(self)
        if self.out == _DEFAULT_OUT:
            object.__setattr__(self, "out", self._default_out)
        is_on_server = self.checkpoint is not None or self.model is not None
        if is_on_server and (self.run is not None or self.local_model is not None):
            what = "run" if self.run is not None else "local_model"
            raise SciSciRLError(
                f"EvaluationConfig.{what} names the model. Leave it out, or leave out model=... and checkpoint=...."
            )
        if self.chat_url is not None:
            if self.model is None:
                raise SciSciRLError("EvaluationConfig.chat_url needs the name of the model on that server: model=....")
            strange = (*_NOT_IN_CHAT, *(["answers"] if self.answers == "logprobs" else []))
            _refuse_options(self, strange, "chat_url=... only sends messages")
        if self.step is not None and self.run is None:
            raise SciSciRLError(
                f"EvaluationConfig.step is {self.step}, but no run is given. Set run=... too, or leave it out."
            )
        if self.answers is not None or self.run is None:
            _check_answers(self, self.answers or "sampled")
        # An own label is in the release, which need not be here yet.
        if self.run is None and "target" not in list_given(self):
            resolve_preset(self, find_preset(self.preset or "baseline"), _NAMES)

    @property
    def _default_out(self) -> Path:
        home = _DEFAULT_OUT.parent.with_name(self.release.absolute().name)
        if (folder := self.run or self.local_model) is not None:
            return home / (folder.absolute().name + (f"-step{self.step}" if self.step is not None else ""))
        asked = self.checkpoint.partition("://")[2].replace("/", "-") if self.checkpoint else self.model
        return home / "-".join(filter(None, (asked and Path(asked).name, self.preset))) if asked else home

    @property
    def baselines_out(self) -> Path:
        """The folder below which the results of the baselines go: all of a release go to one place."""
        is_named = self.out == self._default_out and (self.run or self.local_model or self.checkpoint or self.model)
        return self.out.parent if is_named else self.out


def _refuse_options(config: EvaluationConfig, names: Iterable[str], reason: str) -> None:
    for name in names:
        if getattr(config, name) is not None:
            raise SciSciRLError(f"EvaluationConfig.{name} has no effect: {reason}. Leave it out.")


def _check_answers(config: EvaluationConfig, answers: AnswersBy) -> None:
    if answers == "sampled" and config.prior_correction is not None:
        raise SciSciRLError("EvaluationConfig.prior_correction has no effect on sampled answers. Set answers=logprobs.")
    if answers == "logprobs":
        _refuse_options(config, ("max_tokens", *OF_EVALUATION), "answers=logprobs samples nothing")


async def evaluate_model(
    config: EvaluationConfig, stated: Mapping[str, object] = MappingProxyType({})
) -> dict[str, float]:
    """Ask a model about every paper of a split.

    Writes ``predictions.parquet`` (PREDICTIONS), ``metrics.json`` and ``run.json`` into ``config.out``; ``stated`` is
    recorded there too. A run that is judged by test has that noted in its folder. The record says how often it was.

    Returns:
        The metrics of ``measure_predictions`` and the intervals of ``bootstrap_intervals``.

    Raises:
        ReleaseError: the release is missing or was altered.
        PromptError: a paper does not fit under the cap even without its abstract.
        SciSciRLError: the server is down, refuses the key, or does not offer the model or checkpoint. Or a local model
            cannot be loaded, or ``config.out`` cannot be written, is in use, or holds another result.
    """
    from sciscirl.envs.dataset import check_fit
    from sciscirl.evaluation.evaluator import LabelEvaluator
    from sciscirl.runs.chat_format import choose_renderer, make_renderer, warn_of_renderer
    from sciscirl.runs.server_checks import check_server

    check_unused(config.out)
    subject = find_subject(config)
    if config.chat_url is not None:
        return await load_part("evaluate_on_chat_server")(config, subject, stated)
    warn_of_other_release(subject.trained_on, config.release, config.run)
    preset, base = subject.preset, subject.preset.model
    if subject.local_model is not None:
        base = load_part("find_base_model")(subject.local_model)
    else:
        _refuse_options(config, _LOCAL, "the model is on a server, which decides")
        check_server(base, config.base_url, needs_training=False)
    split = config.split or subject.eval_split
    papers = read_asked(config, subject)
    renderer_name = subject.renderer_name or choose_renderer(base)
    warn_of_renderer(base, config.renderer)
    renderer = make_renderer(base, renderer_name)
    check_fit(papers, preset.rules, renderer)
    scoring = _find_scoring(config, subject)
    check_fit(scoring.prior_papers if scoring else (), preset.rules, renderer)
    rules = fit_rules(preset.rules, config.release)
    sampling: dict[str, Any] = {
        "max_tokens": preset.max_tokens,
        "temperature": preset.judging.eval_temperature,
        "top_p": preset.judging.eval_top_p,
        "group_size": preset.judging.eval_group_size,
    }
    more: dict[str, Any] = {"name": split, "adversarial": preset.adversarial, "scoring": scoring}
    evaluator = LabelEvaluator(papers, rules, renderer, **sampling, **more)
    evaluator.is_taught = bool((subject.weights or {}).get("is_taught"))
    settings: dict[str, Any] = {
        "model": base,
        "checkpoint": subject.checkpoint,
        "renderer": renderer_name,
        **({"local_model": str(subject.local_model)} if subject.local_model is not None else {}),
        **({} if scoring else sampling),
        "preset": preset.name,
        "trained_on": subject.trained_on,
        **describe_rules(preset.rules),
        "answers": "logprobs" if scoring else "sampled",
        "split": split,
        "n_papers": config.n_papers,
        **({"ids_sha256": hash_file(Path(config.ids))} if config.ids is not None else {}),
        **stated,
        **({"weights": subject.weights} if subject.weights else {}),
    }
    # Lock it before anything is asked: paid answers have a place, and no two evaluations share one.
    with locked_folder(config.out, user="evaluation", option=OUT_OPTION):
        check_unused(config.out)  # once more: another evaluation may have ended meanwhile
        if subject.local_model is not None:
            settings |= await load_part("ask_local_model")(evaluator, subject.local_model, config)
        else:
            await _ask_server(evaluator, subject, config.base_url)
        if evaluator.predictions is None:
            raise AssertionError("an evaluation that returned has predictions")
        if evaluator.prior:
            settings |= {"prior_correction": config.prior_correction, "prior": evaluator.prior}
        if config.run is not None and split == "test":
            looked = {"out": str(config.out), "step": config.step, "n_papers": len(papers)}
            settings["n_test_looks"] = note_test_look(config.run, **looked)
        return save_evaluation(evaluator.predictions, config, settings)


def evaluate_predictions(path: Path) -> dict[str, float]:
    """Recompute metrics and intervals from a predictions file: no release, no server."""
    return measure(read_predictions(path), find_ceiling(path))


def fit_rules(rules: TaskRules, release: Path) -> TaskRules:
    """Return the rules with the class counts of the training papers, if the reward needs them and no run has them."""
    if not rules.table.is_balanced or rules.class_counts:
        return rules
    return rules.fitted(read_part(release, "train", target=rules.target, with_chances=rules.is_weighed))


def check_unused(folder: Path, option: str = OUT_OPTION) -> None:
    """Refuse to overwrite a result: answers cost money, and a run folder says what the run was."""
    refuse_release(folder, option)
    if any((folder / name).exists() for name in (RUN_FILE, PREDICTIONS_FILE, METRICS_FILE)):
        raise SciSciRLError(f"{folder} holds a run or an evaluation already. Choose another {option}.")


def read_asked(config: EvaluationConfig, subject: Subject) -> list[Paper]:
    """Read the papers that a subject is asked about."""
    part, rules = config.split or subject.eval_split, subject.preset.rules
    asked: dict[str, Any] = {
        "n_papers": config.n_papers,
        "n_held_out": subject.n_held_out,
        "ids": config.ids,
    }
    return read_part(config.release, part, target=rules.target, with_chances=rules.is_weighed, **asked)


def _find_scoring(config: EvaluationConfig, subject: Subject) -> Any:  # noqa: ANN401 (LabelScoring of the lab)
    """Say how labels are scored; None: answers are sampled."""
    answers = config.answers or subject.answers
    _check_answers(config, answers)
    if answers == "sampled":
        return None
    target, n_held_out = subject.preset.rules.target, subject.n_held_out
    papers = partial(read_part, config.release, "train", target=target, n_papers=config.n_prior, n_held_out=n_held_out)
    return load_part("make_scoring")(subject.preset, config.prior_correction, papers)


async def _ask_server(evaluator: LabelEvaluator, subject: Subject, base_url: str | None) -> None:
    from sciscirl.runs.server_checks import open_sampling

    async with open_sampling(subject.preset.model, subject.checkpoint, base_url) as client:
        await evaluator(client)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The model that is asked, and how: from the options, or from what a run folder says about its run."""

    preset: Preset
    renderer_name: str | None
    checkpoint: str | None
    local_model: Path | None
    trained_on: str | None = None  # SHA-256 of the manifest of the release, if a run says it
    n_held_out: int = 0  # training papers that it kept out
    eval_split: EvalSplit = "test"  # by which it was judged
    answers: AnswersBy = "sampled"  # how it was judged
    weights: Mapping[str, object] | None = None  # of which run and step they are, if of one


def find_subject(config: EvaluationConfig) -> Subject:
    """Find preset, chat format and checkpoint, from the options or from a run folder (SciSciRLError)."""
    if config.run is None:
        preset = find_preset(config.preset or "baseline")
        subject = Subject(
            preset=preset if config.preset else preset.with_settings(eval_temperature=0.0),
            renderer_name=None,
            checkpoint=config.checkpoint,
            local_model=config.local_model,
        )
    else:
        subject = _read_run(config.run, config.step, config.release)
        if config.preset is not None and find_preset(config.preset).name != subject.preset.name:
            raise SciSciRLError(
                f"{config.run} was trained as {subject.preset.name}, not {config.preset}. "
                "Leave EvaluationConfig.preset out."
            )
    if (name := list_given(config).get("target")) is not None and config.run is not None:
        target, own = choose_target(name, config.release), subject.preset.rules.target
        if target != own:
            raise SciSciRLError(
                f"{config.run} was trained on {own}, not on {target}. Leave EvaluationConfig.target out."
            )
    return replace(
        subject,
        preset=resolve_preset(config, subject.preset, _NAMES),
        renderer_name=config.renderer or subject.renderer_name,
    )


_Count = Annotated[int, Meta(ge=-(10**9), le=10**9)]


class _Settings(msgspec.Struct):
    """The settings in run.json beside those of the preset that decide how the model of a run is asked."""

    name: str
    renderer: str | None
    n_held_out: _Count = 0
    load_checkpoint: str | None = None
    target: str | None = None
    own_label: dict[str, Any] | None = None
    answers: AnswersBy = "sampled"


def _read_run(folder: Path, step: int | None, release: Path) -> Subject:
    content = read_facts(folder)
    if content["settings"].get("target", "") is None:
        raise SciSciRLError(
            f"{folder} is a run of the cookbook on another environment, which does not say how to ask about papers. "
            "Leave EvaluationConfig.run out, and give preset=..., model=... and its checkpoint=...."
        )
    try:
        settings, is_here = msgspec.convert(content["settings"], _Settings), is_local(content["settings"])
        preset = recall_preset(content["settings"])
        trained_on = check_value(
            "the SHA-256 of its release", content["release"].get("manifest_sha256"), str, SciSciRLError
        )
    except (ValueError, LookupError, TypeError, SciSciRLError) as error:
        raise SciSciRLError(
            f"{name_facts(folder)} does not describe a training run ({one_line(error)}). Give the folder of another."
        ) from error
    if settings.target is not None:
        own_name = (settings.own_label or {}).get("name", settings.target)
        target = choose_target(PAIRS if settings.target == PAIRS else str(own_name), release)
        stated = (settings.own_label or {}).get("classes")
        if isinstance(target, OwnTarget) and [*target.label.classes] != stated:
            classes = ", ".join(target.label.classes)
            raise SciSciRLError(
                f"{folder} was trained on the classes {stated}, and {release} has {classes}. Give its own release."
            )
        preset = preset.with_settings(target=target)
    checkpoint = _find_weights(folder, step) if step else None
    local_model: Path | None = None
    if is_here:
        local_model, checkpoint = load_part("find_local_weights")(folder, content, step, checkpoint), None
    elif step is None:
        checkpoint = _find_weights(folder, None)
    elif step == 0 and (start := settings.load_checkpoint) is not None:
        checkpoint = start.replace("/weights/", "/sampler_weights/", 1)  # a run keeps both of each checkpoint
    return Subject(
        preset=preset,
        renderer_name=settings.renderer,
        checkpoint=checkpoint,
        local_model=local_model,
        trained_on=trained_on,
        n_held_out=settings.n_held_out,
        eval_split=find_eval_split(folder),
        answers=settings.answers,
        weights=_describe_weights(folder, content, step),
    )


def _describe_weights(folder: Path, facts: Mapping[str, Any], step: int | None) -> dict[str, object]:
    """Say of which run and step the weights are; of step 0, also what the run began with."""
    step = next(reversed(list_weights(folder)), None) if step is None else step
    start = render_start(facts.get("begun_from")) or "the base model"
    begun = {"begun_from": start} if step == 0 else {}
    return {"run": name_run(real_path(folder)), "step": step, **begun, "is_taught": is_taught(facts)}


def _find_weights(folder: Path, step: int | None) -> str:
    """Return the weights of a step of a run, or the last ones."""
    kept = list_weights(folder)
    if not kept and step is None:
        raise SciSciRLError(f"{folder} has no checkpoint to sample from yet. Wait for one, or resume the run.")
    wanted = next(reversed(kept)) if step is None else step
    if wanted not in kept:
        steps = ", ".join(map(str, kept)) or "no step"
        raise SciSciRLError(f"{folder} kept no weights at step {step}. It did at {steps}: choose one of these.")
    return kept[wanted]


def measure(predictions: pl.DataFrame, ceiling: Mapping[str, float] | None = None) -> dict[str, float]:
    """Compute metrics with intervals and the way to the ceiling, and tie rates if a paper has several answers."""
    metrics = measure_predictions(predictions) | bootstrap_intervals(predictions)
    metrics |= relate_to_ceiling(metrics, ceiling, find_target(predictions))
    if not {"openalex_id", "reward"} <= set(predictions.columns):
        return metrics
    groups = predictions.group_by("openalex_id", maintain_order=True).agg("reward")["reward"].to_list()
    return metrics | (tie_metrics(groups) if len(groups) < len(predictions) else {})


def save_evaluation(
    predictions: pl.DataFrame, config: EvaluationConfig, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Write predictions, metrics and settings into ``config.out``; return the metrics.

    Predictions may have cost money: if they cannot be written there, they are kept in a temporary folder.
    """
    facts = describe_run(config.release, settings)
    metrics = measure(predictions, facts["ceiling"])
    files = [config.out / name for name in (PREDICTIONS_FILE, RUN_FILE, METRICS_FILE)]
    new = [file for file in files if not file.exists()]
    try:
        write_predictions(predictions, files[0])
        write_json(files[1], facts)
        write_json(files[2], metrics)
    except StorageError as error:
        for file in new:  # so that the same command can be repeated
            file.unlink(missing_ok=True)
        try:
            rescued = Path(tempfile.mkdtemp(prefix="sciscirl-")) / PREDICTIONS_FILE
            write_predictions(predictions, rescued)
        except OSError:  # full too: the first error says what to mend
            raise error from None
        raise StorageError(
            f"{error} The answers are kept in {rescued}: sciscirl evaluate --from-predictions."
        ) from error
    return metrics


_OF_A_LABEL: Final = (
    "label_match", "ceiling/label_match", "way_to_ceiling/label_match",
    "macro_f1", "ceiling/macro_f1", "way_to_ceiling/macro_f1",
    "balanced_accuracy", "min_class_recall", "mcc", "forecast_brier", "recall/*",
)  # fmt: skip
#: The main metrics, in the order in which a table shows them; * stands for any label or flip.
_SHOWN: Final = (
    "n", *_OF_A_LABEL, "both_match",
    *(f"{short_name(column)}/{name}" for column in VOCABULARIES for name in _OF_A_LABEL),
    "parse_ok", "format_strict_ok", "invalid", "first/label_match", "flip/*", "flip_rate/*", "brier", "ece",
    *("reward", "reward_correctness", "reward_reasoning", "reward_adaptation"),
)  # fmt: skip


def render_metrics(results: Mapping[str, Mapping[str, float]]) -> str:
    """Draw the main metrics as a table for a terminal: one row for each metric, one column for each result."""
    names = [name for name in dict.fromkeys(chain(*results.values())) if not name.endswith(("/low", "/high"))]
    shown = [name for pattern in _SHOWN for name in names if fnmatchcase(name, pattern)]
    rows = [[name, *(_cell(metrics, name) for metrics in results.values())] for name in shown]
    table = align_columns([["", *map(printable, results)], *rows])
    fewest = min((metrics["n"] for metrics in results.values() if "n" in metrics), default=FEWEST)
    return "\n".join([*table, *([f"{fewest:,.0f} answers are too few to tell."] if fewest < FEWEST else [])])


def _cell(metrics: Mapping[str, float], name: str, digits: int = 4) -> str:
    if name not in metrics:
        return "-"
    if name == "n":
        return f"{metrics[name]:,.0f}"
    ends = [metrics[end] for end in (f"{name}/low", f"{name}/high") if end in metrics]
    shown = [f"{value:z.{digits}f}" for value in (metrics[name], *ends)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]" if ends else shown[0]


def render_end(run: Path) -> str:
    """Write the last evaluation of a training run in one line, and what is doubtful about it."""
    facts, evaluations = read_facts(run), list_evaluations(run, find_eval_split(run))
    if not evaluations:
        return "not evaluated"
    step, path = evaluations.popitem()
    metrics = measure(read_predictions(path), find_ceiling(path))
    # Below 0 the model is worse than a guess, and not on its way.
    related = [name for name in metrics if name.endswith("ceiling/macro_f1") and metrics[name] > 0]
    said = ", ".join(f"{name} {_cell(metrics, name, 3)}" for name in (*COMPARED, *related, "invalid"))
    doubt = explain_doubt(metrics, str(facts["settings"].get("contract", "")), is_taught=is_taught(facts))
    line = f"step {step:,}, {metrics['n']:,.0f} answers: {said}"
    return f"{line}; {doubt.rstrip('.')}" if doubt else line

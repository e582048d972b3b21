"""Which model is asked, and about which papers: from the options, or from what a run folder says of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sciscidata.options.checks import check_value
from sciscidata.storage import real_path
from sciscidata.terminal.messages import one_line
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import OPTION_NAMES, EvaluationConfig
from sciscirl.lab.models.adapter_files import find_local_weights
from sciscirl.options import AnswersBy, follow_release, list_given, resolve_preset
from sciscirl.presets import find_preset, recall_preset
from sciscirl.runs.checkpoints import list_weights
from sciscirl.runs.lineage import render_start
from sciscirl.runs.record import find_eval_split, is_local, is_taught, name_facts, name_run, read_facts
from sciscirl.task.experiment import Preset
from sciscirl.task.papers import PAIRS, OwnTarget, Paper
from sciscirl.task.release import EvalSplit, Part
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import choose_target


def fit_rules(rules: TaskRules, release: Path) -> TaskRules:
    """Return the rules with the class counts of the training papers, if the reward needs them and no run has them."""
    if not rules.table.is_balanced or rules.class_counts:
        return rules
    return rules.fitted(Part(release, "train").read(rules.target, with_chances=rules.is_weighed))


def read_asked(config: EvaluationConfig, subject: Subject) -> list[Paper]:
    """Read the papers that a subject is asked about."""
    split, rules = config.split or subject.eval_split, subject.preset.rules
    part = Part(config.release, split, subject.n_held_out, config.ids, config.n_papers)
    return part.read(rules.target, with_chances=rules.is_weighed)


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
        if config.preset and find_preset(config.preset).name != subject.preset.name:
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
    preset = resolve_preset(config, subject.preset, OPTION_NAMES)
    if config.run is None:
        preset = follow_release(preset, config.release)
    else:  # which is asked for what it learned
        preset = preset.with_settings(target=subject.preset.rules.target)
    return replace(
        subject,
        preset=preset,
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
        if isinstance(target, OwnTarget):  # another one is asked for as it was learned
            preset = preset.with_settings(target=target)
    checkpoint = _find_weights(folder, step) if step else None
    local_model: Path | None = None
    if is_here:
        local_model, checkpoint = find_local_weights(folder, content, step, checkpoint), None
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

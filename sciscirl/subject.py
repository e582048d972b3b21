"""What an evaluation judges: the options, and all that a run's folder says about itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sciscidata.storage.small_files import read_json
from sciscirl.adversarial_rewards import AdversarialRules
from sciscirl.errors import SciSciRLError
from sciscirl.experiments import Preset, choose_opponents, find_preset
from sciscirl.run_folder import RUN_FILE, find_adapter, find_checkpoint, list_weights
from sciscirl.task import Side
from sciscirl.task_rules import check_positive

#: What run.json says of a run, which decides how its model is asked.
_TEXTS: Final = ("name", "style", "contract", "model", "renderer")
_NUMBERS: Final = ("max_paper_tokens", "max_tokens", "temperature", "lora_rank", "learning_rate", "n_train")
_LARGEST: Final = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """What is judged, and on what.

    Attributes:
        release: the folder of a slice.
        side: of it.
        preset: whose prompt, contract, reward and length of answer apply; None: a run's own, else ``"baseline"``.
        model: the base model; else the preset's.
        checkpoint: weights to sample from (``tinker://...``); None: the base model as it is.
        local_model: a folder with a model, or an adapter, to load into this process; no server is asked.
        run: the folder of a training run: its last checkpoint, preset, model and chat format are taken.
        step: of the run: not its last checkpoint, but the one that has had so many steps.
        renderer: chat format; by default the model's own, without thinking.
        base_url: a Tinker server; else ``TINKER_BASE_URL``, else Tinker.
        temperature: of sampling; None: the preset's; 0 is greedy.
        max_tokens: of an answer; None: the preset's.
        n_papers: judge the first so many only.
        group_size: answers to each paper.
        challenger: of an adversarial preset: ``"rules"``, or a base model; None: the preset's, or the run's.
        judge: of an adversarial preset, a base model that judges reasoning in place of the rubric; likewise.
        out: folder of the result; a model's is never written over another.

    Raises:
        SciSciRLError: on construction, if values contradict each other or are impossible.
    """

    release: Path
    out: Path
    side: Side = "test"
    preset: str | None = None
    model: str | None = None
    checkpoint: str | None = None
    local_model: Path | None = None
    run: Path | None = None
    step: int | None = None
    renderer: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    n_papers: int | None = None
    group_size: int = 1
    challenger: str | None = None
    judge: str | None = None

    def __post_init__(self) -> None:
        if self.run is not None and (self.checkpoint is not None or self.model is not None):
            msg = (
                "a run says by itself which model and checkpoint it has. Leave --model and --checkpoint out, or --run."
            )
            raise SciSciRLError(msg)
        if self.step is not None and self.run is None:
            msg = f"step is {self.step}, of no run. Give --run too, or leave --step out."
            raise SciSciRLError(msg)
        if self.local_model is not None and (self.checkpoint is not None or self.model is not None):
            msg = "a local model is asked here, not on a server. Leave --model and --checkpoint out, or --local-model."
            raise SciSciRLError(msg)
        if self.checkpoint is not None:
            from sciscirl.server import check_weights  # loads the SDK, which judging a file need not

            check_weights(checkpoint=self.checkpoint)
        find_preset(self.preset or "baseline")
        check_positive(group_size=self.group_size)
        for name in ("max_tokens", "n_papers"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})
        if self.temperature is not None and not 0 <= self.temperature < float("inf"):
            msg = f"temperature is {self.temperature!r}, needs a number of at least 0."
            raise SciSciRLError(msg)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What exactly is asked: everything that a run's folder can say about it."""

    preset: Preset
    renderer_name: str | None
    checkpoint: str | None
    local_model: Path | None
    temperature: float
    trained_on: str | None = None  # SHA-256 of the manifest of the slice, where a run says it
    n_train: int | None = None  # training papers that a run used; None: all


def find_subject(config: EvaluationConfig) -> Subject:
    """Work out preset, chat format and checkpoint, from the options or from a run's folder.

    Raises:
        SciSciRLError: if the folder holds no run, one without a checkpoint to sample from, or one of another preset.
    """
    if config.run is None:
        preset = find_preset(config.preset or "baseline")
        subject = Subject(
            preset=preset,
            renderer_name=None,
            checkpoint=config.checkpoint,
            local_model=config.local_model,
            temperature=preset.temperature,
        )
    else:
        subject = _read_run(config.run, config.step)
        if config.preset not in {None, subject.preset.name}:
            msg = f"{config.run} was trained as {subject.preset.name}, not {config.preset}. Leave --preset out."
            raise SciSciRLError(msg)
    given = {"model": config.model, "max_tokens": config.max_tokens}
    preset = replace(
        subject.preset,
        adversarial=choose_opponents(subject.preset, config.challenger, config.judge),
        **{name: value for name, value in given.items() if value is not None},
    )
    return replace(
        subject,
        preset=preset,
        renderer_name=config.renderer or subject.renderer_name,
        temperature=subject.temperature if config.temperature is None else config.temperature,
    )


def _read_run(folder: Path, step: int | None) -> Subject:
    path = folder / RUN_FILE
    if not path.is_file():
        msg = f"{folder} is not the folder of a run: it has no {RUN_FILE}. Give the log_path of a training run."
        raise SciSciRLError(msg)
    try:
        facts: dict[str, Any] = read_json(path)
        _check_types(facts["settings"])
        settings, trained_on = facts["settings"], facts["release"]["manifest_sha256"]
        preset, is_local = find_preset(settings["name"]), settings.get("backend") == "peft"
        rules = replace(preset.rules, **{name: settings[name] for name in ("style", "contract", "max_paper_tokens")})
        names = ("model", "max_tokens", "temperature", "lora_rank", "learning_rate")
        preset = replace(preset, rules=rules, **{name: settings[name] for name in names})
        if "adversarial" in settings:
            preset = replace(preset, adversarial=AdversarialRules(**settings["adversarial"]))
        renderer = settings["renderer"]
        if not isinstance(trained_on, str):
            msg = "release.manifest_sha256 is no text"
            raise TypeError(msg)
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = f"{path} does not describe a training run ({type(error).__name__}: {error}). Give the folder of another."
        raise SciSciRLError(msg) from error
    weights = None if step is None else _find_weights(folder, step)
    return Subject(
        preset=preset,
        renderer_name=renderer,
        checkpoint=None if is_local else weights or _find_checkpoint(folder),
        local_model=(Path(weights) if weights else find_adapter(folder)) if is_local else None,
        temperature=preset.temperature,
        trained_on=trained_on,
        n_train=settings.get("n_train"),
    )


def _check_types(settings: dict[str, Any]) -> None:
    """Refuse settings of another kind than a run writes: they were read from a file.

    Raises:
        TypeError, LookupError: one is, or is not there.
    """
    for name in _TEXTS:
        if not isinstance(settings[name], str) and (name != "renderer" or settings[name] is not None):
            msg = f"settings.{name} is no text"
            raise TypeError(msg)
    for name in _NUMBERS:
        value = settings.get(name) if name == "n_train" else settings[name]
        is_known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
        if not is_known and (name != "n_train" or value is not None):
            msg = f"settings.{name} is no number"
            raise TypeError(msg)
        if name not in ("temperature", "learning_rate") and isinstance(value, float):
            msg = f"settings.{name} is no whole number"
            raise TypeError(msg)


def _find_checkpoint(folder: Path) -> str:
    checkpoint = find_checkpoint(folder, "sampler_path")
    if checkpoint is None or checkpoint.sampler_path is None:
        msg = f"{folder} has no checkpoint to sample from yet. Wait for one, or resume the run."
        raise SciSciRLError(msg)
    return checkpoint.sampler_path


def _find_weights(folder: Path, step: int) -> str:
    kept = list_weights(folder)
    if step not in kept:
        steps = ", ".join(str(kept_at) for kept_at in kept) or "none"
        msg = f"{folder} kept no weights at step {step}. It did at {steps}: choose one of these."
        raise SciSciRLError(msg)
    return kept[step]

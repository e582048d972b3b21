"""The options of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sciscidata.options.checks import PositiveInt
from sciscirl.errors import SciSciRLError
from sciscirl.options import (
    OF_EVALUATION,
    AnswersBy,
    AskedOptions,
    CheckpointOptions,
    ModelOptions,
    NumberFormat,
    PresetName,
    PriorCorrection,
    ServerOptions,
    TaskOptions,
    Threads,
    Weights,
    list_given,
    partial_of_preset,
    resolve_preset,
)
from sciscirl.presets import find_preset
from sciscirl.task.experiment import Temperature, TopP
from sciscirl.task.release import PartName

_DEFAULT_OUT: Final = Path("evaluations/RELEASE/NAME")
#: What options are called in a preset; some share their name with another number there.
OPTION_NAMES: Final = {**OF_EVALUATION, "batch_size": "", "seed": ""}
#: Options that a server does not take.
LOCAL_OPTIONS: Final = ("batch_size", "dtype", "n_threads")
#: Options that a server of messages does not take.
_NOT_IN_CHAT: Final = (
    *("run", "local_model", "checkpoint", "base_url", "renderer", "group_size", "max_paper_tokens"),
    *("prior_correction", *LOCAL_OPTIONS),
)


@partial_of_preset()
class EvaluationConfig(
    AskedOptions, TaskOptions, ModelOptions, ServerOptions, CheckpointOptions, PresetName, NumberFormat
):
    """Options of an evaluation.

    Attributes:
        out: the folder of the result; RELEASE is the name of the release's folder, NAME that of the run, or of model
            and preset. Baselines go below it, or into evaluations/RELEASE. Another result is never replaced.
        split: of the release; held_out: training papers that the run did not train on. None: with a run, that of its
            own evaluations, else test.
        preset: prompt, contract, reward and how answers are sampled; None: those of the run, else baseline, greedy.
        checkpoint: weights to sample from (tinker://...); None: the base model itself.
        local_model: a folder with a model or adapter to load into this process, without a server.
        run: the folder of a training run; its last checkpoint, preset, model and chat format are used.
        step: evaluate the checkpoint of this step of the run, instead of the last one; 0: what it began with, which
            is the base model, or on a server the weights of ``load_checkpoint``.
        chat_url: an OpenAI-compatible server with the model, like http://127.0.0.1:8000/v1. It gets OPENAI_API_KEY.
            The same command goes on where it stopped.
        temperature: of sampling, 0 is greedy; None: that of the evaluations of the preset.
        top_p: of sampling, from the most probable tokens with this share; None: the preset's.
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

    out: Path = _DEFAULT_OUT
    split: PartName | None = None
    checkpoint: Weights | None = None
    local_model: Path | None = None
    run: Path | None = None
    chat_url: str | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    group_size: PositiveInt | None = None
    answers: AnswersBy | None = None
    prior_correction: PriorCorrection | None = None
    n_prior: PositiveInt = 64
    batch_size: PositiveInt | None = None
    n_threads: Threads | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        TaskOptions.__post_init__(self)
        if self.out == _DEFAULT_OUT:
            object.__setattr__(self, "out", self._default_out)
        is_on_server = bool({"checkpoint", "model"} & list_given(self).keys())
        if is_on_server and (self.run is not None or self.local_model is not None):
            what = "run" if self.run is not None else "local_model"
            raise SciSciRLError(
                f"EvaluationConfig.{what} names the model. Leave it out, or leave out model=... and checkpoint=...."
            )
        if self.chat_url is not None:
            if not self.model:
                raise SciSciRLError("EvaluationConfig.chat_url needs the name of the model on that server: model=....")
            strange = (*_NOT_IN_CHAT, *(["answers"] if self.answers == "logprobs" else []))
            refuse_options(self, strange, "chat_url=... only sends messages")
        if self.step is not None and self.run is None:
            raise SciSciRLError(
                f"EvaluationConfig.step is {self.step}, but no run is given. Set run=... too, or leave it out."
            )
        if self.answers is not None or self.run is None:
            check_answers(self, self.answers or "sampled")
        # An own label is in the release, which need not be here yet.
        if self.run is None and "target" not in list_given(self):
            resolve_preset(self, find_preset(self.preset or "baseline"), OPTION_NAMES)

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


def refuse_options(config: EvaluationConfig, names: Iterable[str], reason: str) -> None:
    """Refuse options by name that are set and have no effect (SciSciRLError)."""
    for name in names:
        if getattr(config, name) is not None:
            raise SciSciRLError(f"EvaluationConfig.{name} has no effect: {reason}. Leave it out.")


def check_answers(config: EvaluationConfig, answers: AnswersBy) -> None:
    """Refuse options that do not suit how answers are found (SciSciRLError)."""
    if answers == "sampled" and config.prior_correction is not None:
        raise SciSciRLError("EvaluationConfig.prior_correction has no effect on sampled answers. Set answers=logprobs.")
    if answers == "logprobs":
        refuse_options(config, ("max_tokens", *OF_EVALUATION), "answers=logprobs samples nothing")

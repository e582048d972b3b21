"""The options of a reproducibility sweep: batch size, number format, threads, attention kernel, device."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from sciscidata.options.checks import PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.options import PluginFile, Threads, Weights
from sciscirl.presets import SamplingTemperature
from sciscirl.task.papers import SplitName
from sciscirl.task.registry import load_plugin

Dtype = Literal["float32", "bfloat16", "float16", "int8"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
#: The axes of the reference run again, and of another sweep's reference.
REPEAT: Final = "repeat"
ELSEWHERE: Final = "elsewhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """How a model is asked. None: not chosen, as on a server.

    ``"int8"`` rounds the weights of linear layers, by bitsandbytes on a GPU, by PyTorch's dynamic quantisation on a
    CPU. That rounds activations too, by the range of their whole batch.
    """

    batch_size: int = 1  # prompts in one pass; on a server, requests that wait for an answer at a time
    dtype: Dtype | None = None  # of weights and sums
    n_threads: int | None = None  # of PyTorch within one operation, on the CPU
    attention: Attention | None = None  # the kernel, as Transformers names it
    device: str | None = None  # as PyTorch names it


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """Which values are compared. The first of each make up the reference; then one value at a time is another.

    Attributes:
        batch_sizes: prompts in one pass, or requests at a time on a server.
        dtypes: number formats of a local model.
        thread_counts: threads of PyTorch, for a local model.
        attentions: attention kernels of a local model.
        devices: devices of a local model, as PyTorch names them.
        n_repeats: how often the reference is run again.
    """

    batch_sizes: Annotated[tuple[PositiveInt, ...], Meta(min_length=1)] = (1, 4, 16)
    dtypes: Annotated[tuple[Dtype, ...], Meta(min_length=1)] = get_args(Dtype)
    thread_counts: Annotated[tuple[Threads, ...], Meta(min_length=1)] = (1, 2)
    attentions: Annotated[tuple[Attention, ...], Meta(min_length=1)] = get_args(Attention)
    devices: Annotated[tuple[str, ...], Meta(min_length=1)] = ("cpu", "cuda")
    n_repeats: Annotated[int, Meta(ge=0)] = 2

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        for name in _AXES.values():
            values = getattr(self, name)
            if len(set(values)) < len(values):
                msg = f"Axes.{name} is {values!r}, needs each value once; the first is the reference's."
                raise SciSciRLError(msg)


#: The fields of Setting, and which of Axes has their values.
_AXES: Final = {
    "batch_size": "batch_sizes",
    "dtype": "dtypes",
    "n_threads": "thread_counts",
    "attention": "attentions",
    "device": "devices",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run of all prompts."""

    axis: str  # what differs from the reference (a field of Setting, REPEAT or ELSEWHERE), or "reference"
    value: str  # of that axis
    setting: Setting  # the complete one

    @property
    def name(self) -> str:
        """A name for its files."""
        return f"{self.axis}-{self.value}" if self.value else self.axis


def plan_cells(axes: Axes, *, on_server: bool = False) -> list[Cell]:
    """List the runs of a sweep, the reference first. On a server, only the batch size can be varied.

    Example:
        >>> [cell.name for cell in plan_cells(Axes(batch_sizes=(1, 8), n_repeats=1), on_server=True)]
        ['reference', 'repeat-1', 'batch_size-8']
    """
    values: dict[str, tuple[Any, ...]] = {
        field.name: getattr(axes, _AXES[field.name])
        for field in fields(Setting)
        if field.name == "batch_size" or not on_server
    }
    reference = Setting(**{name: choices[0] for name, choices in values.items()})
    cells = [Cell(axis="reference", value="", setting=reference)]
    cells += [Cell(axis=REPEAT, value=str(number), setting=reference) for number in range(1, axes.n_repeats + 1)]
    return cells + [
        Cell(axis=name, value=str(value), setting=replace(reference, **{name: value}))
        for name, choices in values.items()
        for value in choices[1:]
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproConfig:
    """Options of a sweep over settings.

    Attributes:
        release: the folder of a release.
        out: the folder of the sweep; a sweep that is there goes on, with the same options.
        local_model: a folder with a model to load into this process, without a server.
        model: a base model on a Tinker server.
        checkpoint: weights on that server (tinker://...).
        base_url: that server; None: TINKER_BASE_URL, else Tinker.
        preset: prompt, contract and length of answer.
        target: the labels that are asked for, also an own label of the release; None: the preset's.
        style: the prompt; None: the preset's.
        hide: fields of a paper that no prompt shows, such as abstract; None: the preset's.
        renderer: the chat format; None: the model's own, without thinking.
        split: of the release.
        n_papers: ask about so many papers, each class in its share.
        max_tokens: longest answer; None: the preset's.
        max_paper_tokens: cut the text of a paper to this many tokens; None: the preset's.
        temperature: of the sampled runs; every setting is also asked greedily.
        seed: of the sampled runs.
        axes: the settings.
        against: folders of sweeps of the same prompts made elsewhere, whose references are compared too.
        plugin: run this Python file first, which registers presets of your own.
    """

    release: Path
    out: Path
    local_model: Path | None = None
    model: str | None = None
    checkpoint: Weights | None = None
    base_url: str | None = None
    preset: str = "baseline"
    target: str | None = None
    style: str | None = None
    hide: tuple[str, ...] | None = None
    renderer: str | None = None
    split: SplitName = "test"
    n_papers: PositiveInt = 32
    max_tokens: PositiveInt | None = None
    max_paper_tokens: PositiveInt | None = None
    temperature: SamplingTemperature = 1.0
    seed: int = 0
    axes: Axes = field(default_factory=Axes)
    against: tuple[Path, ...] = ()
    plugin: PluginFile | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.plugin is not None:
            load_plugin(self.plugin)
        if (self.local_model is None) == (self.model is None):
            msg = "a sweep needs one model: set local_model=... (a folder) or model=... (a name on a server)."
            raise SciSciRLError(msg)
        if self.local_model is not None and (self.checkpoint is not None or self.base_url is not None):
            msg = "ReproConfig.local_model needs no server. Leave checkpoint=... and base_url=... out."
            raise SciSciRLError(msg)

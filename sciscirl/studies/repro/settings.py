"""Under what a model is asked, and which settings a sweep compares: nothing but data."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from sciscirl.errors import SciSciRLError

Dtype = Literal["float32", "bfloat16", "float16", "int8"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
#: The axis of the very same setting once more, and that of another sweep's reference.
REPEAT: Final = "repeat"
ELSEWHERE: Final = "elsewhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Under what a model is asked. What a client cannot choose, on a server, is None.

    Attributes:
        batch_size: prompts in one pass; on a server, requests that wait for an answer at a time.
        dtype: of weights and sums. ``"int8"`` rounds the weights of linear layers, by PyTorch's dynamic quantisation
            on a CPU (activations are rounded too, by the range of their whole batch), by bitsandbytes on a GPU.
        n_threads: of PyTorch within one operation, on the CPU.
        attention: the kernel, as Transformers names it.
        device: as PyTorch names it.
    """

    batch_size: int = 1
    dtype: Dtype | None = None
    n_threads: int | None = None
    attention: Attention | None = None
    device: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """Which values are compared. The first of each make up the reference; then one at a time is another.

    Attributes:
        batch_sizes: see Setting, as for the others.
        dtypes: likewise.
        thread_counts: likewise.
        attentions: likewise.
        devices: likewise.
        n_repeats: how often the reference is run again.

    Raises:
        SciSciRLError: on construction, if a list is empty, has something twice, or an impossible value.

    Example:
        >>> Axes(dtypes=("float8",))
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: dtypes has 'float8', needs some of float32, bfloat16, float16, int8.
    """

    batch_sizes: tuple[int, ...] = (1, 4, 16)
    dtypes: tuple[Dtype, ...] = get_args(Dtype)
    thread_counts: tuple[int, ...] = (1, 2)
    attentions: tuple[Attention, ...] = get_args(Attention)
    devices: tuple[str, ...] = ("cpu", "cuda")
    n_repeats: int = 2

    def __post_init__(self) -> None:
        for name, choices in (("dtypes", get_args(Dtype)), ("attentions", get_args(Attention))):
            for value in getattr(self, name):
                if value not in choices:
                    msg = f"{name} has {value!r}, needs some of {', '.join(choices)}."
                    raise SciSciRLError(msg)
        for name in _AXES.values():
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                msg = f"{name} is {values!r}, needs one value or more, each once; the first is the reference's."
                raise SciSciRLError(msg)
        if min(*self.batch_sizes, *self.thread_counts) < 1 or self.n_repeats < 0:
            msg = "batch sizes and thread counts need to be 1 or more, and repeats 0 or more."
            raise SciSciRLError(msg)
        if max(self.thread_counts) > _THREADS_MAX:
            msg = f"thread_counts has {max(self.thread_counts):,}, needs at most {_THREADS_MAX:,}."
            raise SciSciRLError(msg)


_THREADS_MAX: Final = 1024  # PyTorch starts as many as it is told to, and crashes where the system has no more
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
    """One run of all prompts.

    Attributes:
        axis: what is another than in the reference: a field of Setting, REPEAT or ELSEWHERE; ``"reference"`` itself.
        value: there.
        setting: all of it.
    """

    axis: str
    value: str
    setting: Setting

    @property
    def name(self) -> str:
        """A name for its files."""
        return f"{self.axis}-{self.value}" if self.value else self.axis


def plan_cells(axes: Axes, *, on_server: bool = False) -> list[Cell]:
    """List the runs of a sweep, the reference first.

    Args:
        axes: the values to compare.
        on_server: whether a server is asked, where only the number of requests at a time can be chosen.

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

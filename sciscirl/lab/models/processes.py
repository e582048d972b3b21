"""Several processes of one run, as ``accelerate launch`` starts them: the first one writes and speaks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

from sciscirl.errors import SciSciRLError

_Result = TypeVar("_Result")


def count_processes() -> int:
    """Count the processes that ``accelerate launch`` has started for this run."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def settle_processes() -> None:
    """Refuse several GPUs in one process (SciSciRLError). With several processes, only the first speaks."""
    n_gpus = torch.cuda.device_count()
    if count_processes() == 1:
        if n_gpus > 1:
            raise SciSciRLError(
                f"{n_gpus} GPUs are visible to one process, which trains on one. Start one for each: accelerate launch "
                f"--num_processes {n_gpus} -m sciscirl ... Or choose one GPU: CUDA_VISIBLE_DEVICES=0."
            )
        return
    if os.environ.get("RANK", "0") != "0":
        logging.getLogger("sciscirl").setLevel(logging.ERROR)
    if n_gpus == 0:
        from accelerate import PartialState

        PartialState(cpu=True).device = torch.device("cpu")  # a resumed run cannot load an optimizer onto its "cpu:0"


def is_first() -> bool:
    """Whether this is the process that writes: of several, the first."""
    from accelerate import PartialState

    return PartialState().is_main_process


def do_once(work: Callable[[], _Result]) -> _Result:
    """Do something in the first process alone. The others wait for it, and return its result, or leave with it."""
    from accelerate.utils import broadcast_object_list

    result: Any = None
    try:
        result = work() if is_first() else None
    except SystemExit as leaving:
        result = leaving
    (result,) = broadcast_object_list([result])
    if isinstance(result, SystemExit):
        raise result
    return result


def of_first(context: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Enter a context in the first process alone."""
    return context if is_first() else nullcontext()

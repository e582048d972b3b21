"""Arrays for tasks: too long for their arguments, so they lie beside the files that the tasks write."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sciscidata.storage import whole_when_done


def hash_array(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def hand_over(array: npt.NDArray[Any], path: Path) -> str:
    """Write an array for ``np.load``; its name has its SHA-256, so that no task takes one for another."""
    path = path.with_stem(f"{path.stem}-{hash_array(array)[:16]}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_when_done(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, array)
    return str(path.absolute())

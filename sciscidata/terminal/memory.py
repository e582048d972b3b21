"""Say in one line that memory is too short.

That is before Polars and LLVM load, which would abort, and when an error comes.

Also how often a command looks for garbage.
"""

from __future__ import annotations

import errno
import gc
import os
import re
from typing import Final

from sciscidata.errors import MemoryLimitError

_GB: Final = 1_000_000_000
#: Memory (MB) that Polars, LLVM and their threads take before any work is read: a base, and per processor.
_LEAST: Final = (("RLIMIT_AS", "addresses", "ulimit -v", 1_700, 130), ("RLIMIT_DATA", "data", "ulimit -d", 700, 60))
_MEASURED_PROCESSORS: Final = 4
_SHORT: Final = re.compile(
    r"can't start new thread|cannot allocate memory|failed to map segment|bad_alloc|out of memory|unable to allocate",
    re.IGNORECASE,
)


def check_limits() -> None:
    """Raise a MemoryLimitError where the packages cannot load: Rust and C++ would abort or wait forever."""
    try:
        import resource
    except ImportError:  # Windows
        return
    # Measured on four processors: on more, a sufficient limit must not be refused.
    n_processors = min(os.cpu_count() or 1, _MEASURED_PROCESSORS)
    for name, what, command, base, each in _LEAST:
        limit = resource.getrlimit(getattr(resource, name))[0]
        needed = (base + each * n_processors) * 1_000_000
        if limit != resource.RLIM_INFINITY and limit < needed:
            raise MemoryLimitError(
                f"this process may have {limit / _GB:.2f} GB of {what} ({command}), and needs {needed / _GB:.2f} GB "
                f"to load its packages. Raise the limit: {command} unlimited."
            )


def collect_garbage_rarely() -> None:
    """Search for garbage 70 times less often than Python does. In commands it takes up to a tenth of the start."""
    gc.set_threshold(50_000, 20, 50)


def about_memory(error: BaseException) -> str | None:
    """Say in one line that memory was too short, if an error or a cause says so; else None.

    Example:
        >>> about_memory(RuntimeError("can't start new thread"))
        "out of memory: can't start new thread. Close other programs, raise the limit (ulimit -v), or read fewer works."
        >>> about_memory(RuntimeError("no kernel")) is None
        True
    """
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return None
        is_short = isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        if is_short or (isinstance(cause, RuntimeError | OSError | ImportError) and _SHORT.search(str(cause))):
            reason = str(cause).partition("\n")[0].strip().rstrip(".") or type(cause).__name__
            remedy = "Close other programs, raise the limit (ulimit -v), or read fewer works."
            return f"out of memory: {reason}. {remedy}"
        cause = cause.__cause__ or cause.__context__
    return None

"""Every error that a user can cause. A message says what happened, what was given, what is needed, and the remedy."""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from typing import Any, Final

#: Part of messages: keeps one row of every work, the same one for any order of rows.
ONE_ROW_EACH: Final = ".sort(pl.all()).unique('work_id', keep='first', maintain_order=True)"


def how_to_install(*extras: str) -> str:
    """Say how to install extras of this project."""
    return (
        f'pip install ".[{",".join(extras)}]" in your copy of the repository '
        f"(python3 scripts/install.py {' '.join(extras)} if that made your environment)"
    )


class SciSciDataError(Exception):
    """Base class: catch this to catch every error a user's input can cause."""


class ConfigError(SciSciDataError, ValueError):
    """An option has an impossible value, or a configuration file has an unknown key."""


class SchemaMismatchError(SciSciDataError, TypeError):
    """A frame lacks a column that a stage reads, or holds it in another dtype."""


class InputNotFoundError(SciSciDataError, FileNotFoundError):
    """A named input file or folder does not exist, or a pattern matches nothing."""


class CorruptRecordError(SciSciDataError, ValueError):
    """A line of a record file is not an OpenAlex Work, and the caller asked for strict reading."""


class LabelMismatchError(SciSciDataError, ValueError):
    """A label in a file does not follow from its scores, or is no label."""


class EmptyInputError(SciSciDataError, ValueError):
    """A source was read to its end and held no work at all."""


class WorkIdError(SciSciDataError, ValueError):
    """A frame that holds one row per work names a work twice, without an id, or not at all."""


class NotEnoughWorksError(SciSciDataError, ValueError):
    """A class quota of a split asks for more works than are eligible; ``fits`` is a SplitConfig with sizes that fit."""

    def __init__(self, message: str, fits: Any = None) -> None:  # noqa: ANN401 (its class lies in a higher layer)
        super().__init__(message)
        self.fits = fits


class ReleaseExistsError(SciSciDataError, FileExistsError):
    """The output folder already holds something that this run would replace."""


class VerificationError(SciSciDataError, ValueError):
    """A release on disk does not match its manifest."""


class ChangedFileError(SciSciDataError, RuntimeError):
    """A file of a run is not what was written: it differs from SHA256SUMS, or is not in that list."""


class BackgroundError(SciSciDataError, ValueError):
    """A file is no table of venue pairs, or one of another format, or a damaged one."""


class StorageError(SciSciDataError, OSError):
    """The disk is full, or a folder cannot be written."""


class MemoryLimitError(SciSciDataError, MemoryError):
    """The system gives this process less memory than loading the packages takes."""


class UnsafeNameError(SciSciDataError, ValueError):
    """A file names another file outside its folder."""


class ApiError(SciSciDataError, RuntimeError):
    """OpenAlex refused a request, or kept failing.

    ``status`` is the last HTTP status, None if there was none. ``moved_to`` is the id of the work that an answer leads
    to, if it was merged into that.
    """

    def __init__(self, message: str, *, status: int | None = None, moved_to: str | None = None) -> None:
        super().__init__(message)
        self.status, self.moved_to = status, moved_to


class ApiKeyError(ApiError):
    """OpenAlex does not know the API key, or wants one for this request."""


class OfflineError(SciSciDataError, RuntimeError):
    """The network is forbidden, and the store does not hold the answer to a request."""


class ResumableError(SciSciDataError, RuntimeError):
    """A clean stop: everything paid for is kept, and the same command continues from here."""

    #: For the command line: EX_TEMPFAIL of sysexits.h, "try again later".
    exit_code: Final = 75


class DailyBudgetError(ResumableError):
    """The daily budget of OpenAlex is used up; ``resets_at`` says when it is full again."""

    def __init__(self, message: str, *, resets_at: datetime) -> None:
        super().__init__(message)
        self.resets_at = resets_at


class CostLimitError(ResumableError):
    """The next request would cost more than the caller allowed for this run."""


class HubError(ResumableError):
    """A hub refused what was asked, or kept failing; the same command goes on where it stopped."""


def import_extra(package: str, extra: str, why: str) -> Any:  # noqa: ANN401 (a module)
    """Import a package that only an extra installs; a ConfigError says who needs it, and how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(f"{why} needs {package} ({error}). Run {how_to_install(extra)}.") from error

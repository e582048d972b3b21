"""Every error a user can cause. Each message says what happened, what was found, what is needed, and the remedy."""

from __future__ import annotations


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


class EmptyInputError(SciSciDataError, ValueError):
    """A source was read to its end and held no work at all."""


class WorkIdError(SciSciDataError, ValueError):
    """A frame that holds one row per work names a work twice, without an id, or not at all."""


class NotEnoughWorksError(SciSciDataError, ValueError):
    """A class quota of a split asks for more works than are eligible."""


class ReleaseExistsError(SciSciDataError, FileExistsError):
    """The output folder already holds something that this run would replace."""


class VerificationError(SciSciDataError, ValueError):
    """A release on disk does not match its manifest."""


class StorageError(SciSciDataError, OSError):
    """The disk is full, or a folder cannot be written."""


class UnavailableError(SciSciDataError, NotImplementedError):
    """A named feature is not part of this version."""

"""What priors have in common: they are kept as JSON, and read again without losing a bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from sciscidata.errors import ConfigError
from sciscidata.storage.small_files import parse_json


class Prior:
    """A frozen dataclass of numbers that checks itself; ``made_by`` names the function that finds one."""

    __slots__ = ()
    made_by: ClassVar[str]

    def stated(self) -> dict[str, Any]:
        """Return it in JSON types, as manifests and files of scores state it."""
        return msgspec.to_builtins(self)

    def to_json(self) -> str:
        """Return it as one line of JSON, which loses no bit."""
        return json.dumps(self.stated())

    @classmethod
    def from_stated(cls, stated: Mapping[str, Any]) -> Self:
        """Read what ``stated`` gave; a ConfigError if it is something else."""
        try:
            return msgspec.convert(stated, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"no {cls.__name__} can be read: {error}. Make it with {cls.made_by}.") from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` gave; a ConfigError if it is something else."""
        name = cls.__name__
        try:
            stated = parse_json(text)
        except ValueError as error:
            raise ConfigError(f"no {name} can be read: {error}. Give what {name}.to_json returned.") from error
        return cls.from_stated(stated)

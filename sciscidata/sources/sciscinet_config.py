"""Which SciSciNet is meant: where it lies, which version it is, and whose scores to take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sciscidata.errors import ConfigError
from sciscidata.sources.sciscinet_layouts import LAYOUTS, Version


@dataclass(frozen=True, kw_only=True, slots=True)
class SciSciNetConfig:
    """Where SciSciNet lies, which version it is, and whose scores to take.

    Attributes:
        folder: a folder of its tables, or a URL that Polars scans (``hf://``, ``gs://``, ``s3://``).
        version: ``"v2"``: Parquet, 2025, ids of OpenAlex. ``"v1"``: tab-separated text, 2023, ids of Microsoft
            Academic Graph, no abstracts.
        texts: another folder or URL for titles and abstracts alone, which are published elsewhere than the rest; None
            looks for them in ``folder``.
        recompute: compute CD index and novelty from the references. False takes the published ``disruption`` and
            ``Atyp_*`` values.
        storage_options: for a store that wants credentials or settings; passed to Polars, never recorded. What is not
            given is taken from the environment.

    Raises:
        ConfigError: on construction, if a value has the wrong type or ``version`` is unknown.

    Example:
        >>> SciSciNetConfig(folder="sciscinet-v2").recompute
        False
    """

    folder: str
    version: Version = "v2"
    texts: str | None = None
    recompute: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Take paths too, and refuse what only looks like a folder or a truth value."""
        for name in ("folder", "texts"):
            value: Any = getattr(self, name)
            if isinstance(value, os.PathLike):
                value = os.fspath(value)
                object.__setattr__(self, name, value)
            if not (isinstance(value, str) and value) and not (name == "texts" and value is None):
                msg = f"SciSciNetConfig.{name} is {value!r}, needs a folder or a URL, for example 'sciscinet-v2'."
                raise ConfigError(msg)
        if self.version not in tuple(LAYOUTS):
            msg = f"SciSciNetConfig.version is {self.version!r}, needs one of: {', '.join(LAYOUTS)}."
            raise ConfigError(msg)
        if not isinstance(self.recompute, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"SciSciNetConfig.recompute is {self.recompute!r}, needs True or False."
            raise ConfigError(msg)

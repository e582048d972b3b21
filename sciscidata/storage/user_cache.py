"""The folder of the user where later runs find what earlier ones have kept."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def default_cache_dir() -> Path:
    """Return the folder for what later runs can use again: parsed records, citation graphs and answers of the API."""
    return Path(platformdirs.user_cache_dir("sciscidata"))

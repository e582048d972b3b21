"""While a run trains: what its server or its disk does to it, said in a line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
from tinker.lib.base_url import resolve_base_url

from sciscirl.run_folder import RESUME_HINT, disk_errors
from sciscirl.server import clear_errors

#: Between two looks at whether the server is there.
PERIOD_SECONDS: Final = 30.0
#: That an answer is waited for: a server at work may take its time.
_TIMEOUT_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def guarded_run(
    folder: Path, base_url: str | None = None, *, period_seconds: float = PERIOD_SECONDS
) -> AsyncGenerator[None]:
    """Turn what ends a run into one line, and warn of a server that is gone: the SDK asks it mutely, for hours.

    Args:
        folder: of the run.
        base_url: a Tinker server; else ``TINKER_BASE_URL``, else Tinker.
        period_seconds: between two looks at whether it is there.

    Raises:
        SciSciRLError: in place of the SDK's errors that a user can mend.
        StorageError: in place of those of the disk.
    """
    watch = asyncio.create_task(_watch(resolve_base_url(base_url), period_seconds))
    try:
        with disk_errors(folder), clear_errors(base_url, RESUME_HINT):
            yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)  # what went wrong with it is no matter of the run's


async def _watch(url: str, period_seconds: float) -> None:
    """Warn once of each outage, at the second look that finds nobody, and say when it is over."""
    n_missed = 0
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
        while True:
            await asyncio.sleep(period_seconds)
            try:
                await client.get(f"{url}/api/v1/healthz")
            except httpx.HTTPError as error:
                n_missed += 1
                if n_missed == 2:
                    _log.warning(
                        "no Tinker server answers at %s (%s). The SDK goes on asking, for up to two hours. To stop: "
                        "Ctrl-C; the run goes on from its last checkpoint with resume=True.",
                        url,
                        type(error).__name__,
                    )
            else:
                if n_missed >= 2:
                    _log.warning("the Tinker server at %s answers again.", url)
                n_missed = 0

"""Other versions of the SDK and the cookbook than those installed: SCISCI_COOKBOOK names them (``just cookbook``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sciscirl.tinker_server import TinkerServer

PACKAGES = os.environ.get("SCISCI_COOKBOOK", "").split()


def make_environment(server: TinkerServer, folder: Path) -> dict[str, str]:
    """Return the environment of a client of a server; other versions lie in ``folder``, before those installed."""
    if not PACKAGES:
        return server.environment
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PACKAGES]
    subprocess.run(pip, check=True)
    return server.environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    }

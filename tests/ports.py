"""Ports for servers that bind theirs a while after it was chosen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def choose_port() -> int:
    """Return a free port that no other program is given meanwhile: systems hand out ports above these only."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port

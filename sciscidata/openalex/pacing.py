"""A pace that all threads of a client share: evenly spaced, slower after a complaint, then slowly back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_SLOWEST: Final = 1 / 16  # of the full rate
_RECOVERY: Final = 1 / 100  # of the full rate, per answer


class Pacer:
    """Hands out moments to send a request at, never more than ``rate`` a second.

    Evenly spaced instead of in bursts: a server that counts per second sees no peak.

    Args:
        rate: requests per second at full pace.
        clock: seconds that only grow.

    Example:
        >>> pacer, waits = Pacer(4.0, clock=lambda: 0.0), []
        >>> for _ in range(3):
        ...     pacer.wait(waits.append)
        >>> waits
        [0.0, 0.25, 0.5]
    """

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._full_rate = self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock()
        self._slowed_at = float("-inf")

    def wait(self, sleep: Callable[[float], object]) -> None:
        """Take the next moment, and sleep until then."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._next)
            self._next = moment + 1 / self._rate
        sleep(moment - now)

    def slow_down(self, pause_s: float) -> None:
        """Halve the pace, and let nobody start within ``pause_s``: the server complained."""
        with self._lock:
            now = self._clock()
            # One crowded second answers every thread with the same complaint; it counts once.
            if now - self._slowed_at >= 1.0:
                self._slowed_at = now
                self._rate = max(self._rate / 2, self._full_rate * _SLOWEST)
            self._next = max(self._next, now + pause_s)

    def speed_up(self) -> None:
        """Note an answer without complaint: a hundredth of the way back to the full pace."""
        with self._lock:
            self._rate = min(self._full_rate, self._rate + self._full_rate * _RECOVERY)

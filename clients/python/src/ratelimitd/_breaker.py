from __future__ import annotations

import math
from collections.abc import Callable

SILENCE = 0.5
"""The seconds without any answer that, beside the failures in a row, must pass before requests
fail at once: calls with little time may fail together while others are answered."""


class Breaker:
    """Keeps a service that does not answer from using up the time of every call.

    After some failures in a row requests fail at once, and one request at a time probes whether
    the service is back. Time is an argument, in seconds of any one clock.
    """

    def __init__(
        self,
        *,
        max_failures: int,
        probe_interval: float,
        on_open: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._max_failures = max_failures
        self._probe_interval = probe_interval
        self._on_open, self._on_close = on_open, on_close
        self._failures = 0
        self._answered_at = -math.inf
        self._probe_at: float | None = None  # of the next probe; None: requests are made
        self._probing = False

    def admit(self, now: float) -> bool:
        """Whether a request may be made now.

        If so, one of ``answered``, ``failed`` and ``abandoned`` must follow.
        """
        if self._probe_at is None:
            return True
        if self._probing or now < self._probe_at:
            return False
        self._probing = True
        return True

    def answered(self, now: float) -> None:
        """Notes that the service answered a request, or some calls of one."""
        self._answered_at = now
        self._failures = 0
        self._probing = False
        if self._probe_at is not None:
            self._probe_at = None
            self._on_close()

    def failed(self, now: float) -> None:
        """Notes that the service did not answer a request."""
        self._probing = False
        self._failures += 1
        if self._probe_at is not None:
            self._probe_at = now + self._probe_interval
        elif self._failures >= self._max_failures and now - self._answered_at >= SILENCE:
            self._probe_at = now + self._probe_interval
            self._on_open()

    def abandoned(self) -> None:
        """Notes that a request ended without information about the service."""
        self._probing = False

from __future__ import annotations

import asyncio
import copy
import random
import time

from ._failure import Failure

_FIRST_WAIT = 0.05  # seconds: an instance that is restarted is back, or another has its address
_MAX_WAIT = 1.0


class Tries:
    """Counts the attempts at a call, until its time is over."""

    def __init__(self, retries: int, timeout: float) -> None:
        self._left = retries
        self._until = time.monotonic() + timeout
        self._wait = _FIRST_WAIT

    def copy(self) -> Tries:
        """Returns the same for another call of a batch: each gets as many attempts."""
        return copy.copy(self)

    def remaining(self) -> float:
        """Returns how many seconds the call has left."""
        return max(0.0, self._until - time.monotonic())

    async def again(self, failure: Failure) -> bool:
        """Waits until the next attempt; False if there is none, or the failure is permanent."""
        wait = self._wait_after(failure)
        if self._left == 0 or wait is None or wait >= self.remaining():
            return False
        self._left -= 1
        self._wait = min(2 * self._wait, _MAX_WAIT)
        await asyncio.sleep(wait)
        return True

    def _wait_after(self, failure: Failure) -> float | None:
        """As long as the service says, and a random bit longer, so that callers that failed
        together do not retry together."""
        if failure.kind == "connection":
            return random.uniform(self._wait / 2, self._wait)
        busy = failure.problem is not None and failure.problem.status == 503
        if (busy or failure.kind == "foreign") and failure.retry_after > 0:
            return random.uniform(failure.retry_after, 1.5 * failure.retry_after)
        return None

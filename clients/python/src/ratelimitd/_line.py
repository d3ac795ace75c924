"""Makes callers wait for room: those of one key take turns, and one of them asks at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal

MAX_CALLERS = 1000
"""The most callers of one key, including the one that asks."""
_MIN_PAUSE = 0.01  # seconds, after a denial without a wait: two calls competed for the last unit
_MAX_JITTER = 1.0  # seconds, which spread the retries of several processes

Reason = Literal["no room", "full"]


class _Caller:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.turn: asyncio.Future[Reason | None] = asyncio.get_running_loop().create_future()

    def wake(self, reason: Reason | None = None) -> None:
        if not self.turn.done():
            self.turn.set_result(reason)


class _Line:
    """The callers of one key: the first one asks."""

    def __init__(self) -> None:
        self.callers: list[_Caller] = []
        self.until = float("-inf")
        """Until then there is no room, as far as is known."""


class Lines:
    """The callers that wait, of one event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    async def run(
        self, key: str, within: float, ask: Callable[[], Awaitable[tuple[bool, float | None]]]
    ) -> Reason | None:
        """Calls ask, in turn with the callers of key, until it is done; else returns why not.

        ask returns whether it is done, and else the wait before the next call (None: no wait
        helps). "no room" is returned as soon as it is known that there is none within the caller's
        time.
        """
        caller = _Caller(time.monotonic() + within)
        line = self._lines.setdefault(key, _Line())
        if caller.deadline < line.until:
            return "no room"
        if len(line.callers) >= MAX_CALLERS:
            return "full"
        line.callers.append(caller)
        try:
            if len(line.callers) > 1:
                await asyncio.wait({caller.turn}, timeout=within)
                if not caller.turn.done():
                    return "no room"
                if reason := caller.turn.result():
                    return reason
            return await self._asks(line, caller, ask)
        finally:
            self._leave(key, line, caller)

    async def _asks(
        self,
        line: _Line,
        caller: _Caller,
        ask: Callable[[], Awaitable[tuple[bool, float | None]]],
    ) -> Reason | None:
        while True:
            done, wait = await ask()
            if done:
                return None
            if wait is None:
                return "no room"
            wait = max(wait, _MIN_PAUSE)
            until = time.monotonic() + wait
            if until > caller.deadline:
                return "no room"
            line.until = until
            for other in line.callers[1:]:
                if other.deadline < until:
                    other.wake("no room")
            jitter = min(wait / 10, _MAX_JITTER, (caller.deadline - until) / 2)
            await asyncio.sleep(wait + random.uniform(0, jitter))

    def _leave(self, key: str, line: _Line, caller: _Caller) -> None:
        first = line.callers[0] is caller
        line.callers.remove(caller)
        if not line.callers:
            del self._lines[key]
        elif first:
            line.until = float("-inf")
            line.callers[0].wake()

"""Batches calls that are made at the same time.

A lone call is sent at once. While some requests are in progress, further calls wait, and are sent
as one group as soon as a request is answered. Joiner decides which calls are sent together and
when; ``send`` sends a group.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from ._call import PreparedCall
from ._failure import Failure
from ._wire import Answer

MAX_CALLS = 1000  # of a request
_MAX_REQUESTS = 64  # the most in progress while earlier ones are late
_PATIENCE = 0.01  # seconds that calls wait for a request to come back before another one goes
_MAX_WAITING = 1 << 16  # calls: more would not be answered in time
_MAX_SIZE = (1 << 20) - 64  # bytes of a request's calls; a batch may have 1 MiB
# Bytes of a call that shares a request: a longer one is refused, and would spoil a batch.
_MAX_SHARED_SIZE = (64 << 10) - 64
# The most calls of one policy and identifier in a request, as the service decides them one after
# the other.
_MAX_ALIKE = 8


class Entry:
    """One attempt of a call. It is made within the event loop."""

    __slots__ = ("call", "group", "settled")

    def __init__(self, call: PreparedCall) -> None:
        self.call = call
        self.group: Group | None = None  # that it is sent with
        self.settled: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def settle(self, answer: Answer) -> None:
        if not self.settled.done():
            self.settled.set_result(answer)


class Group:
    """Calls that share a request."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.task: asyncio.Task[None] | None = None
        self.began = time.monotonic()
        for entry in entries:
            entry.group = self

    def is_over(self) -> bool:
        """Whether no caller waits for it any longer."""
        return all(entry.settled.done() for entry in self.entries)


class Joiner:
    def __init__(
        self,
        send: Callable[[Group], Awaitable[None]],
        abandoned: Callable[[Group], None],
        *,
        requests: int,
        joins: bool,
    ) -> None:
        """``send`` settles all entries of a group; ``abandoned`` is called with one that is ended
        as no caller waits for it any more. Further calls wait while ``requests`` are in
        progress."""
        self._send = send
        self._abandoned = abandoned
        self._requests = requests
        self._joins = joins
        self._waiting: dict[Entry, None] = {}  # in their order
        self._running: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._late: asyncio.TimerHandle | None = None
        self.closed = False

    def enter(self, entry: Entry) -> None:
        """Sends a call, alone or with others."""
        if self.closed:
            entry.settle(Failure("closed", "the client is closed", False))
        elif not self._joins:
            self.send_together([entry])
        elif len(self._waiting) >= _MAX_WAITING:
            entry.settle(Failure("full", "too many calls wait", False))
        else:
            self._waiting[entry] = None
            if self._under_way < self._requests:
                self._send_next()
            else:
                self._arm()

    def send_together(self, entries: Sequence[Entry]) -> None:
        """Sends calls as one request, for which no waiting call waits."""
        if self.closed:
            for entry in entries:
                self.enter(entry)  # which says so
        else:
            self._run(Group(entries))

    def leave(self, entry: Entry, why: Callable[[bool], Failure]) -> None:
        """Settles an entry whose caller no longer waits; ``why`` makes the failure of
        whether it was sent."""
        self._waiting.pop(entry, None)
        entry.settle(why(entry.group is not None))
        group = entry.group
        if group is not None and group.task is not None and group.is_over():
            group.task.cancel()
            self._abandoned(group)

    async def close(self) -> None:
        """Refuses further calls, and waits until all earlier ones have answers."""
        self.closed = True
        while self._running:
            await asyncio.wait(self._running)
        if self._late is not None:
            self._late.cancel()

    def _run(self, group: Group) -> asyncio.Task[None]:
        async def send() -> None:
            await self._send(group)

        group.task = asyncio.create_task(send())
        self._running.add(group.task)
        group.task.add_done_callback(self._running.discard)
        return group.task

    def _send_next(self) -> None:
        entries = self._gather()
        if entries:
            self._under_way += 1
            self._run(Group(entries)).add_done_callback(self._is_back)

    def _is_back(self, _: asyncio.Task[None]) -> None:
        self._under_way -= 1
        if self._under_way < self._requests:
            self._send_next()
        self._arm()

    def _arm(self) -> None:
        """Sends another request after a while without an answer."""
        if self._late is None and self._waiting:
            self._late = asyncio.get_running_loop().call_later(_PATIENCE, self._is_late)

    def _is_late(self) -> None:
        self._late = None
        if self._under_way < _MAX_REQUESTS:
            self._send_next()
        self._arm()

    def _gather(self) -> list[Entry]:
        """Takes the waiting calls that are sent together."""
        entries: list[Entry] = []
        alike: Counter[tuple[str, str]] = Counter()
        size = 0
        for entry in self._waiting:
            length = len(entry.call.operation) + 1
            long = length > _MAX_SHARED_SIZE
            if entries and (long or size + length > _MAX_SIZE):
                continue
            if any(alike[key] >= _MAX_ALIKE for key in entry.call.keys):
                continue
            entries.append(entry)
            size += length
            alike.update(entry.call.keys)
            if long or len(entries) == MAX_CALLS:
                break
        for entry in entries:
            del self._waiting[entry]
        return entries

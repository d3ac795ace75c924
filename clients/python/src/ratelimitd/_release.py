"""Gives back the units under concurrent limits of a request that has ended.

Units that can't be given back count until their hold ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ._aio import AsyncClient
from ._answer import Verdict
from ._errors import CallError
from ._limiter import Limiter
from ._sync import Client


class Release:
    """Gives back the units of a verdict, once, if it has any."""

    def __init__(self, client: Client, limits: Limiter[Any], verdict: Verdict) -> None:
        self._client, self._limits = client, limits
        self._receipt = _receipt_of(verdict)

    @property
    def needed(self) -> bool:
        """Whether there are units to release."""
        return self._receipt is not None

    def __call__(self) -> None:
        receipt, self._receipt = self._receipt, None
        if receipt is None:
            return
        try:
            self._client.refund(receipt)
        except CallError as error:
            self._limits.log_unreleased(error)


class AsyncRelease:
    """The same with an AsyncClient, even if the task that asks for it is cancelled."""

    def __init__(self, client: AsyncClient, limits: Limiter[Any], verdict: Verdict) -> None:
        self._client, self._limits = client, limits
        self._receipt = _receipt_of(verdict)

    async def __call__(self) -> None:
        if task := self._begin():
            await asyncio.shield(task)

    def from_threads(self) -> Callable[[], None]:
        """Returns a function that begins it on this event loop, from any thread."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            try:
                loop.call_soon_threadsafe(self._begin)
            except RuntimeError as error:  # the loop is closed
                self._limits.log_unreleased(error)

        return begin

    def _begin(self) -> asyncio.Task[None] | None:
        receipt, self._receipt = self._receipt, None
        if receipt is None:
            return None
        task = asyncio.create_task(self._refund(receipt))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return task

    async def _refund(self, receipt: str) -> None:
        try:
            await self._client.refund(receipt)
        except CallError as error:
            self._limits.log_unreleased(error)


_tasks: set[asyncio.Task[None]] = set()
"""Tasks that are under way: event loops have weak references to them alone."""


def _receipt_of(verdict: Verdict) -> str | None:
    return verdict.decision.release if verdict.decision else None

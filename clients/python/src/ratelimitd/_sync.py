from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from ._aio import AsyncClient
from ._call import Call, Confirm, Demand
from ._decision import Decision, Explanation
from ._errors import CallError
from ._options import Options

T = TypeVar("T")
_END_PATIENCE = 1.0  # seconds


class Client:
    """A client of one ratelimitd, or of several behind one address, for threads. Make one for a
    process.

    Calls go through an AsyncClient on an event loop in a thread of its own, so that those of all
    threads share requests, and each ends in its time. The thread begins with the first call; a
    process that is forked begins another.
    """

    def __init__(self, base_url: str, options: Options | None = None) -> None:
        """Makes a client of the service at base_url, such as ``http://127.0.0.1:8080``. It sends
        nothing yet."""
        self._base_url, self._options = base_url, options
        self._lock = threading.Lock()
        self._background = _Background(AsyncClient(base_url, options))
        _clients.add(self)

    def check(self, *demands: Demand) -> Decision:
        """Asks whether demands would be allowed now, and records nothing."""
        return self._run(lambda client: client.check(*demands))

    def record(self, *demands: Demand, idempotency_key: str | None = None) -> Decision:
        """Records demands, whatever the limits, and returns what remains."""
        return self._run(lambda client: client.record(*demands, idempotency_key=idempotency_key))

    def take(self, *demands: Demand, idempotency_key: str | None = None) -> Decision:
        """Checks and records demands as one step: all are recorded, or none is."""
        return self._run(lambda client: client.take(*demands, idempotency_key=idempotency_key))

    def reserve(self, *demands: Demand, hold: float) -> Decision:
        """Checks demands and, if they are allowed, holds their units for so many seconds.

        A ``settle`` of the decision's reservation makes them count; otherwise they are
        freed when the hold ends.
        """
        return self._run(lambda client: client.reserve(*demands, hold=hold))

    def settle(
        self, reservation: str, *, cost: int | None = None, idempotency_key: str | None = None
    ) -> Decision:
        """Records the units that a ``reserve`` holds, or the cost that its demands actually had.

        That is 0 or more. Unused units are freed, and more count whatever the limit: see
        ``over``. The first settlement is final.
        """
        return self._run(
            lambda client: client.settle(reservation, cost=cost, idempotency_key=idempotency_key)
        )

    def release(self, reservation: str) -> None:
        """Frees the units of a ``reserve`` at once. It raises as ``refund`` does."""
        self.refund(reservation)

    def wait(self, *demands: Demand, within: float) -> Decision:
        """Takes demands as soon as their limits allow, within so many seconds.

        It waits as long as a denial says, and a random bit longer, and takes again. Calls for the
        same policies and identifiers take in turn.

        It raises a NoRoomError as soon as it is known that there is no room in time or that no
        wait helps, and if 1000 calls already wait. Other errors are those of ``take``, and end
        the wait at once. Don't wait under a policy with ``count: all``: each attempt uses quota.
        """
        return self._run(lambda client: client.wait(*demands, within=within))

    def do(self, call: Call) -> Decision:
        """Makes one call. It raises a CallError. A denial is not an error."""
        return self._run(lambda client: client.do(call))

    @overload
    def batch(self, calls: Sequence[Call]) -> list[Decision | CallError]: ...
    @overload
    def batch(self, calls: Sequence[Call | Confirm]) -> Sequence[Decision | CallError | None]: ...

    def batch(self, calls: Sequence[Call | Confirm]) -> Sequence[Decision | CallError | None]:
        """Makes up to 1000 calls as one request, and returns the result of each, in their order;
        None: it is confirmed.

        An invalid call does not affect the others. Calls that share a policy and identifier are
        decided in their order.
        """
        return self._run(lambda client: client.batch(calls))

    def refund(self, receipt: str) -> None:
        """Gives back the units of receipt, once.

        It raises a NoReceiptError if there are none.
        """
        self._run(lambda client: client.refund(receipt))

    def confirm(self, receipt: str) -> None:
        """Confirms receipt's units: the code was entered.

        It counts once, however often it is called. It raises a NoReceiptError if the receipt was
        refunded or its window is over. While no ratelimitd answers it raises an error, whatever
        ``Options.on_unavailable`` says.
        """
        self._run(lambda client: client.confirm(receipt))

    def reset(self, policy: str, identifier: str) -> None:
        """Removes the counts of identifier under policy, on every instance within a second."""
        self._run(lambda client: client.reset(policy, identifier))

    def explain(self, policy: str, identifier: str) -> Explanation:
        """Returns why identifier would be allowed or denied now: every limit's state, and all else
        that decides."""
        return self._run(lambda client: client.explain(policy, identifier))

    @property
    def failed_open(self) -> int:
        """The number of calls that ``fail-open`` has allowed without a decision, in this process:
        a metric that should stay at 0."""
        return self._background.client.failed_open

    def close(self) -> None:
        """Waits until all earlier calls have answers, and closes connections. Further calls give
        a ClosedError."""
        self._run(lambda client: client.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, ask: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            self._background.begin()
        return self._background.run(ask)

    def _forget(self) -> None:
        """Makes the client ready in a forked process, which has no threads."""
        self._lock = threading.Lock()
        self._background = _Background(AsyncClient(self._base_url, self._options))


class _Background:
    """An AsyncClient, and a thread in which its event loop runs."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Starts the thread, if it does not run. It ends with this object, and does not keep the
        process alive."""
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="ratelimitd", daemon=True).start()
            weakref.finalize(self, _stop, loop, os.getpid())

    def run(self, ask: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Returns what ask returns in the thread."""
        assert self._loop is not None, "begin comes first"
        future = asyncio.run_coroutine_threadsafe(ask(self.client), self._loop)
        try:
            return future.result()
        except BaseException:  # such as KeyboardInterrupt
            future.cancel()
            raise


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_end())
    finally:
        loop.close()


async def _end() -> None:
    """Waits for the connections of a client that was not closed to close."""
    await asyncio.sleep(0)  # it begins
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=_END_PATIENCE)


def _stop(loop: asyncio.AbstractEventLoop, pid: int) -> None:
    if os.getpid() == pid and not loop.is_closed():  # in a fork, the loop is the parent's
        loop.call_soon_threadsafe(loop.stop)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget_all() -> None:
    for client in _clients:
        client._forget()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget_all)

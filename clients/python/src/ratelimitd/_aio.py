from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar, overload

from ._breaker import Breaker
from ._call import Call, Confirm, Demand, PreparedCall, validate_receipt
from ._callback import raised_by
from ._decision import Decision, DemandDecision, Explanation, Recorded
from ._errors import CallError, ErrorOp, NoRoomError, error_of, refused
from ._failure import Failure
from ._join import MAX_CALLS, Entry, Group, Joiner
from ._line import Lines
from ._options import MAX_SECONDS, Options, is_number
from ._retry import Tries
from ._trace import Trace, current_trace, trace_of
from ._transport import Reply, Transport
from ._wire import (
    Answer,
    Confirmed,
    UnreadableError,
    read_answer,
    read_explanation,
    read_line,
    read_problem,
    read_results,
)

T = TypeVar("T")
_LOG_INTERVAL = 1.0  # seconds


class AsyncClient:
    """A client of one ratelimitd, or of several behind one address. Make one for a process: it has
    connections of its own for each event loop."""

    def __init__(self, base_url: str, options: Options | None = None) -> None:
        """Makes a client of the service at base_url, such as ``http://127.0.0.1:8080``. It sends
        nothing yet."""
        self._options = o = options or Options()
        self._base_url = base_url
        self._first_transport: Transport | None = self._new_transport()
        """The transport of the first event loop. It is made here so that its errors are raised
        here."""
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}
        self._closed = False
        self._breaker = Breaker(
            max_failures=o.max_failures,
            probe_interval=o.probe_interval,
            on_open=lambda: o.logger.error(
                "ratelimitd does not answer: calls give what on_unavailable says"
            ),
            on_close=lambda: o.logger.info("ratelimitd answers again"),
        )
        self._failed_open = 0
        self._logged_at = float("-inf")

    async def check(self, *demands: Demand) -> Decision:
        """Asks whether demands would be allowed now, and records nothing."""
        return await self.do(Call("check", demands))

    async def record(self, *demands: Demand, idempotency_key: str | None = None) -> Decision:
        """Records demands, whatever the limits, and returns what remains."""
        return await self.do(Call("record", demands, idempotency_key=idempotency_key))

    async def take(self, *demands: Demand, idempotency_key: str | None = None) -> Decision:
        """Checks and records demands as one step: all are recorded, or none is."""
        return await self.do(Call("take", demands, idempotency_key=idempotency_key))

    async def reserve(self, *demands: Demand, hold: float) -> Decision:
        """Checks demands and, if they are allowed, holds their units for so many seconds.

        A ``settle`` of the decision's reservation makes them count, a ``release`` frees them;
        otherwise they are freed when the hold ends.
        """
        return await self.do(Call("check", demands, reserve=hold))

    async def settle(
        self, reservation: str, *, cost: int | None = None, idempotency_key: str | None = None
    ) -> Decision:
        """Records the units that a ``reserve`` holds, or the cost that its demands actually had.

        That is 0 or more. Unused units are freed, and more count whatever the limit: see
        ``over``. The first settlement is final.
        """
        call = Call("record", reservation=reservation, cost=cost, idempotency_key=idempotency_key)
        return await self.do(call)

    async def release(self, reservation: str) -> None:
        """Frees the units of a ``reserve`` at once. It raises as ``refund`` does."""
        await self.refund(reservation)

    async def wait(self, *demands: Demand, within: float) -> Decision:
        """Takes demands as soon as their limits allow, within so many seconds.

        It waits as long as a denial says, and a random bit longer, and takes again. Calls for the
        same policies and identifiers take in turn.

        It raises a NoRoomError as soon as it is known that there is no room in time or that no
        wait helps, and if 1000 calls already wait. Other errors are those of ``take``, and end
        the wait at once. Don't wait under a policy with ``count: all``: each attempt uses quota.
        """
        if not is_number(within, 0, MAX_SECONDS):
            raise refused(
                "take", "within", f"It must be more than 0 and at most {MAX_SECONDS} seconds."
            )
        key = repr(sorted((d.policy, d.identifier) for d in demands))
        decision: Decision | None = None

        async def ask() -> tuple[bool, float | None]:
            nonlocal decision
            decision = await self.take(*demands)
            return decision.allowed, decision.retry_after

        reason = await self._session().lines.run(key, within, ask)
        if reason is not None or decision is None:
            full = reason == "full"
            raise NoRoomError(
                "too many wait already" if full else "there is no room in time", decision
            )
        return decision

    async def do(self, call: Call) -> Decision:
        """Makes one call. It raises a CallError. A denial is not an error."""
        if isinstance(call, Confirm):
            raise refused("confirm", "op", "A confirm has no decision: use confirm, or batch.")
        decision = await self._ask(call)
        assert isinstance(decision, Decision)
        return decision

    @overload
    async def batch(self, calls: Sequence[Call]) -> list[Decision | CallError]: ...
    @overload
    async def batch(
        self, calls: Sequence[Call | Confirm]
    ) -> Sequence[Decision | CallError | None]: ...

    async def batch(self, calls: Sequence[Call | Confirm]) -> Sequence[Decision | CallError | None]:
        """Makes up to 1000 calls as one request, and returns the result of each, in their order;
        None: it is confirmed.

        An invalid call does not affect the others. Calls that share a policy and identifier are
        decided in their order.
        """
        if not 0 < len(calls) <= MAX_CALLS:
            raise refused("batch", "operations", f"A batch has 1 to {MAX_CALLS} calls.")
        tries = self._new_tries()
        trace = current_trace()
        entries = [self._entry_of(call, trace) for call in calls]
        if sound := [entry for entry in entries if isinstance(entry, Entry)]:
            self._session().joiner.send_together(sound)
        return await asyncio.gather(*(self._result_of(entry, tries) for entry in entries))

    async def refund(self, receipt: str) -> None:
        """Gives back the units of receipt, once.

        It raises a NoReceiptError if there are none.
        """
        validate_receipt("refund", receipt)
        # One without an answer is not repeated, because a second one would find nothing, like a
        # forged one.
        await self._direct(
            "refund",
            {"receipt": receipt},
            lambda reply: _expect(reply, 200),
            Failure.still_counts,
            idempotent=False,
        )

    async def confirm(self, receipt: str) -> None:
        """Confirms receipt's units: the code was entered.

        It counts once, however often it is called. It raises a NoReceiptError if the receipt was
        refunded or its window is over. While no ratelimitd answers it raises an error, whatever
        ``Options.on_unavailable`` says.
        """
        await self._ask(Confirm(receipt))

    async def reset(self, policy: str, identifier: str) -> None:
        """Removes the counts of identifier under policy, on every instance within a second."""
        await self._direct(
            "reset",
            {"policy": policy, "identifier": identifier},
            lambda reply: _expect(reply, 204),
            lambda failure: failure.recorded(True),
        )

    async def explain(self, policy: str, identifier: str) -> Explanation:
        """Returns why identifier would be allowed or denied now: every limit's state, and all else
        that decides."""
        return await self._direct(
            "explain",
            {"policy": policy, "identifier": identifier},
            lambda reply: read_explanation(reply.body),
            lambda _: "no",
        )

    @property
    def failed_open(self) -> int:
        """The number of calls that ``fail-open`` has allowed without a decision: a metric that
        should stay at 0."""
        return self._failed_open

    async def close(self) -> None:
        """Waits until all earlier calls have answers, and closes connections. Further calls give
        a ClosedError."""
        session = self._session()
        self._closed = True
        for each in list(self._sessions.values()):
            each.joiner.closed = True
        await session.joiner.close()
        await session.connections.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _new_transport(self) -> Transport:
        o = self._options
        return Transport(self._base_url, o.headers, o.transport and o.transport(), o.timeout)

    def _session(self) -> _Session:
        """Returns the session of the running event loop."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            for other in list(self._sessions):
                if other.is_closed():
                    self._sessions.pop(other, None)
            transport, self._first_transport = self._first_transport, None
            joiner = Joiner(
                self._send,
                lambda group: self._abandon(group.began),
                requests=self._options.concurrency,
                joins=not self._options.disable_batching,
            )
            joiner.closed = self._closed
            session = self._sessions[loop] = _Session(transport or self._new_transport(), joiner)
        return session

    async def _ask(self, call: Call | Confirm) -> Decision | Confirmed:
        """Makes one call."""
        tries = self._new_tries()
        entry = Entry(self._prepare(call, current_trace()))
        self._session().joiner.enter(entry)
        return await self._answer_of(entry, tries)

    def _prepare(self, call: Call | Confirm, trace: Trace | None) -> PreparedCall:
        return PreparedCall(call, make_key=self._options.retries > 0, trace=trace)

    def _entry_of(self, call: Call | Confirm, trace: Trace | None) -> Entry | CallError:
        try:
            return Entry(self._prepare(call, trace))
        except CallError as error:
            return error

    def _new_tries(self) -> Tries:
        return Tries(self._options.retries, self._options.timeout)

    async def _result_of(
        self, entry: Entry | CallError, tries: Tries
    ) -> Decision | CallError | None:
        if isinstance(entry, CallError):
            return entry
        try:
            answer = await self._answer_of(entry, tries.copy())
        except CallError as error:
            return error
        return None if answer == "confirmed" else answer

    async def _answer_of(self, entry: Entry, tries: Tries) -> Decision | Confirmed:
        """Waits for the answer to a call that was sent, and tries again if that may help and
        cannot count twice."""
        call = entry.call
        recorded: Recorded | None = None
        while True:
            answer = await self._settled(entry, tries)
            if not isinstance(answer, Failure):
                return answer
            now = call.recorded_after(answer)
            if recorded != "unknown":  # an earlier attempt may still count
                recorded = now
            if not call.repeatable_after(now) or not await tries.again(answer):
                return self._unanswered(call, answer, recorded)
            entry = Entry(call)
            self._session().joiner.enter(entry)

    async def _settled(self, entry: Entry, tries: Tries) -> Answer:
        try:
            await asyncio.wait({entry.settled}, timeout=tries.remaining())
        finally:  # also where the caller is cancelled
            if not entry.settled.done():
                self._session().joiner.leave(entry, _late)
        return entry.settled.result()

    def _unanswered(
        self, prepared: PreparedCall, failure: Failure, recorded: Recorded | None
    ) -> Decision:
        """Returns the decision, or raises the error, of a call without an answer."""
        call, error = prepared.call, error_of(prepared.op, recorded, failure)
        if self._options.on_unavailable == "fail-closed" or not failure.nobody_decided:
            raise error
        if isinstance(call, Confirm):
            raise error
        self._failed_open += 1
        raised = raised_by(self._options.on_failed_open, call, error)
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = now
            self._options.logger.error(
                "ratelimitd does not decide: calls are allowed without a limit (%d so far; %s)",
                self._failed_open,
                error,
            )
            if raised:
                self._options.logger.error("ratelimitd: on_failed_open raised %s", raised)
        return _failed_open(call, recorded)

    async def _send(self, group: Group) -> None:
        """Sends a group as one request, and settles all its entries."""
        send = self._send_one if len(group.entries) == 1 else self._send_batch
        failure = await send(group.entries) or Failure.foreign(200, "it ends too early")
        for entry in group.entries:
            entry.settle(failure)

    async def _send_one(self, entries: Sequence[Entry]) -> Failure | None:
        (entry,) = entries
        call = entry.call
        reply = await self._exchange(
            call.op, call.body, trace=call.trace, idempotency_key=call.idempotency_key
        )

        def read(reply: Reply) -> None:
            _settle(entry, read_answer(reply.status, reply.body, reply.retry_after, reply.replayed))

        return _settle_by(reply, read)

    async def _send_batch(self, entries: Sequence[Entry]) -> Failure | None:
        def on_line(line: bytes) -> None:
            index, answer = read_line(line)
            if index >= len(entries):
                raise UnreadableError("it answers what was not asked")
            _settle(entries[index], answer)
            self._breaker.answered(time.monotonic())

        def read(reply: Reply) -> Failure | None:
            if reply.in_lines:
                return None
            if reply.status != 200:
                return read_problem(reply.status, reply.body, reply.retry_after)
            for entry, answer in zip(entries, read_results(reply.body, len(entries)), strict=True):
                _settle(entry, answer)
            return None

        operations = b",".join(entry.call.operation for entry in entries)
        body = b'{"operations":[' + operations + b"]}"
        trace = trace_of(entry.call.trace for entry in entries)
        return _settle_by(await self._exchange("batch", body, trace=trace, on_line=on_line), read)

    async def _exchange(
        self,
        route: str,
        body: bytes,
        *,
        trace: Trace | None,
        idempotency_key: str | None = None,
        on_line: Callable[[bytes], None] | None = None,
    ) -> Reply | Failure:
        """Posts, unless requests fail at once, and tells the breaker the outcome."""
        if not self._breaker.admit(time.monotonic()):
            message = "no answer: it failed several times in a row and is being probed"
            return Failure("open", message, False)
        reply = await self._session().transport.post(
            route, body, idempotency_key=idempotency_key, trace=trace, on_line=on_line
        )
        if isinstance(reply, Failure):
            self._breaker.failed(time.monotonic())
        else:
            self._breaker.answered(time.monotonic())
        return reply

    def _abandon(self, began: float) -> None:
        """Tells the breaker about a request that was ended without an answer."""
        now = time.monotonic()
        if now - began >= self._options.timeout / 2:
            self._breaker.failed(now)
        else:
            self._breaker.abandoned()  # by its callers

    async def _direct(
        self,
        op: ErrorOp,
        members: dict[str, str],
        read: Callable[[Reply], T],
        recorded_after: Callable[[Failure], Recorded | None],
        *,
        idempotent: bool = True,
    ) -> T:
        """Makes a request without calls, and repeats it if it certainly had no effect, or is
        idempotent."""
        tries, trace = self._new_tries(), current_trace()
        recorded: Recorded | None = None
        while True:
            reply = await self._once(op, json.dumps(members).encode(), tries, trace)
            outcome = _read(reply, read)
            if not isinstance(outcome, Failure):
                return outcome
            now = recorded_after(outcome)
            if recorded != "unknown":  # an earlier attempt may have done it
                recorded = now
            if (not idempotent and now == "unknown") or not await tries.again(outcome):
                raise error_of(op, recorded, outcome)

    async def _once(
        self, op: str, body: bytes, tries: Tries, trace: Trace | None
    ) -> Reply | Failure:
        if self._closed:
            return Failure("closed", "the client is closed", False)
        began = time.monotonic()
        try:
            return await asyncio.wait_for(self._exchange(op, body, trace=trace), tries.remaining())
        except asyncio.TimeoutError:
            self._abandon(began)
            return _late(True)
        except asyncio.CancelledError:
            self._abandon(began)
            raise


class _Session:
    """State that cannot be used on another event loop: connections, and calls that share
    requests."""

    def __init__(self, transport: Transport, joiner: Joiner) -> None:
        self.transport = transport
        self.joiner = joiner
        self.lines = Lines()
        # asyncio.run closes the loop's generators at its end, and this one closes connections.
        self.connections = _open(transport)
        with suppress(StopIteration):
            self.connections.__anext__().send(None)


async def _open(transport: Transport) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await transport.close()


def _settle_by(reply: Reply | Failure, read: Callable[[Reply], Failure | None]) -> Failure | None:
    """Reads a reply by read. Returns the failure if that is not possible."""
    if isinstance(reply, Failure):
        return reply
    try:
        return read(reply)
    except UnreadableError as error:
        return Failure.foreign(reply.status, str(error), reply.retry_after)


def _settle(entry: Entry, answer: Answer) -> None:
    """Gives an entry its answer, if that is of the right kind."""
    confirms = isinstance(entry.call.call, Confirm)
    if not isinstance(answer, Failure) and (answer == "confirmed") != confirms:
        raise UnreadableError("it answers what was not asked")
    entry.settle(answer)


def _read(reply: Reply | Failure, read: Callable[[Reply], T]) -> T | Failure:
    """Returns the result of read for a reply that is not a problem."""
    if isinstance(reply, Failure):
        return reply
    try:
        if reply.status < 400:
            return read(reply)
        return read_problem(reply.status, reply.body, reply.retry_after)
    except UnreadableError as error:
        return Failure.foreign(reply.status, str(error), reply.retry_after)


def _late(sent: bool) -> Failure:
    return Failure("timeout", "no answer: the time of Options.timeout is over", sent)


def _expect(reply: Reply, status: int) -> None:
    if reply.status != status:
        raise UnreadableError(f"not {status}")


def _failed_open(call: Call, recorded: Recorded | None) -> Decision:
    """Returns the decision of a client that fails open."""
    decisions = [
        DemandDecision(
            allowed=True, would_allow=True, policy=d.policy, degraded=True, recorded=recorded
        )
        for d in call.demands
    ]
    return Decision(
        allowed=True,
        would_allow=True,
        policy=call.demands[0].policy if call.demands else "",
        degraded=True,
        recorded=recorded,
        demands=tuple(decisions) if len(decisions) > 1 else (),
    )

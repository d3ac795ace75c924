from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import baggage, context, trace

from ratelimitd import AsyncClient, Call, CallError, Client, Confirm, Demand, Options
from service import serve
from suite import QUIET

DEMAND = Demand("sms-send", "somebody")


class Noting:
    """A service that notes the trace of each request. Its answers are useless."""

    def __init__(self) -> None:
        self.noted: list[tuple[str | None, str | None]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        noting = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["baggage"] is None
                noting.noted.append((self.headers["traceparent"], self.headers["tracestate"]))
                noting.asked.set()
                noting.gate.wait()
                self.send_response(500)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=serve, args=(self.server,), daemon=True).start()


@pytest.fixture
def service() -> Iterator[Noting]:
    noting = Noting()
    yield noting
    noting.gate.set()
    noting.server.shutdown()
    noting.server.server_close()


@contextmanager
def span(n: int, *, sampled: bool) -> Iterator[None]:
    """Puts the caller into a span of its own, with baggage."""
    state = trace.TraceState([("vendor", "state")])
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
    parent = trace.SpanContext(n, n, is_remote=False, trace_flags=flags, trace_state=state)
    within = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    token = context.attach(baggage.set_baggage("user", "somebody", within))
    yield
    context.detach(token)


def header(n: int, flags: str) -> tuple[str, str]:
    return (f"00-{n:032x}-{n:016x}-{flags}", "vendor=state")


OPTIONS = Options(logger=QUIET, timeout=20, max_failures=100, concurrency=1)


def test_requests_are_in_the_callers_trace(service: Noting) -> None:
    with Client(service.url, OPTIONS) as client:
        for ask in (
            lambda: client.take(DEMAND),
            lambda: client.batch([Call("take", [DEMAND]), Confirm("r")]),
            lambda: client.confirm("r"),
            lambda: client.refund("r"),
            lambda: client.explain("sms-send", "somebody"),
        ):
            service.noted.clear()
            for n, sampled in ((0xA, True), (0xB, False)):
                with span(n, sampled=sampled):
                    _undecided(ask)
            _undecided(ask)
            assert service.noted == [header(0xA, "01"), header(0xB, "00"), (None, None)]


def _undecided(ask: object) -> None:
    assert callable(ask)
    with suppress(CallError):
        ask()


@pytest.mark.parametrize(
    ("calls", "want"),
    [
        ([None, None], (None, None)),
        ([None, False, False], header(2, "00")),
        ([None, False, True, True], header(3, "01")),
        ([True, False, True], header(1, "01")),
    ],
)
def test_a_request_of_several_is_in_the_trace_that_is_seen(
    service: Noting, calls: list[bool | None], want: tuple[str | None, str | None]
) -> None:
    async def take(client: AsyncClient, n: int, sampled: bool | None) -> None:
        with nullcontext() if sampled is None else span(n, sampled=sampled), suppress(CallError):
            await client.take(DEMAND)

    async def run() -> None:
        service.gate.clear()
        async with AsyncClient(service.url, OPTIONS) as client:
            first = asyncio.create_task(take(client, 0, None))
            await asyncio.to_thread(service.asked.wait)
            others = [asyncio.create_task(take(client, n, s)) for n, s in enumerate(calls, start=1)]
            await asyncio.sleep(0)
            service.gate.set()
            await asyncio.gather(first, *others)

    asyncio.run(run())
    assert service.noted == [(None, None), want]


def test_opentelemetry_is_not_needed() -> None:
    script = "import sys; sys.modules['opentelemetry'] = None; import ratelimitd._trace as t; "
    script += "assert t.current_trace() is None"
    subprocess.run([sys.executable, "-c", script], check=True)

"""How a client uses its options, its environment and its event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
import threading
import time
from typing import Any

import httpx2
import pytest

from ratelimitd import (
    AsyncClient,
    Call,
    Client,
    ClosedError,
    Demand,
    InvalidCallError,
    Options,
    UnavailableError,
)
from service import Scripted, Service
from suite import QUIET

DEMAND = Demand("chaos", "somebody")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"timeout": t} for t in (0, -1, math.inf, -math.inf, math.nan, 1e300, 86_401, "2", None)),
        *({"probe_interval": t} for t in (0, math.inf, math.nan, True)),
        *({"retries": n} for n in (-1, 1.5, math.inf, "1", True)),
        *({"concurrency": n} for n in (0, 1.5)),
        *({"max_failures": n} for n in (0, math.nan)),
        {"on_unavailable": "open"},
        *({"headers": {"Authorization": v}} for v in ("Bearer secret\n", " secret", "secret ", 7)),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"ratelimitd: {name}.* must be ") as raised:
        Options(**wrong)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("timeout", [1e-9, 1, 86_400])
def test_a_timeout_is_up_to_a_day(shared_service: Service, timeout: float) -> None:
    options = Options(timeout=timeout, headers={"X-Empty": "", "X-Two": "a b"})
    with Client(shared_service.url, options) as client:
        if timeout < 1:
            with pytest.raises(UnavailableError):
                client.check(DEMAND)
        else:
            assert client.check(DEMAND).allowed


@pytest.mark.parametrize("hold", [0, -1, 0.0005, 3600.001, math.inf, math.nan, 1e300])
def test_a_reservation_holds_for_up_to_an_hour(shared_service: Service, hold: float) -> None:
    with Client(shared_service.url) as client:
        with pytest.raises(InvalidCallError) as raised:
            client.reserve(DEMAND, hold=hold)
        assert raised.value.problem is not None
        assert raised.value.problem.field == "reserve_ms"


def test_a_client_serves_event_loops_that_come_one_after_the_other(
    shared_service: Service,
) -> None:
    client = AsyncClient(shared_service.url, Options(timeout=60))
    used = [asyncio.run(client.take(Demand("chaos", "loops"))).used for _ in range(4)]
    assert used == [1, 2, 3, 4]
    assert len(client._sessions) == 1, "it keeps what was of loops that are closed"
    asyncio.run(client.close())
    with pytest.raises(ClosedError):
        asyncio.run(client.check(DEMAND))


def test_the_end_of_an_event_loop_ends_its_connections(shared_service: Service) -> None:
    said = _said(
        shared_service,
        "client = r.AsyncClient(sys.argv[1], r.Options(timeout=60))",
        "for _ in range(2): asyncio.run(client.check(demand))",
    )
    assert said == ""


def test_a_client_that_nobody_closes_leaves_nothing_under_way(shared_service: Service) -> None:
    said = _said(
        shared_service,
        "client = r.Client(sys.argv[1], r.Options(timeout=60))",
        "client.check(demand)",
        "(thread,) = set(threading.enumerate()) - {threading.main_thread()}",
        "del client; gc.collect(); thread.join(); gc.collect()",
        "import os; fds = (f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd'))",
        "sockets = [fd for fd in fds if os.path.lexists(fd) and 'socket:' in os.readlink(fd)]",
        "assert not sockets, sockets",
    )
    # Python may say "unclosed": it collects the connection, or the end of the thread closes it.
    assert "never awaited" not in said
    assert "pending" not in said


def test_a_busy_event_loop_has_time_to_connect(shared_service: Service) -> None:
    async def ask() -> bool:
        async with AsyncClient(shared_service.url, Options(timeout=6, logger=QUIET)) as client:
            call = asyncio.create_task(client.check(DEMAND))
            await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
                time.sleep(0.5)  # noqa: ASYNC251 - stands for other work on the loop
            return (await call).allowed

    assert asyncio.run(ask())


def _said(service: Service, *script: str) -> str:
    """Returns Python's warnings about a script."""
    first = "import asyncio, gc, sys, threading, ratelimitd as r; demand = r.Demand('chaos', 'a')"
    command = [sys.executable, "-W", "always", "-c", "\n".join([first, *script]), service.url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def test_a_client_serves_event_loops_at_the_same_time(shared_service: Service) -> None:
    client = AsyncClient(shared_service.url, Options(timeout=60))
    both = threading.Barrier(2)
    failed: list[BaseException] = []

    async def ask() -> None:
        for _ in range(5):
            await asyncio.to_thread(both.wait)
            await asyncio.gather(*(client.check(DEMAND) for _ in range(3)))

    def run() -> None:
        try:
            asyncio.run(ask())
        except BaseException as error:
            failed.append(error)
            both.abort()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
def test_proxies_of_the_environment_are_not_used(
    shared_service: Service, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
        monkeypatch.setenv(name.lower(), proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Client(shared_service.url, Options(timeout=60)) as client:
        assert client.check(DEMAND).allowed


def test_a_proxy_of_the_options_is_used() -> None:
    answer = {"status": 200, "headers": {"Content-Type": "text/html"}, "body": "a proxy"}
    proxy = Scripted([answer])
    options = Options(transport=lambda: httpx2.AsyncHTTPTransport(proxy=proxy.url), logger=QUIET)
    with Client("http://ratelimitd.invalid", options) as client, pytest.raises(UnavailableError):
        client.check(DEMAND)
    proxy.close()
    assert proxy.requests == 1


class Broken(httpx2.AsyncBaseTransport):
    async def handle_async_request(self, _: httpx2.Request) -> httpx2.Response:
        raise RuntimeError("somebody")


def test_a_client_can_fail_open_after_any_error_of_a_transport() -> None:
    options = Options(
        timeout=60, on_unavailable="fail-open", transport=Broken, logger=QUIET, max_failures=1
    )
    with Client("http://127.0.0.1:1", options) as client:
        assert [client.take(DEMAND).degraded for _ in range(3)] == [True] * 3


def test_errors_of_callbacks_do_not_change_decisions(caplog: pytest.LogCaptureFixture) -> None:
    def raises(call: Call, _: Exception) -> None:
        raise KeyError(call.demands[0].identifier)

    options = Options(
        timeout=60, on_unavailable="fail-open", transport=Broken, on_failed_open=raises
    )
    with (
        caplog.at_level(logging.ERROR, "ratelimitd"),
        Client("http://127.0.0.1:1", options) as client,
    ):
        assert client.take(DEMAND).degraded
    assert "on_failed_open raised KeyError" in caplog.text
    assert "somebody" not in caplog.text

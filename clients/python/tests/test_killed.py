"""Real servers that are slowed down and killed while they are asked."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest

from ratelimitd import AsyncClient, Client, ClosedError, Demand, Options, UnavailableError
from service import Service
from suite import QUIET


def test_slowed_down_calls_end_in_time_and_none_counts_twice(service: Service) -> None:
    counts, slowest = asyncio.run(_slowed(service))
    assert counts["unknown"] > 0, "the pauses were not felt"
    assert counts["denied"] > 0, "the limit was not met, or nobody was decided again"
    assert counts["allowed"] <= 200
    assert counts["allowed"] + counts["unknown"] >= 200
    assert slowest < 5, "a call of 0.4 s took longer"


async def _slowed(service: Service) -> tuple[Counter[str], float]:
    counts: Counter[str] = Counter()
    slowest = 0.0
    denied, stopped = asyncio.Event(), asyncio.Event()

    async def caller(client: AsyncClient) -> None:
        nonlocal slowest
        while not stopped.is_set():
            began = time.monotonic()
            outcome = await _take(client, "slowed")
            counts[outcome] += 1
            if outcome == "denied":
                denied.set()
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.005)

    async with AsyncClient(service.url, Options(timeout=0.4, retries=2, logger=QUIET)) as client:
        callers = [asyncio.create_task(caller(client)) for _ in range(20)]
        for _ in range(3):
            service.pause()
            await asyncio.sleep(0.7)
            service.resume()
            await asyncio.sleep(0.3)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(denied.wait(), 30)  # a probe finds it back
        stopped.set()
        await asyncio.gather(*callers)
    return counts, slowest


async def _take(client: AsyncClient, identifier: str) -> str:
    try:
        decision = await client.take(Demand("chaos", identifier))
    except UnavailableError as error:
        return str(error.recorded)
    return "allowed" if decision.allowed else "denied"


def test_killed_calls_fail_clearly_and_are_decided_once_it_is_back(service: Service) -> None:
    with Client(service.url, Options(timeout=1, probe_interval=0.2, logger=QUIET)) as client:
        assert client.take(Demand("chaos", "before")).used == 1
        service.kill()
        for _ in range(20):
            with pytest.raises(UnavailableError) as raised:
                client.take(Demand("chaos", "meanwhile"))
            assert "meanwhile" not in str(raised.value)
        service.restart()
        decision = None
        until = time.monotonic() + 20
        while decision is None and time.monotonic() < until:
            try:
                decision = client.take(Demand("chaos", "after"))
            except UnavailableError:
                time.sleep(0.05)
        assert decision is not None
        assert decision.allowed
        assert not decision.degraded


def test_a_caller_that_is_cancelled_leaves_the_others(service: Service) -> None:
    async def run() -> None:
        async with AsyncClient(service.url, Options(timeout=20)) as client:
            service.pause()
            calls = [asyncio.create_task(client.take(Demand("chaos", str(i)))) for i in range(9)]
            await asyncio.sleep(0.1)
            for call in calls[::2]:
                call.cancel()
            await asyncio.sleep(0.1)
            service.resume()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(o, asyncio.CancelledError) for o in outcomes] == [True, False] * 4 + [
            True
        ]
        assert all(not isinstance(o, BaseException) and o.allowed for o in outcomes[1::2])

    asyncio.run(run())


def test_threads_share_requests_and_a_fork_has_its_own(shared_service: Service) -> None:
    client = Client(shared_service.url, Options(timeout=20))
    allowed: list[bool] = []

    def caller() -> None:
        allowed.extend(client.take(Demand("chaos", "threads")).allowed for _ in range(10))

    threads = [threading.Thread(target=caller) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(allowed) == {True: 200, False: 100}
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = 0 if client.take(Demand("chaos", "fork")).used == 1 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert client.take(Demand("chaos", "fork")).used == 2


def test_the_thread_of_a_client_ends_with_it(shared_service: Service) -> None:
    before = set(threading.enumerate())
    client = Client(shared_service.url)
    client.check(Demand("chaos", "thread"))
    (thread,) = set(threading.enumerate()) - before
    client.close()
    with pytest.raises(ClosedError):
        client.check(Demand("chaos", "thread"))
    del client
    gc.collect()  # a raised error keeps its frames alive
    thread.join(20)
    assert not thread.is_alive()

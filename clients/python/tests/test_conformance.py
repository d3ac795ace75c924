from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ratelimitd import AsyncClient, Call, CallError, Client
from service import Scripted, Service
from suite import options_of, play, read_cases

FILES = ("calls", "errors", "together", "operators", "unavailable", "wait")
CASES = [pytest.param(c, id=f"{f}: {c['name']}") for f in FILES for c in read_cases(f)]


@pytest.mark.parametrize("kind", [AsyncClient, Client])
@pytest.mark.parametrize("case", CASES)
def test_case(shared_service: Service, case: Any, kind: type[AsyncClient | Client]) -> None:
    other = Scripted(case["service"]) if "service" in case else None
    if other and case["service"] == "none":
        other.close()
    told: list[tuple[Call, CallError]] = []
    options = options_of(case, on_failed_open=lambda *what: told.append(what))
    client = kind((other or shared_service).url, options)
    asyncio.run(_play(client, case))
    if other and case["service"] != "none":
        other.close()
        assert other.requests == case.get("requests", other.requests)
    assert client.failed_open == case.get("failed_open", client.failed_open)
    assert len(told) == client.failed_open


async def _play(client: AsyncClient | Client, case: Any) -> None:
    await play(client, case)
    if isinstance(client, AsyncClient):
        await client.close()
    else:
        client.close()

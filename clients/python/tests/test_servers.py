"""Real servers, and the requests that they pass to an app."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service import Service

TESTS = Path(__file__).parent


@contextlib.contextmanager
def serving(service: Service, said: str, *command: str, **options: Any) -> Iterator[str]:
    """Runs a server for an app of served.py, and gives the rest of its first line."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "RATELIMITD_URL": service.url,
        "LIMITER_OPTIONS": json.dumps(options),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if said in line:
                yield line.partition(said)[2].split()[0]
                break
        else:
            pytest.fail(f"it never said {said!r}: {''.join(lines)}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # workers of gunicorn outlive it by up to 15 s
        process.communicate()


def _uvicorn(app: str) -> tuple[str, ...]:
    options = ("--ws", "wsproto", "--no-proxy-headers")
    return ("Uvicorn running on ", "uvicorn", f"{app}:asgi", *options)


def test_the_root_path_of_uvicorn_is_not_of_the_route(service: Service) -> None:
    command = (*_uvicorn("served"), "--port", "0", "--root-path", "/api/v1")
    with serving(service, *command) as url, httpx2.Client(base_url=url, timeout=60) as client:
        statuses = [client.post("/login").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def _gunicorn(app: str, *worker: str) -> tuple[str, ...]:
    return ("Listening at: unix:", "gunicorn", f"{app}:wsgi", "--worker-class", *worker, "--bind")


@pytest.mark.parametrize(
    "server",
    [
        pytest.param((*_uvicorn("served"), "--uds"), id="Starlette on uvicorn"),
        pytest.param((*_uvicorn("served_by_django"), "--uds"), id="Django on uvicorn"),
        pytest.param(_gunicorn("served", "sync"), id="Flask on gunicorn, sync"),
        pytest.param(
            _gunicorn("served", "gthread", "--threads", "4"), id="Flask on gunicorn, gthread"
        ),
        pytest.param(_gunicorn("served", "gevent"), id="Flask on gunicorn, gevent"),
        pytest.param(_gunicorn("served_by_django", "sync"), id="Django on gunicorn, sync"),
        pytest.param(_gunicorn("served_by_django", "gevent"), id="Django on gunicorn, gevent"),
    ],
)
def test_a_unix_socket_is_a_proxy_that_can_be_trusted(
    service: Service, server: tuple[str, ...], tmp_path: Path
) -> None:
    path = str(tmp_path / "app.sock")
    at = f"unix:{path}" if "gunicorn" in server else path
    with serving(service, *server, at, trusted_proxies=["unix"]):

        def login(i: int) -> int:
            transport = httpx2.HTTPTransport(uds=path)
            with httpx2.Client(transport=transport, base_url="http://app", timeout=60) as client:
                headers = {"X-Forwarded-For": f"203.0.113.{i % 2}"}
                response = client.post("/login", headers=headers)
            return int(response.status_code)

        with ThreadPoolExecutor(6) as callers:
            statuses = sorted(callers.map(login, range(6)))
    assert statuses == [200, 200, 200, 200, 429, 429]


HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def test_the_handshake_of_a_websocket_is_limited(service: Service) -> None:
    command = (*_uvicorn("served"), "--port", "0")
    with serving(service, *command, by="header:X-User") as url:
        user = {"X-User": str(uuid.uuid4())}
        answers = [_shake_hands(f"{url}/chat", user) for _ in range(3)]
        other = _shake_hands(f"{url}/chat", {"X-User": "another"})
    assert [a.status_code for a in answers] == [101, 101, 429]
    assert [a.headers["X-RateLimit-Remaining"] for a in answers] == ["1", "0", "0"]
    assert answers[2].json()["title"] == "Quota Exceeded"
    assert other.status_code == 101


def _shake_hands(url: str, user: dict[str, str]) -> httpx2.Response:
    """Asks on a connection of its own, because the server closes it afterwards."""
    with httpx2.stream("GET", url, headers={**HANDSHAKE, **user}, timeout=60) as response:
        if response.status_code != 101:
            response.read()
        return response

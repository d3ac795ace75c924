"""Plays the suite's cases of middleware on every framework that has an adapter."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import django
import fastapi
import flask
import httpx
import pytest
from django.conf import settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import ratelimitd.asgi as on_asgi
import ratelimitd.flask as on_flask
from ratelimitd import AsyncClient, Client, Options
from service import Service
from suite import QUIET, read_cases

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", SECRET_KEY="tests", USE_TZ=True)
django.setup()

import ratelimitd.django as on_django  # noqa: E402 (Django must be configured before)

# What each path is limited by, as arguments of Rule.
ROUTES: dict[str, list[tuple[Any, ...]]] = {
    "/": [("web",)],
    "/closed": [("closed",)],
    "/user": [("web-user", "header:X-User")],
    "/by-address": [("web-user",)],
    "/both": [("web",), ("web-user", "header:X-User")],
    "/phone": [("phone", "header:X-Phone")],
    "/big": [("bytes", None, 101)],
    "/unknown": [("no-such",)],
}


def served(decision: Any) -> str:
    return "served" if decision and decision.receipt else "served, undecided"


def starlette_app(url: str, options: dict[str, Any]) -> httpx.AsyncBaseTransport:
    async def serve(request: Request) -> PlainTextResponse:
        return PlainTextResponse(served(on_asgi.decision_of(request)))

    app = Starlette(routes=[Route(path, serve, methods=["GET", "POST"]) for path in ROUTES])
    app.add_middleware(on_asgi.RateLimit, **_asgi(url, options))
    return httpx.ASGITransport(app)


def fastapi_app(url: str, options: dict[str, Any]) -> httpx.AsyncBaseTransport:
    app = fastapi.FastAPI()
    app.add_middleware(on_asgi.RateLimit, **_asgi(url, options))

    async def serve(request: fastapi.Request) -> PlainTextResponse:
        return PlainTextResponse(served(on_asgi.decision_of(request)))

    for path in ROUTES:
        app.add_api_route(path, serve, methods=["GET", "POST"])
    return httpx.ASGITransport(app)


def _asgi(url: str, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "client": AsyncClient(url, Options(timeout=20, logger=QUIET)),
        "options": on_asgi.LimiterOptions(**options),
        "routes": {path: [on_asgi.Rule(*rule) for rule in rules] for path, rules in ROUTES.items()},
    }


def flask_app(url: str, options: dict[str, Any]) -> httpx.BaseTransport:
    app = flask.Flask(__name__)
    limit = on_flask.limiter(_client(url), on_flask.LimiterOptions(**options))
    for path, rules in ROUTES.items():

        @app.route(path, methods=["GET", "POST"], endpoint=path.replace("/", "at-"))
        @limit([on_flask.Rule(*rule) for rule in rules])
        def serve() -> str:
            return served(on_flask.decision())

    return httpx.WSGITransport(app)


def django_app(url: str, options: dict[str, Any]) -> httpx.BaseTransport:
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, HttpResponse

    import urls

    limit = on_django.limiter(_client(url), on_django.LimiterOptions(**options))

    def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(served(on_django.decision_of(request)))

    urls.serve({path: limit(_django_rules(path))(serve) for path in ROUTES})
    return httpx.WSGITransport(WSGIHandler())


def async_django_app(url: str, options: dict[str, Any]) -> httpx.AsyncBaseTransport:
    from django.core.handlers.asgi import ASGIHandler
    from django.http import HttpRequest, HttpResponse

    import urls

    client = AsyncClient(url, Options(timeout=20, logger=QUIET))
    limit = on_django.limiter(client, on_django.LimiterOptions(**options))

    async def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(served(on_django.decision_of(request)))

    urls.serve({path: limit(_django_rules(path))(serve) for path in ROUTES})
    app: Any = ASGIHandler()  # whose types say dict where httpx says mapping
    return httpx.ASGITransport(app)


def _django_rules(path: str) -> list[str | on_django.Rule[Any]]:
    return [on_django.Rule(*rule) for rule in ROUTES[path]]


def _client(url: str) -> Client:
    return Client(url, Options(timeout=20, logger=QUIET))


APPS: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "starlette": starlette_app,
    "fastapi": fastapi_app,
    "flask": flask_app,
    "django": django_app,
    "django-async": async_django_app,
}
CASES = [pytest.param(c, id=c["name"]) for c in read_cases("web")]


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("case", CASES)
def test_web(shared_service: Service, case: Any, app: str) -> None:
    undecided: list[Any] = []
    options = {
        "trusted_proxies": ["127.0.0.0/8"],
        "fail_closed": case.get("fail_closed", False),
        "on_undecided": lambda *what: undecided.append(what),
        "logger": QUIET,
    }
    url = "http://127.0.0.1:1" if case.get("service") == "none" else shared_service.url
    transport = APPS[app](url, options)
    asyncio.run(_play(_sender(transport), case["requests"]))
    assert len(undecided) == case.get("undecided", 0)


Sender = Callable[[httpx.Request], Awaitable[httpx.Response]]


def _sender(transport: httpx.BaseTransport | httpx.AsyncBaseTransport) -> Sender:
    async def send(request: httpx.Request) -> httpx.Response:
        if isinstance(transport, httpx.AsyncBaseTransport):
            response = await transport.handle_async_request(request)
            await response.aread()
        else:
            response = await asyncio.to_thread(transport.handle_request, request)
            response.read()
        return response

    return send


async def _play(send: Sender, requests: list[Any]) -> None:
    names = _names()
    for i, request in enumerate(requests):
        headers = {k: names(v) for k, v in request.get("headers", {}).items()}
        url = f"http://127.0.0.1{request['path']}"
        response = await send(httpx.Request(request.get("method", "GET"), url, headers=headers))
        _check(response, request["expect"], f"request {i + 1}")


def _names() -> Callable[[str], str]:
    """Returns what replaces ``$name``: an address or a subnet that no other case has, or else a
    name."""
    suffix = uuid.uuid4()
    values = {
        "address": f"10.{'.'.join(str(random.randrange(256)) for _ in range(3))}",
        "subnet": f"2001:db8:{random.randrange(4096, 65536):x}:{random.randrange(4096, 65536):x}",
    }
    return lambda text: re.sub(r"\$(\w+)", lambda m: values.get(m[1], f"{m[1]}-{suffix}"), text)


def _check(response: httpx.Response, expect: Any, where: str) -> None:
    assert response.status_code == expect.get("status", response.status_code), where
    for name, value in expect.get("headers", {}).items():
        assert response.headers.get(name) == value, f"{where}: {name}"
    for name, value in expect.get("body", {}).items():
        assert response.json()[name] == value, f"{where}: {response.text}"
    if response.status_code == 200:
        decided = "X-RateLimit-Limit" in response.headers
        assert response.text == ("served" if decided else "served, undecided"), where


@pytest.mark.parametrize(
    ("route", "fits", "other"),
    [
        ("/api/", ["GET /api/", "POST /api/a/b"], ["GET /api", "GET /apix/"]),
        ("/", ["GET /"], ["GET /a"]),
        ("POST /login", ["POST /login"], ["GET /login", "POST /login/"]),
        ("/users/{id}", ["GET /users/7"], ["GET /users/", "GET /users/7/x"]),
        ("/users/{id}/", ["GET /users/7/x"], ["GET /users/7", "GET /users//x"]),
    ],
)
def test_routes(route: str, fits: list[str], other: list[str]) -> None:
    pattern = on_asgi._Pattern(route)
    for request in fits:
        assert pattern.fits(*request.split(" ")), request
    for request in other:
        assert not pattern.fits(*request.split(" ")), request


def test_what_identifies_nobody_is_refused() -> None:
    wrong: on_flask.LimiterOptions[flask.Request] = on_flask.LimiterOptions(by="X-User")
    with pytest.raises(ValueError, match="identifies nobody"):
        on_flask.limiter(_client("http://127.0.0.1:1"), wrong)

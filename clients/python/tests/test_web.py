"""Plays the suite's cases of middleware on every framework that has an adapter."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
import flask
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import ratelimitd.asgi as on_asgi
import ratelimitd.django as on_django
import ratelimitd.flask as on_flask
from ratelimitd import AsyncClient, Client, Options
from service import Service
from suite import QUIET, read_cases

# The limits of each path: policies, and arguments of Rule.
ROUTES: dict[str, list[str | tuple[Any, ...]]] = {
    "/": ["web"],
    "/closed": [("closed",)],
    "/user": [("web-user", "header:X-User")],
    "/by-address": ["web-user"],
    "/both": ["web", ("web-user", "header:X-User")],
    "/customer": [("customers", "header:X-User")],
    "/gold": [("customers", "header:X-User", None, lambda _: 3)],
    "/phone": [("phone", "header:X-Phone")],
    "/big": [("bytes", None, 101)],
    "/unknown": ["no-such"],
}


def rules_at(path: str) -> list[Any]:
    return [rule if isinstance(rule, str) else on_asgi.Rule(*rule) for rule in ROUTES[path]]


def served(decision: Any) -> str:
    return "served" if decision and decision.receipt else "served, undecided"


def starlette_app(url: str, options: dict[str, Any]) -> httpx2.AsyncBaseTransport:
    async def serve(request: Request) -> PlainTextResponse:
        return PlainTextResponse(served(on_asgi.decision_of(request)))

    app = Starlette(
        routes=[Route(path, serve, methods=["GET", "POST", "DELETE"]) for path in ROUTES]
    )
    app.add_middleware(on_asgi.RateLimit, **_asgi(url, options))
    return httpx2.ASGITransport(app)


def fastapi_app(url: str, options: dict[str, Any]) -> httpx2.AsyncBaseTransport:
    app = fastapi.FastAPI()
    app.add_middleware(on_asgi.RateLimit, **_asgi(url, options))

    async def serve(request: fastapi.Request) -> PlainTextResponse:
        return PlainTextResponse(served(on_asgi.decision_of(request)))

    for path in ROUTES:
        app.add_api_route(path, serve, methods=["GET", "POST", "DELETE"])
    return httpx2.ASGITransport(app)


def _asgi(url: str, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "client": AsyncClient(url, Options(timeout=20, logger=QUIET)),
        "options": on_asgi.LimiterOptions(**options),
        "routes": {path: rules_at(path) for path in ROUTES},
    }


def flask_app(url: str, options: dict[str, Any]) -> httpx2.BaseTransport:
    app = flask.Flask(__name__)
    limit = on_flask.limiter(_client(url), on_flask.LimiterOptions(**options))
    for path in ROUTES:

        @app.route(path, methods=["GET", "POST", "DELETE"], endpoint=path.replace("/", "at-"))
        @limit(rules_at(path))
        def serve() -> str:
            return served(on_flask.decision())

    return httpx2.WSGITransport(app)


def django_app(url: str, options: dict[str, Any]) -> httpx2.BaseTransport:
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, HttpResponse

    import urls

    limit = on_django.limiter(_client(url), on_django.LimiterOptions(**options))

    def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(served(on_django.decision_of(request)))

    urls.serve({path: limit(rules_at(path))(serve) for path in ROUTES})
    return httpx2.WSGITransport(WSGIHandler())


def async_django_app(url: str, options: dict[str, Any]) -> httpx2.AsyncBaseTransport:
    from django.core.handlers.asgi import ASGIHandler
    from django.http import HttpRequest, HttpResponse

    import urls

    client = AsyncClient(url, Options(timeout=20, logger=QUIET))
    limit = on_django.limiter(client, on_django.LimiterOptions(**options))

    async def serve(request: HttpRequest) -> HttpResponse:
        return HttpResponse(served(on_django.decision_of(request)))

    urls.serve({path: limit(rules_at(path))(serve) for path in ROUTES})
    app: Any = ASGIHandler()  # its types have dict, and httpx2's have mapping
    return httpx2.ASGITransport(app)


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


Sender = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def _sender(transport: httpx2.BaseTransport | httpx2.AsyncBaseTransport) -> Sender:
    async def send(request: httpx2.Request) -> httpx2.Response:
        if isinstance(transport, httpx2.AsyncBaseTransport):
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
        response = await send(httpx2.Request(request.get("method", "GET"), url, headers=headers))
        _check(response, request["expect"], f"request {i + 1}")


def _names() -> Callable[[str], str]:
    """Returns the value of ``$name``: an address, a subnet or a name of this case alone."""
    suffix = uuid.uuid4()
    values = {
        "address": f"10.{'.'.join(str(random.randrange(256)) for _ in range(3))}",
        "subnet": f"2001:db8:{random.randrange(4096, 65536):x}:{random.randrange(4096, 65536):x}",
    }
    return lambda text: re.sub(r"\$(\w+)", lambda m: values.get(m[1], f"{m[1]}-{suffix}"), text)


def _check(response: httpx2.Response, expect: Any, where: str) -> None:
    assert response.status_code == expect.get("status", response.status_code), where
    for name, value in expect.get("headers", {}).items():
        assert response.headers.get(name) == value, f"{where}: {name}"
    for name, value in expect.get("body", {}).items():
        assert response.json()[name] == value, f"{where}: {response.text}"
    if response.status_code == 200:
        decided = "X-RateLimit-Limit" in response.headers
        assert response.text == ("served" if decided else "served, undecided"), where


@pytest.mark.parametrize("app", ["starlette", "fastapi"])
def test_test_clients_come_one_after_the_other(shared_service: Service, app: str) -> None:
    served_app = APPS[app](shared_service.url, {"logger": QUIET}).app
    statuses = []
    for _ in range(3):  # each has an event loop of its own
        with TestClient(served_app) as client:
            statuses.append(client.get("/user", headers={"X-User": f"test of {app}"}).status_code)
    assert statuses == [200, 200, 429]


def test_a_view_that_is_a_coroutine_is_limited(shared_service: Service) -> None:
    app = flask.Flask(__name__)
    limit = on_flask.limiter(_client(shared_service.url))

    async def serve() -> str:
        return "served"

    view: Any = serve
    limited = limit(on_flask.Rule("web-user", by=lambda _: "a coroutine"))(view)
    app.add_url_rule("/", view_func=limited)
    statuses = [app.test_client().get("/").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_the_client_of_django_is_of_the_views_kind() -> None:
    async def serve(_: Any) -> Any: ...

    view: Any = serve
    with pytest.raises(TypeError, match="needs the limiter of an AsyncClient"):
        on_django.limiter(_client("http://127.0.0.1:1"))("web")(view)


def test_headers_are_those_of_the_innermost_limit(shared_service: Service) -> None:
    from django.http import HttpRequest, HttpResponse

    client = _client(shared_service.url)
    in_flask, in_django = on_flask.limiter(client), on_django.limiter(client)
    outer = on_flask.Rule[Any]("chaos", by=lambda _: "outer")
    inner = on_flask.Rule[Any]("web-user", by=lambda _: "inner")
    app = flask.Flask(__name__)
    view = in_flask(outer)(in_flask(inner)(lambda: "served"))
    app.add_url_rule("/", view_func=view, endpoint="view")
    headers = app.test_client().get("/").headers
    assert headers.get_all("X-RateLimit-Limit") == ["2"]
    django_view = in_django(outer)(in_django(inner)(lambda _: HttpResponse("served")))
    assert django_view(HttpRequest()).headers["X-RateLimit-Limit"] == "2"


@pytest.mark.parametrize("extensions", [None, {}])
def test_a_websocket_is_closed_by_a_server_that_cannot_say_why(
    shared_service: Service, extensions: Any
) -> None:
    assert asyncio.run(_handshake(shared_service, "websocket.connect", extensions)) == [
        {"type": "websocket.close", "code": 1013}
    ]


def test_a_websocket_that_has_gone_is_answered_nothing(shared_service: Service) -> None:
    assert asyncio.run(_handshake(shared_service, "websocket.disconnect", None)) == []


async def _handshake(service: Service, first: str, extensions: Any) -> list[Any]:
    async def app(*_: Any) -> None:
        pytest.fail("it reaches the app")

    async def receive() -> Any:
        return {"type": first}

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    client = AsyncClient(service.url, Options(timeout=20, logger=QUIET))
    scope = {"type": "websocket", "path": "/chat", "headers": [], "extensions": extensions}
    limited = on_asgi.RateLimit(app, client=client, routes={"GET /chat": "closed"})
    await limited(scope, receive, send)
    await client.close()
    return sent


def test_errors_of_callbacks_do_not_change_decisions() -> None:
    def raises(*_: Any) -> None:
        raise KeyError

    app = APPS["flask"]("http://127.0.0.1:1", {"on_undecided": raises, "logger": QUIET})
    assert app.handle_request(httpx2.Request("GET", "http://127.0.0.1/")).status_code == 200

"""Routes of the ASGI middleware match the requests that the app's router passes to a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import fastapi
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from ratelimitd import AsyncClient, Options
from ratelimitd.asgi import LimiterOptions, RateLimit, _Pattern
from service import Service
from suite import QUIET

LIMITED = "limited"


@pytest.mark.parametrize(
    ("route", "fits", "other"),
    [
        ("/api/", ["GET /api/", "POST /api/a/b"], ["GET /api", "GET /apix/"]),
        ("/", ["GET /"], ["GET /a"]),
        ("POST /login", ["POST /login"], ["GET /login", "HEAD /login", "POST /login/"]),
        ("post /login", ["POST /login"], ["GET /login"]),
        ("GET /page", ["GET /page", "HEAD /page"], ["POST /page", "OPTIONS /page"]),
        ("HEAD /page", ["HEAD /page"], ["GET /page"]),
        ("/users/{id}", ["GET /users/7"], ["GET /users/", "GET /users/7/x"]),
        ("/users/{id:int}", ["GET /users/7"], ["GET /users/7/x"]),
        ("/users/{id}/", ["GET /users/7/x"], ["GET /users/7", "GET /users//x"]),
        ("/files/{name}.json", ["GET /files/a.json"], ["GET /files/a", "GET /files/a_json"]),
        ("/files/{name:path}", ["GET /files/", "GET /files/a/b"], ["GET /files"]),
        ("/{all:path}", ["GET /", "POST /a/b"], []),
        ("/login", ["POST /login\n"], ["POST /login\n\n", "POST \n/login"]),
        ("/a\u00e9+b", ["GET /a\u00e9+b"], ["GET /a\u00e9b"]),
    ],
)
def test_routes(route: str, fits: list[str], other: list[str]) -> None:
    pattern = _Pattern(route)
    for request in fits:
        assert pattern.fits(*request.split(" ")), request
    for request in other:
        assert not pattern.fits(*request.split(" ")), request


@pytest.mark.parametrize(
    "route",
    [
        "login",
        "POST login",
        "POST  /login",
        "POST\t/login",
        " /login",
        "/login ",
        "/login?next=/",
        "/api/*",
        "/users/{id",
        "/users/{}",
        "",
    ],
)
def test_routes_that_fit_nothing_are_refused(route: str) -> None:
    with pytest.raises(ValueError, match=r"route .*: write such as POST /login"):
        _Pattern(route)


async def _ok(_: Request) -> PlainTextResponse:
    return PlainTextResponse("served")


Apps = dict[str, Callable[[dict[str, Any]], Any]]


def _mounted(options: dict[str, Any]) -> Any:
    inner = Starlette(routes=[Route("/login", _ok, methods=["GET", "POST"])])
    inner.add_middleware(RateLimit, **options)
    return Starlette(routes=[Mount("/api", inner)])


def _mounted_twice(options: dict[str, Any]) -> Any:
    return Starlette(routes=[Mount("/site", _mounted(options))])


def _of_a_mount(options: dict[str, Any]) -> Any:
    routes = [Route("/login", _ok, methods=["GET", "POST"])]
    limited = [Middleware(RateLimit, **options)]
    return Starlette(routes=[Mount("/api", routes=routes, middleware=limited)])


def _fastapi(options: dict[str, Any]) -> fastapi.FastAPI:
    app = fastapi.FastAPI(root_path="/api/v1")
    app.add_api_route("/login", _ok_of_fastapi, methods=["GET", "HEAD", "POST"])
    if options:
        app.add_middleware(RateLimit, **options)
    return app


async def _ok_of_fastapi() -> str:
    return "served"


MOUNTED: Apps = {
    "/api/login": _mounted,
    "/site/api/login": _mounted_twice,
    "/api/login of the mount": _of_a_mount,
    "/login of FastAPI": _fastapi,
    "/api/v1/login of FastAPI": _fastapi,
    "/login of FastAPI within": lambda options: RateLimit(_fastapi({}), **options),
    "/api/v1/login of FastAPI within": lambda options: RateLimit(_fastapi({}), **options),
}


@pytest.mark.parametrize("where", MOUNTED)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_path_is_that_of_the_apps_own_route(
    shared_service: Service, where: str, method: str
) -> None:
    route = "POST /login" if method == "POST" else "GET /login"
    app = MOUNTED[where](_options(shared_service, {route: "closed"}))
    assert _status(app, method, where.split(" ")[0]) == 429


def test_an_outer_app_has_the_whole_path(shared_service: Service) -> None:
    app = Starlette(routes=[Mount("/api", routes=[Route("/login", _ok)])])
    app.add_middleware(RateLimit, **_options(shared_service, {"/api/login": "closed"}))
    assert _status(app, "GET", "/api/login") == 429
    assert _status(app, "GET", "/login") == 404


@pytest.mark.parametrize("path", ["/login%0A", "/login", "/%6Cogin"])
def test_no_spelling_of_a_path_evades_its_limit(shared_service: Service, path: str) -> None:
    routes = [Route("/login", _ok, methods=["POST"])]
    app = Starlette(routes=routes)
    assert _status(app, "POST", path) == 200, "it does not reach the handler anyway"
    app = Starlette(routes=routes)
    app.add_middleware(RateLimit, **_options(shared_service, {"POST /login": "closed"}))
    assert _status(app, "POST", path) == 429


def test_headers_are_those_of_the_innermost_limit(shared_service: Service) -> None:
    app = Starlette(routes=[Route("/", _ok)])
    app.add_middleware(RateLimit, **_options(shared_service, {"/": "web-user"}))
    app.add_middleware(RateLimit, **_options(shared_service, {"/": "chaos"}))
    (response,) = _responses(app, ("GET", "/"))
    assert response.headers.get_list("X-RateLimit-Limit") == ["2"]
    assert response.headers.get_list("RateLimit-Policy") == ['"per-day";q=2;w=86400']


def _options(service: Service, routes: dict[str, str]) -> dict[str, Any]:
    return {
        "client": AsyncClient(service.url, Options(timeout=20, logger=QUIET)),
        "options": LimiterOptions(logger=QUIET, fail_closed=True, by=lambda _: LIMITED),
        "routes": routes,
    }


def _status(app: Any, method: str, path: str) -> int:
    (response,) = _responses(app, (method, path))
    return response.status_code


def _responses(app: Any, *requests: tuple[str, str]) -> list[httpx2.Response]:
    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.request(*request) for request in requests]

    return asyncio.run(run())

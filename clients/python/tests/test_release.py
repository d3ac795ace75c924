"""Units under concurrent limits count only while a request is under way."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import flask
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

import ratelimitd.asgi as on_asgi
import ratelimitd.django as on_django
import ratelimitd.flask as on_flask
from ratelimitd import AsyncClient, Client, Demand, Options
from service import Service
from suite import QUIET

PATIENCE = 30.0  # seconds


class Slot:
    """The one unit of a caller, and the client with which a test's apps take it."""

    def __init__(self, service: Service) -> None:
        self._demand = Demand("slots", str(uuid.uuid4()))
        self._url = service.url
        self._client = self.client()
        self.was_held = False
        self.was_free_in_background = False

    def client(self) -> Client:
        return Client(self._url, Options(timeout=20, logger=QUIET))

    def async_client(self) -> AsyncClient:
        return AsyncClient(self._url, Options(timeout=20, logger=QUIET))

    @property
    def rule(self) -> on_asgi.Rule[Any]:
        return on_asgi.Rule("slots", by=lambda _: self._demand.identifier)

    def is_free(self) -> bool:
        return self._client.check(self._demand).allowed

    async def is_free_later(self) -> bool:
        return await asyncio.to_thread(self.is_free)

    def must_be_free_soon(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.is_free():
            assert time.monotonic() < until, "it is not released"
            time.sleep(0.01)


def parts(slot: Slot) -> Iterator[bytes]:
    """Yields whether the unit is free, twice."""
    for _ in range(2):
        yield b"free" if slot.is_free() else b"held "


async def async_parts(slot: Slot) -> AsyncIterator[bytes]:
    for _ in range(2):
        yield b"free" if await slot.is_free_later() else b"held "


def starlette_app(slot: Slot) -> Starlette:
    async def page(_: Request) -> PlainTextResponse:
        return PlainTextResponse("free" if await slot.is_free_later() else "held ")

    async def stream(_: Request) -> StreamingResponse:
        async def after() -> None:
            slot.was_free_in_background = await slot.is_free_later()

        return StreamingResponse(async_parts(slot), background=BackgroundTask(after))

    async def throw(_: Request) -> PlainTextResponse:
        slot.was_held = not await slot.is_free_later()
        raise ValueError

    async def hang(_: Request) -> PlainTextResponse:
        slot.was_held = not await slot.is_free_later()
        await asyncio.Event().wait()
        raise AssertionError

    views = {"/page": page, "/stream": stream, "/throw": throw, "/hang": hang}
    app = Starlette(routes=[Route(path, view) for path, view in views.items()])
    routes = {"/{path:path}": slot.rule}
    app.add_middleware(on_asgi.RateLimit, client=slot.async_client(), routes=routes)
    return app


def flask_app(slot: Slot) -> Any:
    app = flask.Flask(__name__)
    limit = on_flask.limiter(slot.client())

    @app.get("/page")
    @limit(slot.rule)
    def page() -> str:
        return "free" if slot.is_free() else "held "

    @app.get("/stream")
    @limit(slot.rule)
    def stream() -> Iterator[bytes]:
        return parts(slot)

    @app.get("/throw")
    @limit(slot.rule)
    def throw() -> str:
        slot.was_held = not slot.is_free()
        raise ValueError

    @app.get("/file")
    @limit(slot.rule)
    def file() -> flask.Response:
        return flask.send_file(Path(__file__).resolve())

    return app.wsgi_app


def django_app(slot: Slot) -> Any:
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse, StreamingHttpResponse

    import urls

    def throw(_: Any) -> HttpResponse:
        slot.was_held = not slot.is_free()
        raise ValueError

    limit = on_django.limiter(slot.client())(slot.rule)
    urls.serve(
        {
            "/page": limit(lambda _: HttpResponse("free" if slot.is_free() else "held ")),
            "/stream": limit(lambda _: StreamingHttpResponse(parts(slot))),
            "/throw": limit(throw),
        }
    )
    return WSGIHandler()


def async_django_app(slot: Slot) -> Any:
    from django.core.handlers.asgi import ASGIHandler
    from django.http import HttpResponse, StreamingHttpResponse

    import urls

    async def page(_: Any) -> HttpResponse:
        return HttpResponse("free" if await slot.is_free_later() else "held ")

    async def stream(_: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(async_parts(slot))

    async def throw(_: Any) -> HttpResponse:
        slot.was_held = not await slot.is_free_later()
        raise ValueError

    limit = on_django.limiter(slot.async_client())(slot.rule)
    urls.serve({"/page": limit(page), "/stream": limit(stream), "/throw": limit(throw)})
    return ASGIHandler()


WSGI: dict[str, Callable[[Slot], Any]] = {"flask": flask_app, "django": django_app}
ASGI: dict[str, Callable[[Slot], Any]] = {
    "starlette": starlette_app,
    "django-async": async_django_app,
}


@pytest.fixture
def slot(shared_service: Service) -> Slot:
    return Slot(shared_service)


def get(path: str) -> httpx2.Request:
    return httpx2.Request("GET", f"http://127.0.0.1{path}")


@pytest.mark.parametrize("app", WSGI)
def test_units_count_until_the_response_of_wsgi_ends(slot: Slot, app: str) -> None:
    transport = httpx2.WSGITransport(WSGI[app](slot), raise_app_exceptions=False)
    for _ in range(2):
        page = transport.handle_request(get("/page"))
        assert slot.is_free(), "it is released before the response is sent"
        assert page.read() == b"held "
        stream = transport.handle_request(get("/stream"))
        assert not slot.is_free()
        assert stream.read() == b"held held "
        stream.close()
        assert slot.is_free()
        left = transport.handle_request(get("/stream"))
        chunks = left.iter_raw()  # it closes the response at its end
        assert next(chunks) == b"held "
        assert not slot.is_free()
        left.close()
        assert slot.is_free()


def test_units_count_until_a_file_of_flask_is_sent(slot: Slot) -> None:
    transport = httpx2.WSGITransport(flask_app(slot))
    for method in ("GET", "HEAD"):
        response = transport.handle_request(httpx2.Request(method, "http://127.0.0.1/file"))
        assert not slot.is_free()
        assert response.headers["RateLimit-Policy"] == '"at-once";q=1;qu="concurrent-requests"'
        response.read()
        response.close()
        assert slot.is_free()


@pytest.mark.parametrize("app", WSGI)
def test_units_are_released_where_a_view_raises(slot: Slot, app: str) -> None:
    transport = httpx2.WSGITransport(WSGI[app](slot), raise_app_exceptions=False)
    assert transport.handle_request(get("/throw")).status_code == 500
    assert slot.was_held
    assert slot.is_free()


def ask(app: Any, path: str) -> httpx2.Response:
    async def asking() -> httpx2.Response:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        response = await transport.handle_async_request(get(path))
        await response.aread()
        await _until(nothing_else_runs)
        return response

    return asyncio.run(asking())


async def nothing_else_runs() -> bool:
    """Reports whether this is the only task of its event loop."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        if await holds():
            return
        assert time.monotonic() < until, "it does not come true"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("app", ASGI)
def test_units_count_until_the_response_of_asgi_ends(slot: Slot, app: str) -> None:
    served = ASGI[app](slot)
    for path, body in (("/page", "held "), ("/stream", "held held ")) * 2:
        assert ask(served, path).text == body
        slot.must_be_free_soon()
    if app == "starlette":
        assert slot.was_free_in_background


@pytest.mark.parametrize("app", ASGI)
def test_units_are_released_where_an_asynchronous_view_raises(slot: Slot, app: str) -> None:
    assert ask(ASGI[app](slot), "/throw").status_code == 500
    assert slot.was_held
    slot.must_be_free_soon()


def test_units_are_released_where_the_task_of_a_request_is_cancelled(slot: Slot) -> None:
    async def cancelled() -> None:
        transport = httpx2.ASGITransport(starlette_app(slot))
        task = asyncio.create_task(transport.handle_async_request(get("/hang")))

        async def hangs() -> bool:
            return slot.was_held

        await _until(hangs)
        task.cancel()
        await asyncio.wait({task})
        await _until(slot.is_free_later)

    asyncio.run(cancelled())
    assert slot.is_free()


def test_a_release_that_fails_harms_no_request(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    slot, app = Slot(service), flask.Flask(__name__)
    logger = logging.getLogger("release")
    limit = on_flask.limiter(slot.client(), on_flask.LimiterOptions(logger=logger))

    @app.get("/")
    @limit(slot.rule)
    def page() -> str:
        service.kill()
        return "served"

    assert app.test_client().get("/").text == "served"
    service.restart()
    assert "units under concurrent limits count until their hold ends" in caplog.text


def test_a_release_that_fails_harms_no_request_of_asgi(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    slot = Slot(service)

    async def page(_: Request) -> PlainTextResponse:
        service.kill()
        return PlainTextResponse("served")

    app = Starlette(routes=[Route("/", page)])
    options = on_asgi.LimiterOptions[Any](logger=logging.getLogger("release"))
    app.add_middleware(
        on_asgi.RateLimit, client=slot.async_client(), routes={"/": slot.rule}, options=options
    )
    assert ask(app, "/").text == "served"
    service.restart()
    assert "units under concurrent limits count until their hold ends" in caplog.text

"""Apps for real servers, limited by the ratelimitd at RATELIMITD_URL."""

from __future__ import annotations

import json
import os
from typing import Any

import flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

import ratelimitd.asgi as on_asgi
import ratelimitd.flask as on_flask
from ratelimitd import AsyncClient, Client, Options

URL = os.environ["RATELIMITD_URL"]
OPTIONS: dict[str, Any] = json.loads(os.environ["LIMITER_OPTIONS"])


async def serve(_: Request) -> PlainTextResponse:
    return PlainTextResponse("served")


async def chat(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


asgi = Starlette(
    routes=[Route("/login", serve, methods=["POST"]), WebSocketRoute("/chat", chat)],
)
asgi.add_middleware(
    on_asgi.RateLimit,
    client=AsyncClient(URL, Options(timeout=20)),
    routes={"POST /login": "web-user", "/chat": "web-user"},
    options=on_asgi.LimiterOptions(**OPTIONS),
)

wsgi = flask.Flask(__name__)
limit = on_flask.limiter(Client(URL, Options(timeout=20)), on_flask.LimiterOptions(**OPTIONS))


@wsgi.post("/login")
@limit("web-user")
def login() -> str:
    return "served"

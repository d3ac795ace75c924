"""Middleware of Starlette, FastAPI, and every other app of ASGI::

app.add_middleware(
    RateLimit, client=client, routes={"POST /login": "login", "/api/": "api"}
)
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from ._aio import AsyncClient
from ._answer import Verdict
from ._call import Call
from ._decision import Decision
from ._errors import CallError
from ._identify import View
from ._limiter import Limiter, LimiterOptions, Rule, Rules, rules_of
from ._release import AsyncRelease

__all__ = ["LimiterOptions", "RateLimit", "Rule", "decision_of"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_DECISION = "ratelimitd.decision"
_HAVE_HEADERS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_TRY_AGAIN_LATER = 1013  # of the codes that IANA registers for closing a WebSocket


def decision_of(scope: Mapping[str, Any]) -> Decision | None:
    """Returns the decision that let a request pass, for a handler that refunds its receipt; None:
    there is none. Starlette's requests are such a mapping."""
    decision: Decision | None = scope.get(_DECISION)
    return decision


class RateLimit:
    """Limits the requests that ``routes`` name; the scope of a request is what functions of rules
    are given.

    A route is a path, or a method and a path: ``POST /login``. GET is also HEAD, and the handshake
    of a WebSocket. A path that ends in a slash is all below it; ``{name}`` and ``{name:path}`` are
    as in Starlette. Paths are those of the app's own routes: without its root path, and without
    what it is mounted at. The first route that fits a request decides; a request that fits none
    is not limited.
    """

    def __init__(
        self,
        app: App,
        *,
        client: AsyncClient,
        routes: Mapping[str, Rules[Scope]],
        options: LimiterOptions[Scope] | None = None,
    ) -> None:
        self._app, self._client = app, client
        self._limiter = Limiter[Scope](options)
        self._routes = [(_Pattern(route), rules_of(rules)) for route, rules in routes.items()]
        # FastAPI passes its own root path to its router later; it is not in the scope yet.
        self._root_path: str = getattr(app, "root_path", "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        verdict = await self._decide(scope)
        if verdict.status is not None:
            await _answer(verdict, scope, receive, send)
            return
        scope[_DECISION] = verdict.decision
        release = AsyncRelease(self._client, self._limiter, verdict)
        try:
            await self._app(scope, receive, _with_headers(verdict, _releasing(release, send)))
        finally:
            await release()

    async def _decide(self, scope: Scope) -> Verdict:
        path = _route_path(scope["path"], self._root_path or scope.get("root_path", ""))
        rules = self._rules_for(scope.get("method", "GET"), path)
        call = self._limiter.call_of(_view(scope), rules)
        if isinstance(call, Verdict):
            return call
        return self._limiter.verdict_of(scope, call, await self._outcome(call))

    async def _outcome(self, call: Call) -> Decision | CallError:
        try:
            return await self._client.do(call)
        except CallError as error:
            return error

    def _rules_for(self, method: str, path: str) -> Sequence[Rule[Scope]]:
        fitting = (rules for pattern, rules in self._routes if pattern.fits(method, path))
        return next(fitting, ())


class _Pattern:
    def __init__(self, route: str) -> None:
        method, _, path = route.rpartition(" ")
        if not _ROUTE.fullmatch(route):
            raise ValueError(
                f"ratelimitd: route {route!r}: write such as POST /login, /users/{{id}}, or /api/ "
                "for all below it"
            )
        self._methods = {"": (), "GET": ("GET", "HEAD")}.get(method.upper(), (method.upper(),))
        parts = [_regex_of(part) for part in _PARAMETER.split(path)]
        below = ".*" if path.endswith("/") and path != "/" else ""
        # Starlette takes a path that ends in a line feed for the one without.
        self._path = re.compile("".join(parts) + below + "\n?", re.DOTALL)

    def fits(self, method: str, path: str) -> bool:
        return (not self._methods or method in self._methods) and bool(self._path.fullmatch(path))


_ROUTE = re.compile(r"([A-Za-z]+ )?/([^\s?#*{}]|\{\w+(:\w+)?\})*")
_PARAMETER = re.compile(r"(\{[^}]*\})")


def _regex_of(part: str) -> str:
    """Returns the expression for a parameter of a route, or for the text between two."""
    if not part.startswith("{"):
        return re.escape(part)
    return ".*" if part.endswith(":path}") else "[^/]+"


def _route_path(path: str, root_path: str) -> str:
    """Returns the path that the app's router looks for, as Starlette's does. Servers put the root
    path in front, old ones and FastAPI's own do not."""
    below = path.removeprefix(root_path)
    return below if below == "" or below.startswith("/") else path


def _view(scope: Scope) -> View[Scope]:
    def header(name: str) -> list[str]:
        key = name.lower().encode()
        return [value.decode("latin-1") for k, value in scope["headers"] if k.lower() == key]

    client = scope.get("client")
    return View(scope, client[0] if client else None, header)


def _raw(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in verdict.headers.items()]


async def _answer(verdict: Verdict, scope: Scope, receive: Receive, send: Send) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        if (await receive())["type"] != "websocket.connect":
            return  # the client has gone
        kind = "websocket.http.response"
        if kind not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})  # servers answer 403
            return
    headers = [*_raw(verdict), (b"content-length", str(len(verdict.body)).encode())]
    await send({"type": f"{kind}.start", "status": verdict.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": verdict.body})


def _releasing(release: AsyncRelease, send: Send) -> Send:
    """Releases units just before the body of the response ends. What the app does after it, such as
    tasks in the background, is not under way."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await release()
        await send(message)

    return sending


def _with_headers(verdict: Verdict, send: Send) -> Send:
    """Adds the headers of a verdict to the response, where it does not have them already, as from
    a limit further in."""

    async def sending(message: Message) -> None:
        if message["type"] in _HAVE_HEADERS:
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            added = [(name, value) for name, value in _raw(verdict) if name not in names]
            message = {**message, "headers": [*headers, *added]}
        await send(message)

    return sending

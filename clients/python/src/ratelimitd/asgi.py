"""Middleware of Starlette, FastAPI, and every other app of ASGI::

app.add_middleware(
    RateLimit, client=client, routes={"POST /login": "login", "/api/": "api"}
)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from ._aio import AsyncClient
from ._answer import Verdict
from ._call import Call
from ._decision import Decision
from ._errors import CallError
from ._identify import View
from ._limiter import Limiter, LimiterOptions, Rule, Rules, rules_of

__all__ = ["LimiterOptions", "RateLimit", "Rule", "decision_of"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_DECISION = "ratelimitd.decision"


def decision_of(scope: Mapping[str, Any]) -> Decision | None:
    """Returns the decision that let a request pass, for a handler that refunds its receipt; None:
    nobody decided. Starlette's requests are such a mapping."""
    decision: Decision | None = scope.get(_DECISION)
    return decision


class RateLimit:
    """Limits the requests that ``routes`` name; the scope of a request is what functions of rules
    are given.

    A route is a path, or a method and a path: ``POST /login``. A path that ends in a slash is all
    below it, and ``{name}`` is any one segment. The first that fits a request decides; one that
    fits none is not limited.
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        verdict = await self._decide(scope)
        if verdict.status is not None:
            await _answer(verdict, send)
            return
        scope[_DECISION] = verdict.decision
        await self._app(scope, receive, _with_headers(verdict, send))

    async def _decide(self, scope: Scope) -> Verdict:
        rules = self._rules_for(scope["method"], scope["path"])
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
        if not path.startswith("/"):
            raise ValueError(f"ratelimitd: route {route!r}: write such as /api/ or POST /login")
        self._method = method.upper()
        self._segments = path.split("/")
        self._subtree = path.endswith("/")

    def fits(self, method: str, path: str) -> bool:
        if self._method and self._method != method:
            return False
        segments = path.split("/")
        if self._subtree and len(self._segments) > 2:
            wanted = self._segments[:-1]
            if len(segments) <= len(wanted):
                return False
            segments = segments[: len(wanted)]
        else:
            wanted = self._segments
        return len(segments) == len(wanted) and all(map(_fits, wanted, segments))


def _fits(wanted: str, segment: str) -> bool:
    return wanted == segment or (wanted.startswith("{") and wanted.endswith("}") and segment != "")


def _view(scope: Scope) -> View[Scope]:
    def header(name: str) -> list[str]:
        key = name.lower().encode()
        return [value.decode("latin-1") for k, value in scope["headers"] if k.lower() == key]

    client = scope.get("client")
    return View(scope, scope["method"], client[0] if client else None, header)


def _raw(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in verdict.headers.items()]


async def _answer(verdict: Verdict, send: Send) -> None:
    headers = [*_raw(verdict), (b"content-length", str(len(verdict.body)).encode())]
    await send({"type": "http.response.start", "status": verdict.status, "headers": headers})
    await send({"type": "http.response.body", "body": verdict.body})


def _with_headers(verdict: Verdict, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_raw(verdict)]
        await send(message)

    return sending

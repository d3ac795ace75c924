"""Decorators of Django views::

    limit = limiter(client)

    @limit("login")
    def login(request): ...

With an AsyncClient they are for views that are coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar, overload

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ._aio import AsyncClient
from ._answer import Verdict
from ._call import Call
from ._decision import Decision
from ._errors import CallError
from ._identify import View
from ._limiter import Limiter, LimiterOptions, Rule, Rules, rules_of
from ._release import AsyncRelease, Release
from ._sync import Client

__all__ = ["LimiterOptions", "Rule", "decision_of", "limiter"]

DjangoView = Callable[..., HttpResponseBase]
AsyncDjangoView = Callable[..., Awaitable[HttpResponseBase]]
V = TypeVar("V", DjangoView, AsyncDjangoView)
_DECISION = "ratelimitd_decision"


def decision_of(request: HttpRequest) -> Decision | None:
    """Returns the decision that let a request pass, for a view that refunds its receipt; None:
    there is none."""
    decision: Decision | None = getattr(request, _DECISION, None)
    return decision


@overload
def limiter(
    client: Client, options: LimiterOptions[HttpRequest] | None = None
) -> Callable[[Rules[HttpRequest]], Callable[[DjangoView], DjangoView]]: ...
@overload
def limiter(
    client: AsyncClient, options: LimiterOptions[HttpRequest] | None = None
) -> Callable[[Rules[HttpRequest]], Callable[[AsyncDjangoView], AsyncDjangoView]]: ...
def limiter(
    client: Client | AsyncClient, options: LimiterOptions[HttpRequest] | None = None
) -> Callable[[Rules[HttpRequest]], Callable[[Any], Any]]:
    """Returns a function that makes decorators from rules, whose functions get the request."""
    limits = Limiter[HttpRequest](options)

    def limit(rules: Rules[HttpRequest]) -> Callable[[Any], Any]:
        listed = rules_of(rules)
        if isinstance(client, AsyncClient):
            return lambda view: _async_view(client, limits, listed, view)
        return lambda view: _view(client, limits, listed, view)

    return limit


def _view(
    client: Client, limits: Limiter[HttpRequest], rules: list[Rule[HttpRequest]], view: DjangoView
) -> DjangoView:
    if iscoroutinefunction(view):
        raise TypeError(
            "ratelimitd: a view that is a coroutine needs the limiter of an AsyncClient"
        )

    @wraps(view)
    def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        call = limits.call_of(_seen(request), rules)
        if isinstance(call, Call):
            call = limits.verdict_of(request, call, _outcome(client, call))
        if denial := _denial(request, call):
            return denial
        release = Release(client, limits, call)
        try:
            response = view(request, *args, **kwargs)
        except BaseException:
            release()
            raise
        if _is_streamed(response):
            _at_close(response, release)
        else:
            release()
        return _headed(response, call)

    return limited


def _async_view(
    client: AsyncClient,
    limits: Limiter[HttpRequest],
    rules: list[Rule[HttpRequest]],
    view: AsyncDjangoView,
) -> AsyncDjangoView:
    @wraps(view)
    async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        call = limits.call_of(_seen(request), rules)
        if isinstance(call, Call):
            call = limits.verdict_of(request, call, await _async_outcome(client, call))
        if denial := _denial(request, call):
            return denial
        release = AsyncRelease(client, limits, call)
        try:
            response = await view(request, *args, **kwargs)
        except BaseException:
            await release()
            raise
        if _is_streamed(response):
            _at_close(response, release.from_threads())
        else:
            await release()
        return _headed(response, call)

    return limited


def _outcome(client: Client, call: Call) -> Decision | CallError:
    try:
        return client.do(call)
    except CallError as error:
        return error


async def _async_outcome(client: AsyncClient, call: Call) -> Decision | CallError:
    try:
        return await client.do(call)
    except CallError as error:
        return error


def _seen(request: HttpRequest) -> View[HttpRequest]:
    def header(name: str) -> list[str]:
        value = request.headers.get(name)
        return [] if value is None else [value]

    address = request.META.get("REMOTE_ADDR")
    return View(request, address or None, header)


def _denial(request: HttpRequest, verdict: Verdict) -> HttpResponse | None:
    """Returns the answer to a request that does not pass."""
    if verdict.status is None:
        setattr(request, _DECISION, verdict.decision)
        return None
    return HttpResponse(verdict.body, status=verdict.status, headers=dict(verdict.headers))


def _is_streamed(response: HttpResponseBase) -> bool:
    return getattr(response, "streaming", False)


def _at_close(response: HttpResponseBase, then: Callable[[], None]) -> None:
    """Makes Django call a function when it closes a response, as for its own."""
    response._resource_closers.append(then)  # type: ignore[attr-defined]


def _headed(response: HttpResponseBase, verdict: Verdict) -> HttpResponseBase:
    for name, value in verdict.headers.items():
        response.headers.setdefault(name, value)  # or that of an inner limit
    return response

"""Decorators of Flask views::

limit = limiter(client)

@app.post("/login")
@limit("login")
def login(): ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from flask import Request, Response, current_app, g, make_response, request
from flask.typing import ResponseReturnValue
from werkzeug.wsgi import ClosingIterator

from ._answer import Verdict
from ._call import Call
from ._decision import Decision
from ._errors import CallError
from ._identify import View
from ._limiter import Limiter, LimiterOptions, Rule, Rules, rules_of
from ._release import Release
from ._sync import Client

__all__ = ["LimiterOptions", "Rule", "decision", "limiter"]

P = ParamSpec("P")
FlaskView = Callable[P, ResponseReturnValue]


def decision() -> Decision | None:
    """Returns the decision that let the request pass, for a view that refunds its receipt; None:
    there is none."""
    made: Decision | None = g.get("ratelimitd_decision")
    return made


def limiter(
    client: Client, options: LimiterOptions[Request] | None = None
) -> Callable[[Rules[Request]], Callable[[FlaskView[P]], Callable[P, Response]]]:
    """Returns a function that makes decorators from rules, whose functions get the request."""
    limits = Limiter[Request](options)

    def limit(rules: Rules[Request]) -> Callable[[FlaskView[P]], Callable[P, Response]]:
        listed = rules_of(rules)

        def decorate(view: FlaskView[P]) -> Callable[P, Response]:
            @wraps(view)
            def limited(*args: P.args, **kwargs: P.kwargs) -> Response:
                verdict = _decide(client, limits, listed)
                if verdict.status is not None:
                    return Response(verdict.body, verdict.status, dict(verdict.headers))
                g.ratelimitd_decision = verdict.decision
                release = Release(client, limits, verdict)
                try:
                    response = make_response(current_app.ensure_sync(view)(*args, **kwargs))
                except BaseException:
                    release()
                    raise
                if release.needed and response.is_streamed:
                    # Werkzeug closes files without a call of call_on_close.
                    body: Any = response.response  # of bytes or of str
                    response.response = ClosingIterator(body, [release])
                else:
                    release()
                for name, value in verdict.headers.items():
                    response.headers.setdefault(name, value)  # or that of an inner limit
                return response

            return limited

        return decorate

    return limit


def _decide(client: Client, limits: Limiter[Request], rules: list[Rule[Request]]) -> Verdict:
    this = request._get_current_object()  # type: ignore[attr-defined]
    view = View(this, request.remote_addr, request.headers.getlist)
    call = limits.call_of(view, rules)
    if isinstance(call, Verdict):
        return call
    return limits.verdict_of(this, call, _outcome(client, call))


def _outcome(client: Client, call: Call) -> Decision | CallError:
    try:
        return client.do(call)
    except CallError as error:
        return error

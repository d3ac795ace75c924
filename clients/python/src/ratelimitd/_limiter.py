"""Limits requests by ratelimitd's policies, independently of the framework: adapters do the
rest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._answer import Verdict, denied, passed, problem, unavailable
from ._call import Call, Demand
from ._callback import raised_by
from ._decision import Decision
from ._errors import (
    CallError,
    CostTooLargeError,
    InvalidCallError,
    NoReceiptError,
    UnavailableError,
)
from ._failure import Problem
from ._identify import By, View, check_by, identify, parse_proxies

R = TypeVar("R")


# Before Python 3.13, a class with slots that is frozen and generic can't be made as Rule[R](…).
@dataclass(frozen=True)
class Rule(Generic[R]):
    """The units that a request takes."""

    policy: str
    by: By[R] | None = None
    """The source of the identifier; None: as in the options."""
    cost: int | Callable[[R], int] | None = None
    """Units; less than 1: the rule does not limit this request; None: as the options say."""
    limit: Callable[[R], int | None] | None = None
    """The limit of the request, under a policy that takes its limit from requests; None:
    the policy's default. Take it from the application's own data about its customer, never from
    the request itself."""


Rules = str | Rule[R] | Sequence[str | Rule[R]]
"""A policy, a rule, or several that are allowed or denied together: one request to ratelimitd
takes them all."""


@dataclass(frozen=True, kw_only=True)
class LimiterOptions(Generic[R]):
    """Options of middleware. The defaults suit a service without a proxy in front."""

    trusted_proxies: Sequence[str] = ()
    """Addresses and networks of proxies whose X-Forwarded-For is trusted; ``unix`` is a proxy that
    connects through a unix socket."""
    by: By[R] = "ip"
    """The source of the identifier, for rules without ``by``."""
    cost: int | Callable[[R], int] = 1
    """Units, for rules without ``cost``."""
    skip: Callable[[R], bool] | None = None
    """Requests that are not limited; None: all are."""
    fail_closed: bool = False
    """Answers 503 without a decision, instead of letting the request pass."""
    on_undecided: Callable[[R, Call, CallError], None] | None = None
    """Called with every call without a decision, with its policies and identifiers, and the error.
    It must not block. Its errors are logged."""
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("ratelimitd"))
    """Gets at most one line a second about such calls, and one about units that are not
    released."""


_MAX_UNITS = 1_000_000_000_000
_LOG_INTERVAL = 1.0  # seconds


class Limiter(Generic[R]):
    """Makes calls from requests, and answers from decisions. An adapter makes the calls, by a
    client of its kind."""

    def __init__(self, options: LimiterOptions[R] | None) -> None:
        self._options: LimiterOptions[R] = options or LimiterOptions()
        check_by(self._options.by)
        _check_cost(self._options.cost)
        self._trusted = parse_proxies(self._options.trusted_proxies)
        self._logged_at = self._unreleased_at = float("-inf")

    def call_of(self, view: View[R], rules: Sequence[Rule[R]]) -> Call | Verdict:
        """Returns the call to make for a request, or the verdict where none is needed."""
        if self._options.skip and self._options.skip(view.request):
            return Verdict()
        demands: dict[tuple[str, str], Demand] = {}
        for rule in rules:
            identifier = identify(rule.by or self._options.by, view, self._trusted)
            if identifier is None:
                detail = "A proxy in front of this service does not tell which address it asks for."
                return problem(400, "Bad Request", detail)
            cost = min(self._cost(view.request, rule), _MAX_UNITS)
            if cost >= 1:
                limit = rule.limit(view.request) if rule.limit else None
                demand = Demand(rule.policy, identifier, cost, limit)
                demands.setdefault((rule.policy, identifier), demand)
        return Call("take", list(demands.values())) if demands else Verdict()

    def verdict_of(self, request: R, call: Call, outcome: Decision | CallError) -> Verdict:
        """Returns the verdict on a request after its call."""
        if isinstance(outcome, CostTooLargeError):
            detail = "It costs more than its limit can ever hold."
            return problem(413, "Request Entity Too Large", detail)
        if isinstance(outcome, InvalidCallError) and _refuses_identifier(outcome.problem):
            # It must not pass, because it would evade its limit.
            return problem(400, "Bad Request", outcome.problem.detail if outcome.problem else "")
        if isinstance(outcome, CallError):
            return self._undecided(request, call, outcome)
        if not outcome.limits and outcome.degraded:
            # The client fails open, and has reported it.
            error = UnavailableError("take", outcome.recorded, "the client fails open")
            return self._undecided(request, call, error)
        return passed(outcome) if outcome.allowed else denied(outcome)

    def log_unreleased(self, error: Exception) -> None:
        """Logs that units under concurrent limits could not be given back."""
        now = time.monotonic()
        if isinstance(error, NoReceiptError) or now - self._unreleased_at < _LOG_INTERVAL:
            return
        self._unreleased_at = now
        message = "ratelimitd: units under concurrent limits count until their hold ends: %s"
        self._options.logger.error(message, error)

    def _undecided(self, request: R, call: Call, error: CallError) -> Verdict:
        options = self._options
        raised = raised_by(options.on_undecided, request, call, error)
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = now
            what = "are refused" if options.fail_closed else "pass without a limit"
            policies = ", ".join(d.policy for d in call.demands)
            message = "ratelimitd does not decide: requests %s (%s: %s)"
            options.logger.error(message, what, policies, error)
            if raised:
                options.logger.error("ratelimitd: on_undecided raised %s", raised)
        return unavailable() if options.fail_closed else Verdict()

    def _cost(self, request: R, rule: Rule[R]) -> int:
        cost = self._options.cost if rule.cost is None else rule.cost
        return _int_of(cost(request) if callable(cost) else cost)


def _int_of(cost: object) -> int:
    if type(cost) is not int:
        raise TypeError(f"ratelimitd: cost is of type {type(cost).__name__}: it must be an int")
    return cost


def _check_cost(cost: int | Callable[[R], int]) -> None:
    if not callable(cost):
        _int_of(cost)


def _refuses_identifier(wrong: Problem | None) -> bool:
    return wrong is not None and wrong.field is not None and wrong.field.endswith("identifier")


def rules_of(rules: Rules[R]) -> list[Rule[R]]:
    """Returns rules as a list of Rule."""
    items = [rules] if isinstance(rules, (str, Rule)) else rules
    listed = [Rule(item) if isinstance(item, str) else item for item in items]
    for rule in listed:
        check_by(rule.by or "ip")
        if rule.cost is not None:
            _check_cost(rule.cost)
        if rule.limit is not None and not callable(rule.limit):
            what = type(rule.limit).__name__
            raise TypeError(f"ratelimitd: limit is of type {what}: it must be a function")
    return listed

"""Reads the service's answers. It raises UnreadableError for unexpected ones."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeVar

from ._decision import Decision, DemandDecision, Explanation, LimitDecision, LimitExplanation
from ._failure import Failure, Problem

Confirmed = Literal["confirmed"]
"""The service's answer to a confirm."""
Answer = Decision | Confirmed | Failure
"""The service's answer to one call."""

_BATCH_RETRY_AFTER = 1.0
"""The Retry-After of a 503, because results of a batch have none."""


class UnreadableError(Exception):
    """A body that is not ratelimitd's."""


def parse(body: bytes | str) -> Any:
    """Reads JSON."""
    try:
        return json.loads(body)
    except ValueError:
        raise UnreadableError("its body cannot be read") from None


def read_answer(status: int, body: Any, retry_after: float, replayed: bool = False) -> Answer:
    """Reads the body of an answer to one call."""
    m = _Members(body)
    allowed = m.optional("allowed", bool)
    if (status == 200 and allowed is True) or (status == 429 and allowed is False):
        return _decision(m, replayed or m.optional("replayed", bool) is True)
    if status == 200 and allowed is None and m.optional("confirmed", bool) is not None:
        return "confirmed"
    return read_problem(status, body, retry_after)


def read_problem(status: int, body: Any, retry_after: float) -> Failure:
    """Reads the body of an answer without a decision."""
    m = _Members(body)
    if status < 400 or status == 429 or m.get("status", int) != status:
        raise UnreadableError("its status and its members disagree")
    field = m.optional("field", str)
    problem = Problem(
        type=m.get("type", str),
        title=m.get("title", str),
        status=status,
        detail=m.get("detail", str),
        field=field and field.replace("Idempotency-Key", "idempotency_key"),
        recorded=m.optional("recorded", str),  # type: ignore[arg-type]
    )
    return Failure.of_problem(problem, retry_after)


def read_result(result: Any) -> Answer:
    """Reads a result of a batch, as if its call had been sent alone."""
    m = _Members(result)
    status = m.get("status", int)
    if field := m.optional("field", str):
        result = {**result, "field": re.sub(r"^operations\[\d+\]\.", "", field)}
    return read_answer(status, result, _BATCH_RETRY_AFTER if status == 503 else 0)


def read_results(body: Any, n: int) -> list[Answer]:
    """Reads the body of a batch's answer, with a result for each of n operations."""
    results = _Members(body).get("results", list)
    if len(results) != n:
        raise UnreadableError("it has not one result for each operation")
    return [read_result(r) for r in results]


def read_line(line: bytes) -> tuple[int, Answer]:
    """Reads a line of a batch's answer: the index of the operation, and its answer."""
    body = parse(line)
    return _Members(body).get("index", int), read_result(body)


def read_explanation(body: Any) -> Explanation:
    """Reads the answer to explain."""
    m = _Members(body)
    return Explanation(
        policy=m.get("policy", str),
        key=m.get("key", str),
        allowed=m.get("allowed", bool),
        would_allow=m.get("would_allow", bool),
        because=m.get("because", str),
        detail=m.get("detail", str),
        retry_after=m.wait(),
        denied_by=tuple(m.get("denied_by", list)),
        mode=m.get("mode", str),  # type: ignore[arg-type]
        guarantee=m.get("guarantee", str),
        degraded=m.get("degraded", bool),
        limits=tuple(
            LimitExplanation(policy_limit=limit.get("policy_limit", int), **_limit_members(limit))
            for limit in map(_Members, m.get("limits", list))
        ),
        override=m.optional("override", dict),
        block=m.optional("block", dict),
        reset_at=m.optional("reset_at", str),
        derived=tuple(read_explanation(d) for d in m.optional("derived", list) or ()),
    )


T = TypeVar("T")


class _Members:
    """The members of an object, checked for their types."""

    def __init__(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise UnreadableError("it has something else than an object")
        self._members: dict[str, Any] = value

    def get(self, name: str, kind: type[T]) -> T:
        value = self._members.get(name)
        if type(value) is not kind or (kind is int and value < 0):  # type: ignore[operator]
            raise UnreadableError(f"{name} is no {kind.__name__}")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        return None if self._members.get(name) is None else self.get(name, kind)

    def seconds(self, name: str) -> float:
        return self.get(name, int) / 1000

    def wait(self) -> float | None:
        if self._members.get("retry_after_ms", 0) is None:
            return None
        return self.seconds("retry_after_ms")


def _decision(m: _Members, replayed: bool) -> Decision:
    return Decision(
        **_demand_members(m),
        receipt=m.optional("receipt", str),
        release=m.optional("release", str),
        reservation=m.optional("reservation", str),
        replayed=replayed,
        demands=tuple(
            DemandDecision(**_demand_members(_Members(d)))
            for d in m.optional("demands", list) or ()
        ),
    )


def _demand_members(m: _Members) -> dict[str, Any]:
    allowed = m.get("allowed", bool)
    would_allow = m.optional("would_allow", bool)
    return {
        "allowed": allowed,
        "would_allow": allowed if would_allow is None else would_allow,
        "policy": m.get("policy", str),
        "limit": m.get("limit", int),
        "remaining": m.get("remaining", int),
        "used": m.get("used", int),
        "reset_after": m.seconds("reset_after_ms"),
        "retry_after": m.wait(),
        "limits": tuple(
            LimitDecision(**_limit_members(limit)) for limit in map(_Members, m.get("limits", list))
        ),
        "mode": m.get("mode", str),
        "override": m.optional("override", str),
        "blocked": m.optional("blocked", bool) is True,
        "reason": m.optional("reason", str),
        "degraded": m.get("degraded", bool),
        "recorded": m.optional("recorded", str),
        "settled": m.optional("settled", int),
        "over": m.optional("over", int),
    }


def _limit_members(m: _Members) -> dict[str, Any]:
    return {
        "name": m.get("name", str),
        "algorithm": m.get("algorithm", str),
        "limit": m.get("limit", int),
        "window": m.seconds("window_ms"),
        "allowed": m.get("allowed", bool),
        "used": m.get("used", int),
        "remaining": m.get("remaining", int),
        "reset_after": m.seconds("reset_after_ms"),
        "retry_after": m.wait(),
        "would_deny": m.optional("would_deny", bool),
    }

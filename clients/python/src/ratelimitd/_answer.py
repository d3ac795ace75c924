"""The answers to limited requests, with the headers of ratelimitd's own answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._decision import Decision, LimitDecision

_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_REDUCED = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
# The greatest Integer of a structured field (RFC 9651, section 3.3.1).
_MAX_FIELD_INTEGER = 999_999_999_999_999


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a request: it passes if there is no status."""

    headers: Mapping[str, str] = field(default_factory=dict)
    decision: Decision | None = None
    status: int | None = None
    body: bytes = b""


def problem(
    status: int,
    title: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    kind: str = "about:blank",
) -> Verdict:
    """Answers with a problem of RFC 9457."""
    members = {"type": kind, "title": title, "status": status, "detail": detail}
    all_headers = {**(headers or {}), "Content-Type": "application/problem+json"}
    return Verdict(all_headers, None, status, json.dumps(members).encode() + b"\n")


def denied(decision: Decision) -> Verdict:
    """Answers a request that is over its limit."""
    wait = "Waiting would not change that."
    if decision.retry_after is not None:
        wait = f"There is room for it in {math.ceil(decision.retry_after)} s."
    detail = f"This is over its limit. {wait}"
    return problem(429, "Quota Exceeded", detail, _headers(decision), _QUOTA_EXCEEDED)


def unavailable() -> Verdict:
    """Answers a request without a decision."""
    detail = "Nobody can tell whether this is within its limit. Try again shortly."
    return problem(503, "Temporary Reduced Capacity", detail, {"Retry-After": "1"}, _REDUCED)


def passed(decision: Decision) -> Verdict:
    """Lets a request pass."""
    return Verdict(_headers(decision), decision)


def _headers(d: Decision) -> dict[str, str]:
    """Returns the headers of ratelimitd's own answers. A client that fails open has none."""
    if not d.limits:
        return {}
    enforced = [x for x in d.limits if x.would_deny is None]
    headers = {
        "X-RateLimit-Limit": str(d.limit),
        "X-RateLimit-Remaining": str(d.remaining),
        "X-RateLimit-Reset": str(math.ceil(d.reset_after)),
        "RateLimit-Policy": ", ".join(_policy_item(x) for x in enforced),
        "RateLimit": ", ".join(
            _item(x, "r", x.remaining, "t", _more_after(d, x)) for x in enforced
        ),
    }
    if not d.allowed and d.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(d.retry_after)))
    return headers


def _more_after(d: Decision, limit: LimitDecision) -> float | None:
    """Returns the seconds until there are more units, as in ratelimitd's own answers.

    None: no wait helps, or that is later than Retry-After.
    """
    after = limit.reset_after if limit.allowed else limit.retry_after
    if after is None or d.allowed or d.retry_after is None or after <= d.retry_after:
        return after
    return None


def _policy_item(limit: LimitDecision) -> str:
    if limit.algorithm == "concurrent":  # it has no window
        return _item(limit, "q", limit.limit, "w", None) + ';qu="concurrent-requests"'
    return _item(limit, "q", limit.limit, "w", limit.window)


def _item(limit: LimitDecision, first: str, units: int, second: str, seconds: float | None) -> str:
    item = f'"{limit.name}";{first}={min(units, _MAX_FIELD_INTEGER)}'
    return item if seconds is None else f"{item};{second}={math.ceil(seconds)}"

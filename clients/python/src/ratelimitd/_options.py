from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import httpx2

from ._call import Call
from ._errors import CallError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a client. The defaults suit most. Times are in seconds."""

    timeout: float = 2.0
    """The timeout of a call with all its attempts, at most a day. The default is well over the
    service's own store timeout."""

    on_unavailable: Literal["fail-closed", "fail-open"] = "fail-closed"
    """The result of a call while no ratelimitd answers: an UnavailableError; or, for
    ``fail-open``, a decision that allows and is ``degraded``. Each of those is counted
    (``client.failed_open``) and reported (``on_failed_open``), and the log has a line a second. It
    does not apply to denials, or to errors of a service that answers."""

    on_failed_open: Callable[[Call, CallError], None] | None = None
    """Called with every call that ``fail-open`` allowed, and the error that it would have had. It
    is called on the client's event loop, and must not block. Its errors are logged."""

    retries: int = 0
    """The number of further attempts at a call without an answer, if it cannot count twice. If it
    is not 0, the client gives takes and records an idempotency key; the service keeps these keys,
    at some cost."""

    concurrency: int = 2
    """The number of concurrent requests, beyond which calls wait and share one."""

    disable_batching: bool = False
    """Sends every call as a request of its own."""

    max_failures: int = 5
    """Failures in a row after which calls fail at once until a probe succeeds."""

    probe_interval: float = 1.0
    """Between that and a probe, and between probes."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request, such as ``Authorization``."""

    transport: Callable[[], httpx2.AsyncBaseTransport] | None = None
    """Makes the transport of requests, for TLS and for an HTTP proxy: ``lambda:
    httpx2.AsyncHTTPTransport(verify=…, proxy=…)``. None: requests go straight to the service;
    HTTP_PROXY and its like are ignored. It is called for each event loop."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("ratelimitd"))
    """A line when the service goes and comes back, and a second while calls fail open."""

    def __post_init__(self) -> None:
        for name in ("timeout", "probe_interval"):
            what = "a number of seconds, more than 0 and at most 86400"
            self._want(name, is_number(getattr(self, name), 0, MAX_SECONDS), what)
        for name, least in (("concurrency", 1), ("max_failures", 1), ("retries", 0)):
            value = getattr(self, name)
            self._want(name, type(value) is int and value >= least, f"an int of {least} or more")
        known = self.on_unavailable in ("fail-closed", "fail-open")
        self._want("on_unavailable", known, "fail-closed or fail-open")
        for name, text in self.headers.items():
            if not (isinstance(text, str) and _HEADER_VALUE.fullmatch(text)):
                what = "must be a str without line feeds, and without blanks at its ends"
                raise ValueError(f"ratelimitd: headers[{name!r}] {what}")  # it may be a secret

    def _want(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"ratelimitd: {name} is {getattr(self, name)!r}: it must be {what}")


MAX_SECONDS = 86_400  # the longest wait of event loops
_HEADER_VALUE = re.compile(r"(?! )[^\x00-\x1f\x7f]*(?<! )")


def is_number(value: object, over: float, most: float) -> bool:
    """Whether value is a number within bounds, which neither infinity nor NaN is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return over < value <= most

"""Sends a request once over HTTP, and reads the answer's head. It does not know calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from ._failure import Failure
from ._trace import Trace
from ._wire import UnreadableError, parse

_JSON = "application/json"
_PROBLEM = "application/problem+json"
_LINES = "application/x-ndjson"
_MAX_RETRY_AFTER = 3600.0  # seconds: longer than any call waits
# Seconds: shorter than the service's two minutes, so that this end closes first.
_KEEPALIVE = 90.0

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the service."""

    status: int
    retry_after: float
    replayed: bool
    body: Any = None
    """None if there is none, or ``on_line`` got it."""
    in_lines: bool = False


class Transport:
    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        transport: httpx2.AsyncBaseTransport | None,
        timeout: float,
    ) -> None:
        """For calls of timeout seconds. A connection has half of them, so that a call that cannot
        reach the service ends knowing that it was not sent. An event loop that many calls keep
        busy takes as long to see that it is connected."""
        url = httpx2.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("ratelimitd: base_url must be such as http://127.0.0.1:8080")
        if url.userinfo or url.query or url.fragment:
            raise ValueError("ratelimitd: base_url must have no user, query or fragment")
        if transport is None:
            # Of certificates, SSL_CERT_FILE and SSL_CERT_DIR name others than the system's.
            verify = httpx2.create_ssl_context() if url.scheme == "https" else False
            limits = httpx2.Limits(keepalive_expiry=_KEEPALIVE)
            transport = httpx2.AsyncHTTPTransport(verify=verify, limits=limits, trust_env=False)
        self._base = f"{str(url).rstrip('/')}/v1/"
        self._http = httpx2.AsyncClient(
            headers={**headers, "Content-Type": _JSON},
            timeout=httpx2.Timeout(None, connect=timeout / 2),  # a call ends its requests
            transport=transport,
            trust_env=False,  # a proxy of the environment must not learn tokens and identifiers
        )

    async def post(
        self,
        route: str,
        body: bytes,
        *,
        idempotency_key: str | None = None,
        trace: Trace | None = None,
        on_line: Callable[[bytes], None] | None = None,
    ) -> Reply | Failure:
        """Posts a body to a route, and reads the answer. ``on_line`` gets one line by line, as the
        lines arrive."""
        headers = {
            "Accept": f"{_LINES}, {_JSON}, {_PROBLEM}" if on_line else f"{_JSON}, {_PROBLEM}"
        }
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if trace is not None:
            headers |= trace.headers
        try:
            async with self._http.stream(
                "POST", self._base + route, content=body, headers=headers
            ) as response:
                return await _read(response, on_line)
        except Exception as error:  # a transport of Options may raise any error
            sent = not isinstance(error, _NOT_SENT)
            return Failure("connection", f"no answer: {type(error).__name__}", sent, cause=error)

    async def close(self) -> None:
        await self._http.aclose()


async def _read(
    response: httpx2.Response, on_line: Callable[[bytes], None] | None
) -> Reply | Failure:
    status, headers = response.status_code, response.headers
    retry_after = _seconds(headers.get("Retry-After", ""))
    replayed = headers.get("Idempotent-Replayed") == "true"
    media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    try:
        if on_line and status == 200 and media_type == _LINES:
            async for line in _lines(response):
                on_line(line)
            return Reply(status, retry_after, replayed, in_lines=True)
        body = await response.aread()
        if status == 204:
            return Reply(status, retry_after, replayed)
        wanted = _JSON if status < 300 else _PROBLEM
        if media_type != wanted:
            return Failure.foreign(status, f"not {wanted}", retry_after)
        return Reply(status, retry_after, replayed, parse(body))
    except UnreadableError as error:
        return Failure.foreign(status, str(error), retry_after)


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


def _seconds(text: str) -> float:
    return min(float(text), _MAX_RETRY_AFTER) if text.isascii() and text.isdigit() else 0

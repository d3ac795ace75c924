"""The counted caller is the same as at the other entrances of ratelimitd."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ratelimitd import Call
from ratelimitd._identify import View, identify, parse_proxies
from ratelimitd._limiter import Limiter
from ratelimitd.asgi import LimiterOptions, Rule
from ratelimitd.flask import limiter
from service import SUITE


@pytest.mark.parametrize("case", json.loads((SUITE / "addresses.json").read_text()))
def test_addresses(case: Any) -> None:
    assert _who("127.0.0.1", ["127.0.0.0/8"], case["address"]) == case["caller"], case["why"]


@pytest.mark.parametrize(
    ("peer", "trusted", "forwarded_for", "want"),
    [
        (None, ["unix"], "203.0.113.7", "203.0.113.7"),
        ("", ["unix"], "203.0.113.7", "203.0.113.7"),
        ("/run/app.sock", ["10.0.0.0/8", "unix"], "203.0.113.7, 10.0.0.1", "203.0.113.7"),
        (None, ["unix"], "203.0.113.7, 10.0.0.1", "10.0.0.1"),
        (None, ["unix"], "unknown", None),
        (None, ["unix"], "", "unknown"),
        (None, ["0.0.0.0/0", "::/0"], "203.0.113.7", "unknown"),
        ("127.0.0.1", ["unix"], "203.0.113.7", "127.0.0.1"),
        ("::ffff:10.0.0.1", ["10.0.0.0/8"], "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", ["::ffff:10.0.0.0/104"], "203.0.113.7", "203.0.113.7"),
        # Anybody can have an IPv6 address that contains a proxy's address.
        ("2002:a00:1::1", ["10.0.0.0/8"], "203.0.113.7", "10.0.0.1"),
        ("64:ff9b::10.0.0.1", ["10.0.0.0/8"], "203.0.113.7", "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.1"], "203.0.113.7%eth0", None),
        ("10.0.0.1", ["10.0.0.1"], "fe80::1%", None),
    ],
)
def test_proxies(
    peer: str | None, trusted: list[str], forwarded_for: str, want: str | None
) -> None:
    assert _who(peer, trusted, forwarded_for) == want


def _who(peer: str | None, trusted: Sequence[str], forwarded_for: str) -> str | None:
    def header(name: str) -> list[str]:
        return [forwarded_for] if name == "X-Forwarded-For" else []

    return identify("ip", View(None, peer, header), parse_proxies(trusted))


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (b"anna", "anna"),
        ("jörg".encode(), "jörg"),
        (b"j\xf6rg", "sha256\n" + hashlib.sha256(b"j\xf6rg").hexdigest()),
    ],
)
def test_a_name_is_utf_8_as_at_other_entrances(raw: bytes, want: str) -> None:
    view = View(None, None, lambda _: [raw.decode("latin-1")])
    assert identify("header:X-User", view, parse_proxies([])) == want


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"by": "X-User"}, ValueError, "identifies nobody"),
        ({"by": "header:"}, ValueError, "identifies nobody"),
        ({"by": "header:X User"}, ValueError, "identifies nobody"),
        ({"by": 7}, ValueError, "identifies nobody"),
        ({"cost": 1.5}, TypeError, "cost is of type float: it must be an int"),
        ({"trusted_proxies": "10.0.0.0/8"}, TypeError, "trusted_proxies is .*: it must be a list"),
        ({"trusted_proxies": ["10.0.0.1/8"]}, ValueError, "trusted_proxies has '10.0.0.1/8'"),
        ({"trusted_proxies": ["Unix"]}, ValueError, "write 10.0.0.0/8, 192.0.2.7 or unix"),
        ({"trusted_proxies": [7]}, ValueError, "trusted_proxies has 7"),
    ],
)
def test_wrong_options_are_refused(
    wrong: dict[str, Any], error: type[Exception], told: str
) -> None:
    client: Any = None  # it gets no calls
    with pytest.raises(error, match=told):
        limiter(client, LimiterOptions(**wrong))


def test_wrong_rules_are_refused() -> None:
    client: Any = None
    cost: Any = "1"
    with pytest.raises(TypeError, match="cost is of type str: it must be an int"):
        limiter(client)(Rule("web", cost=cost))


def test_a_rule_has_the_limit_of_its_request() -> None:
    made = Limiter[Any](LimiterOptions(by=lambda _: "alice"))
    rules: list[Rule[Any]] = [
        Rule("web", limit=lambda request: request),
        Rule("other"),
    ]
    call = made.call_of(View(5000, None, lambda _: []), rules)
    assert isinstance(call, Call)
    assert [d.limit for d in call.demands] == [5000, None]
    client: Any = None
    limit: Any = 5
    with pytest.raises(TypeError, match="limit is of type int: it must be a function"):
        limiter(client)(Rule("web", limit=limit))


def test_an_identifier_is_a_text() -> None:
    by: Any = lambda _: 7  # noqa: E731
    with pytest.raises(TypeError, match="by returned int: it must return a str, or None"):
        identify(by, View(None, None, lambda _: []), parse_proxies([]))

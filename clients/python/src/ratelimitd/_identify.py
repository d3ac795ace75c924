"""Who sent a request, told as the other ways into ratelimitd tell it."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

By = str | Callable[[R], str | None]
"""Who is counted: ``ip``, the client's address; ``header:NAME``, the value of a header that the
service itself, or a proxy in front of it, trusts; ``api-key``, X-API-Key or a bearer token, and
nobody by both; or what a function returns."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNIDENTIFIED = "ip\n"  # in front of the address of who is not known otherwise
# In front of a name that could pass for an address: nobody uses up the limit of an address by it.
_NAMED = "name\n"
_HASHED = "sha256\n"
_MAX_IDENTIFIER = 1024  # bytes
_BEARER = re.compile(r"bearer[ \t]+(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class View(Generic[R]):
    """A request, as far as limits look at it."""

    request: R
    method: str
    address: str | None
    """Of the connection."""
    header: Callable[[str], Sequence[str]]
    """Returns all values of a header."""


def check_by(by: By[R]) -> None:
    """Raises a ValueError for what identifies nobody."""
    if isinstance(by, str) and by not in ("ip", "api-key") and not by.startswith("header:"):
        raise ValueError(f"ratelimitd: {by!r} identifies nobody: use ip, header:NAME or api-key")


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Reads networks, such as ``10.0.0.0/8`` or ``192.0.2.7``."""
    return [ipaddress.ip_network(text) for text in texts]


def identify(by: By[R], view: View[R], trusted: Sequence[Network]) -> str | None:
    """Returns who sent a request; None where a trusted proxy hides that.

    A caller that leaves a header out is known by the address, so that nobody gets around a limit
    by it.
    """
    name = by(view.request) if callable(by) else _name(by, view)
    if name:
        return _bounded(name)
    address = client_address(view.address or "unknown", view.header("X-Forwarded-For"), trusted)
    if address is None or by == "ip":
        return address
    return _UNIDENTIFIED + address


def client_address(
    connection: str, forwarded_for: Sequence[str], trusted: Sequence[Network]
) -> str | None:
    """Returns the address that a request comes from.

    It is that of the connection or, while that is one of trusted, the one that it forwards for. Of
    IPv6, a /64 is one client. None: a trusted proxy says something else than an address.
    """
    address = _parse(connection)
    if address is None:
        return connection  # of a socket that has none
    hops = [hop.strip() for line in forwarded_for for hop in line.split(",")]
    for hop in reversed([hop for hop in hops if hop]):
        if not any(address in network for network in trusted):
            break
        address = _parse(hop)
        if address is None:
            return None
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def _parse(text: str) -> Address | None:
    """Reads an address with a port or without."""
    if match := re.fullmatch(r"\[(.*)\](:\d+)?", text):
        text = match[1]
    else:
        text = re.sub(r"^([^:]*):\d+$", r"\1", text)
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _name(by: str, view: View[R]) -> str | None:
    if by == "ip":
        return None
    name = _api_key(view) if by == "api-key" else _only(view.header(by.removeprefix("header:")))
    if name and (name.strip() == "@" or _parse(re.sub(r"/\d+$", "", name.strip()))):
        return _NAMED + name
    return name


def _api_key(view: View[R]) -> str | None:
    authorizations, keys = view.header("Authorization"), view.header("X-API-Key")
    match = _BEARER.fullmatch(_only(authorizations) or "")
    token = match[1].strip() if match else None
    if not keys:
        return token
    return None if token or len(authorizations) > 1 else _only(keys)


def _only(values: Sequence[str]) -> str | None:
    """Of several values, nobody knows which one counts for who comes after."""
    return values[0] if len(values) == 1 else None


def _bounded(identifier: str) -> str:
    """Returns an identifier, or a hash of one that ratelimitd would not take."""
    encoded = identifier.encode(errors="replace")
    if len(encoded) <= _MAX_IDENTIFIER and encoded.decode() == identifier:
        return identifier
    return _HASHED + hashlib.sha256(identifier.encode(errors="surrogatepass")).hexdigest()

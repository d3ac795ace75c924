"""The sender of a request, as the other entrances of ratelimitd find it."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

By = str | Callable[[R], str | None]
"""The source of the identifier: ``ip``, the client's address; ``header:NAME``, the value of a
header that the service itself, or a proxy in front of it, trusts; ``api-key``, X-API-Key or a
bearer token, but not both; or the result of a function."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_UNIDENTIFIED = "ip\n"  # prefix of the address of a caller without another name
# Prefix of a name that looks like an address, so that it can't use up the limit of that address.
_NAMED = "name\n"
_HASHED = "sha256\n"
_MAX_IDENTIFIER = 1024  # bytes
_BEARER = re.compile(r"bearer[ \t]+(.+)", re.IGNORECASE)
_BY_HEADER = re.compile(r"header:[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2
_UNIX = "unix"
_MAPPED_BITS = 96  # of IPv6, before an address of IPv4 that is mapped
# IPv6 networks in which each address stands for an IPv4 address, besides 6to4 and Teredo.
_TRANSLATED = [
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # RFC 2765, section 2.1
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64: RFC 6052, section 2.1
]
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291, section 2.5.5.1
_NO_CALLERS = ipaddress.IPv4Network("0.0.0.0/8")


@dataclass(frozen=True)  # without slots, as of Rule
class View(Generic[R]):
    """The parts of a request that limits use."""

    request: R
    address: str | None
    """Of the connection."""
    header: Callable[[str], Sequence[str]]
    """Returns all values of a header, each byte as a character (Latin-1)."""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies whose X-Forwarded-For is trusted."""

    networks: Sequence[Network] = ()
    unix: bool = False
    """Whether peers without an address are trusted, as those of a unix socket."""

    def trust(self, address: Address | None) -> bool:
        if address is None:
            return self.unix
        return any(address in network for network in self.networks)


def check_by(by: By[R]) -> None:
    """Raises a ValueError if by is invalid."""
    if callable(by) or by in ("ip", "api-key"):
        return
    if not (isinstance(by, str) and _BY_HEADER.fullmatch(by)):
        raise ValueError(f"ratelimitd: {by!r} identifies nobody: use ip, header:NAME or api-key")


def parse_proxies(texts: Iterable[str]) -> Proxies:
    """Reads networks, such as ``10.0.0.0/8`` or ``192.0.2.7``, and ``unix``."""
    if isinstance(texts, str):
        raise TypeError(
            f"ratelimitd: trusted_proxies is {texts!r}: it must be a list, such as [{texts!r}]"
        )
    listed = list(texts)
    return Proxies([_parse_network(text) for text in listed if text != _UNIX], _UNIX in listed)


def _parse_network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(str(text))
    except ValueError as error:
        raise ValueError(
            f"ratelimitd: trusted_proxies has {text!r}, which is neither an address nor a network: "
            "write 10.0.0.0/8, 192.0.2.7 or unix"
        ) from error
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def identify(by: By[R], view: View[R], trusted: Proxies) -> str | None:
    """Returns the sender of a request; None if a trusted proxy hides it.

    A caller that omits a header is identified by its address, so that this does not evade a limit.
    """
    name = by(view.request) if callable(by) else _name(by, view)
    if name is not None and not isinstance(name, str):
        raise TypeError(
            f"ratelimitd: by returned {type(name).__name__}: it must return a str, or None"
        )
    if name:
        return _bounded(name)
    address = client_address(view.address or "unknown", view.header("X-Forwarded-For"), trusted)
    if address is None or by == "ip":
        return address
    return _UNIDENTIFIED + address


def client_address(connection: str, forwarded_for: Sequence[str], trusted: Proxies) -> str | None:
    """Returns the address that a request comes from.

    It is that of the connection or, while that is one of trusted, the one for which it forwards.
    None: a trusted proxy's header has no valid address.
    """
    address = _parse(connection)
    hops = [hop.strip() for line in forwarded_for for hop in line.split(",")]
    for hop in reversed([hop for hop in hops if hop]):
        if not trusted.trust(address):
            break
        address = _parse(hop)
        if address is None:
            return None
    return connection if address is None else _caller(address)


def _caller(address: Address) -> str:
    """Returns the caller of an address: of IPv6, a /64 is one caller, unless it stands for
    IPv4."""
    if address.version == 4:
        return str(address)
    ipv4 = _ipv4_in(address)
    if ipv4 is not None:
        return str(ipv4)
    if address in _LOCAL_NAT64:  # it stands for IPv4, and does not say where in it
        return str(address)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def _ipv4_in(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Returns the IPv4 address for which an IPv6 address stands. Of 6to4 and Teredo, that is where
    the tunnel ends."""
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    bits = int(address)
    at_end = ipaddress.IPv4Address(bits & 0xFFFF_FFFF)
    local = address in _LOCAL_NAT64 and bits >> 32 & 0xFFFF_FFFF == 0
    compatible = address in _COMPATIBLE and at_end not in _NO_CALLERS
    if local or compatible or any(address in network for network in _TRANSLATED):
        return at_end
    return None


def _parse(text: str) -> Address | None:
    """Reads an address with a port or without. One of IPv4 that a socket of IPv6 has is IPv4."""
    if match := re.fullmatch(r"\[(.*)\](:\d+)?", text):
        text = match[1]
    else:
        text = re.sub(r"^([^:]*):\d+$", r"\1", text)
    bare, percent, zone = text.partition("%")
    if percent and not (zone and ":" in bare):
        return None
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _name(by: str, view: View[R]) -> str | None:
    if by == "ip":
        return None
    name = _api_key(view) if by == "api-key" else _only(_read(view, by.removeprefix("header:")))
    if name and (name.strip() == "@" or _parse(re.sub(r"/\d+$", "", name.strip()))):
        return _NAMED + name
    return name


def _api_key(view: View[R]) -> str | None:
    authorizations, keys = _read(view, "Authorization"), _read(view, "X-API-Key")
    match = _BEARER.fullmatch(_only(authorizations) or "")
    token = match[1].strip() if match else None
    if not keys:
        return token
    return None if token or len(authorizations) > 1 else _only(keys)


def _read(view: View[R], name: str) -> list[str]:
    """Returns all values of a header, which are bytes, as UTF-8: a name is the same identifier as
    in front of a Go program."""
    return [_as_utf8(value) for value in view.header(name)]


def _as_utf8(value: str) -> str:
    try:
        return value.encode("latin-1").decode(errors="surrogateescape")
    except UnicodeEncodeError:  # it has been decoded already
        return value


def _only(values: Sequence[str]) -> str | None:
    """Returns the value if there is only one: with several, it is unknown which one later services
    use."""
    return values[0] if len(values) == 1 else None


def _bounded(identifier: str) -> str:
    """Returns an identifier, or a hash of one that ratelimitd would not take."""
    encoded = identifier.encode(errors="replace")
    if len(encoded) <= _MAX_IDENTIFIER and encoded.decode() == identifier:
        return identifier
    return _HASHED + hashlib.sha256(_bytes_of(identifier)).hexdigest()


def _bytes_of(identifier: str) -> bytes:
    try:
        return identifier.encode(errors="surrogateescape")  # those that were in a header
    except UnicodeEncodeError:
        return identifier.encode(errors="surrogatepass")

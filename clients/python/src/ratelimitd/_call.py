from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._decision import Recorded
from ._errors import ErrorOp, InvalidCallError, refused
from ._failure import Failure
from ._trace import Trace

Op = Literal["check", "record", "take"]
"""The operation of a call: ``take`` checks and records as one step."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Some units of one policy for one identifier."""

    policy: str
    identifier: str
    """The identifier that is counted: 1 to 1024 bytes of UTF-8. The service stores a hash of
    it."""
    cost: int = 1
    """Units."""
    limit: int | None = None
    """The identifier's limit in units, under a policy that takes its limit from requests; None:
    the policy's default. Take it from the application's own data about its customer, never from an
    end user's request."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call with all its options."""

    op: Op
    demands: Sequence[Demand] = ()
    """Up to 16 demands, none twice. They are allowed or denied together: all are recorded or none
    is."""
    reserve: float | None = None
    """Makes a check that allows hold the units for this many seconds: whole milliseconds, up to an
    hour."""
    reservation: str | None = None
    """The reservation from a check's answer, for a record to settle."""
    cost: int | None = None
    """Units that each demand of a reservation used, in a call without demands: 0 or more; ``None``:
    those it holds."""
    idempotency_key: str | None = None
    """Makes a repetition of a take or record count once: 1 to 255 bytes of printable ASCII, no
    blank at either end."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """A call of a batch that confirms a receipt's units, as ``client.confirm`` does."""

    receipt: str


MAX_RESERVE_MS = 3_600_000
_KEY = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")


class PreparedCall:
    """A call in the form in which it is sent."""

    __slots__ = ("body", "call", "idempotency_key", "keys", "op", "operation", "trace")

    def __init__(self, call: Call | Confirm, make_key: bool, trace: Trace | None) -> None:
        """Raises an InvalidCallError if the call could not be sent, or would spoil the other calls
        of its request. trace is its caller's."""
        _validate(call)
        self.call = call
        self.trace = trace
        self.op: ErrorOp = "confirm" if isinstance(call, Confirm) else call.op
        self.idempotency_key = _key_of(call, make_key)
        members = _members_of(call)
        self.body = _encode(members)
        """The body of a request of its own."""
        key = {"idempotency_key": self.idempotency_key} if self.idempotency_key else {}
        self.operation = _encode({"op": self.op, **members, **key})
        """The operation in a batch."""
        demands = () if isinstance(call, Confirm) else call.demands
        self.keys = [(d.policy, d.identifier) for d in demands]

    def recorded_after(self, failure: Failure) -> Recorded | None:
        """Whether units count after an attempt with this failure."""
        if isinstance(self.call, Confirm):
            return failure.still_counts()
        return failure.recorded(self.call.op != "check" or self.call.reserve is not None)

    def repeatable_after(self, recorded: Recorded | None) -> bool:
        """Whether the call may be sent again after an attempt: it certainly had no effect, or is
        idempotent."""
        idempotent = self.idempotency_key is not None or isinstance(self.call, Confirm)
        return recorded == "no" or idempotent


def _encode(members: dict[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _members_of(call: Call | Confirm) -> dict[str, Any]:
    if isinstance(call, Confirm):
        return {"receipt": call.receipt}
    demands = [_demand_members_of(d) for d in call.demands]
    members: dict[str, Any] = {}
    if len(demands) == 1:
        members |= demands[0]
    elif demands:
        members["demands"] = demands
    if call.cost is not None:
        members["cost"] = call.cost
    if call.reserve is not None:
        members["reserve_ms"] = round(call.reserve * 1000)
    if call.reservation is not None:
        members["reservation"] = call.reservation
    return members


def _demand_members_of(demand: Demand) -> dict[str, Any]:
    members: dict[str, Any] = {
        "policy": demand.policy,
        "identifier": demand.identifier,
        "cost": demand.cost,
    }
    if demand.limit is not None:
        members["limit"] = demand.limit
    return members


def _key_of(call: Call | Confirm, make_key: bool) -> str | None:
    if isinstance(call, Confirm):
        return None  # it counts once anyway
    if call.op == "check":
        # One that reserves nothing counts nothing, and a batch would refuse its key.
        return None if call.reserve is None else call.idempotency_key
    return call.idempotency_key or (str(uuid.uuid4()) if make_key else None)


def _validate(call: Call | Confirm) -> None:
    if isinstance(call, Confirm):
        validate_receipt("confirm", call.receipt)
    elif wrong := _wrong(call) or _wrong_demand(call):
        raise wrong


def _wrong(call: Call) -> InvalidCallError | None:
    if call.op not in ("check", "record", "take"):  # a Confirm has none
        return refused(call.op, "op", "It must be one of check, record, take.")
    if not call.demands and call.reservation is None:
        return refused(call.op, "demands", "A call has at least one demand.")
    if call.reserve is not None and not 0.5 < call.reserve * 1000 <= MAX_RESERVE_MS + 0.5:
        return refused(call.op, "reserve_ms", "It must be from 1 ms to an hour.")
    if call.reserve is not None and call.op != "check":
        return refused(call.op, "reserve_ms", "Only a check reserves.")
    if call.reservation is not None and call.op != "record":
        return refused(call.op, "reservation", "Only a record settles a reservation.")
    if call.reservation is not None and not _is_token(call.reservation):
        return refused(call.op, "reservation", "It must be given back as it was answered.")
    if call.cost is not None and (type(call.cost) is not int or call.cost < 0):
        return refused(call.op, "cost", "It must be an int, 0 or more.")
    if call.cost is not None and (call.reservation is None or call.demands):
        return refused(call.op, "cost", "It is for a reservation without demands.")
    if call.idempotency_key is not None and not _KEY.fullmatch(call.idempotency_key):
        detail = "It must be 1 to 255 bytes of printable ASCII, without a blank at either end."
        return refused(call.op, "idempotency_key", detail)
    return None


def _wrong_demand(call: Call) -> InvalidCallError | None:
    for i, demand in enumerate(call.demands):
        for name, text in (("policy", demand.policy), ("identifier", demand.identifier)):
            if not _is_unicode(text):
                field = f"demands[{i}].{name}" if len(call.demands) > 1 else name
                return refused(call.op, field, "It must be valid Unicode.")
        if type(demand.cost) is not int:
            return refused(call.op, "cost", "It must be an int.")
        if demand.limit is not None and type(demand.limit) is not int:
            field = f"demands[{i}].limit" if len(call.demands) > 1 else "limit"
            return refused(call.op, field, "It must be an int.")
    return None


def validate_receipt(op: ErrorOp, receipt: str) -> None:
    """Raises an InvalidCallError if receipt can't be one of the service."""
    if not _is_token(receipt):
        raise refused(op, "receipt", "It must be given back as it was answered.")


def _is_token(text: str) -> bool:
    return text != "" and _is_unicode(text)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # surrogates, which UTF-8 cannot have
        return False
    return True

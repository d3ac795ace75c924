from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["enforce", "shadow", "off"]
"""How a policy is applied: ``shadow`` decides and reports, and always allows."""

Override = Literal["allow", "block", "limits"]
"""The kind of an administrator's override for an identifier."""

Reason = Literal["country", "number_type"]
"""A rule of a policy about phone numbers, which denies whatever the counts."""

Recorded = Literal["yes", "no", "unknown"]
"""Whether the units of a call count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDecision:
    """The verdict of one limit of a policy. Times are in seconds."""

    name: str
    algorithm: str
    limit: int
    window: float
    allowed: bool
    used: int
    remaining: int
    reset_after: float
    retry_after: float | None
    """``None`` when no wait helps."""
    would_deny: bool | None = None
    """Whether a shadow, which denies nothing, would deny; ``None``: the limit is enforced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandDecision:
    """The service's decision on one demand. Times are in seconds."""

    allowed: bool
    would_allow: bool
    """The verdict; it differs from ``allowed`` only for a policy in mode ``shadow``."""
    policy: str
    limit: int = 0
    """Of the tightest limit, as are ``remaining``, ``used`` and ``reset_after``."""
    remaining: int = 0
    """Units that could be spent at once, after this call."""
    used: int = 0
    """After this call: exact up to the limit, beyond it a lower bound."""
    reset_after: float = 0
    """Until no units are used."""
    retry_after: float | None = 0
    """Until the same call passes if no other call comes: 0 when allowed, ``None`` when no wait
    helps."""
    limits: tuple[LimitDecision, ...] = ()
    """Empty if the client failed open."""
    mode: Mode = "enforce"
    override: Override | None = None
    """The override that decided, if one did."""
    blocked: bool = False
    """A block decided: one after an earlier denial, or by an override."""
    reason: Reason | None = None
    """The policy's rule about numbers that denied, if one did."""
    degraded: bool = False
    """The store, or the service, did not answer: something else decided."""
    recorded: Recorded | None = None
    """Of a degraded decision, whether its units count."""
    settled: int | None = None
    """Units that a settled reservation counts. Of several demands, each of ``demands`` has its
    own."""
    over: int | None = None
    """Settled units beyond the reservation, which count whatever the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(DemandDecision):
    """The service's decision on a call.

    With several demands its numbers are of the tightest limit, but ``allowed``, ``would_allow``,
    ``retry_after`` and ``degraded`` are for all.
    """

    receipt: str | None = None
    """The receipt by which recorded units can be refunded once; ``None``: none were recorded."""
    release: str | None = None
    """The receipt for units under concurrent limits: refund it when the request has ended. This may
    be repeated. ``None``: there are none."""
    reservation: str | None = None
    """The reservation by which ``settle`` records held units; ``None``: none are held."""
    replayed: bool = False
    """It is the recorded answer to an earlier call with the same idempotency key."""
    demands: tuple[DemandDecision, ...] = ()
    """One for each of several demands, in their order; then one for each that their policies
    derive. Empty: there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitExplanation(LimitDecision):
    """The verdict of one limit, with the policy's own numbers if an override has others."""

    policy_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an identifier would be allowed or denied now. Times are in seconds."""

    policy: str
    key: str
    """The hash under which the identifier is counted, in hex."""
    allowed: bool
    would_allow: bool
    because: str
    """What decides: off, override, country, number_type, block, store, limit, derived or room."""
    detail: str
    """The same in a sentence."""
    retry_after: float | None
    denied_by: tuple[str, ...]
    """The limits that have no room."""
    mode: Mode
    guarantee: str
    degraded: bool
    limits: tuple[LimitExplanation, ...]
    override: dict[str, Any] | None
    """The override in force, with the members of ``GET /v1/overrides``."""
    block: dict[str, Any] | None
    """``until`` when, and ``strikes``: how many there were in a row."""
    reset_at: str | None
    derived: tuple[Explanation, ...] = ()
    """The same for demands that the policy derives from the identifier."""

"""Asks a ratelimitd: may this phone number have another code?

A denial is not an error: ``decision.allowed`` is False. A CallError says that there is no decision.
"""

from ._aio import AsyncClient
from ._call import Call, Confirm, Demand, Op
from ._decision import (
    Decision,
    DemandDecision,
    Explanation,
    LimitDecision,
    LimitExplanation,
    Mode,
    Override,
    Reason,
    Recorded,
)
from ._errors import (
    CallError,
    ClosedError,
    CostTooLargeError,
    InvalidCallError,
    KeyReusedError,
    NoReceiptError,
    NoRoomError,
    UnavailableError,
    UnknownPolicyError,
)
from ._failure import Problem
from ._options import Options
from ._sync import Client

__all__ = [
    "AsyncClient",
    "Call",
    "CallError",
    "Client",
    "ClosedError",
    "Confirm",
    "CostTooLargeError",
    "Decision",
    "Demand",
    "DemandDecision",
    "Explanation",
    "InvalidCallError",
    "KeyReusedError",
    "LimitDecision",
    "LimitExplanation",
    "Mode",
    "NoReceiptError",
    "NoRoomError",
    "Op",
    "Options",
    "Override",
    "Problem",
    "Reason",
    "Recorded",
    "UnavailableError",
    "UnknownPolicyError",
]

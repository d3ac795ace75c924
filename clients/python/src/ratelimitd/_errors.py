from __future__ import annotations

from typing import Literal

from ._decision import Decision, Recorded
from ._failure import Failure, Problem

ErrorOp = Literal["check", "record", "take", "batch", "refund", "confirm", "reset", "explain"]
"""The operation that failed: a call's, or one without a decision."""


class CallError(Exception):
    """The error of a call without a decision, and whether its units count.

    No message holds an identifier.
    """

    op: ErrorOp
    recorded: Recorded | None
    """Whether the units count; of a reset, whether it took effect."""
    problem: Problem | None
    """The service's reason, if it gave one."""

    def __init__(
        self, op: ErrorOp, recorded: Recorded | None, message: str, problem: Problem | None = None
    ) -> None:
        doubt = " (whether it counts is unknown)" if recorded == "unknown" else ""
        super().__init__(f"ratelimitd: {op}: {message}{doubt}")
        self.op, self.recorded, self.problem = op, recorded, problem


class UnavailableError(CallError):
    """The service does not decide: it can't be reached, is late or broken, or its store is
    down."""


class ClosedError(CallError):
    """The client is closed."""


class NoRoomError(CallError):
    """A wait would not end in time: there is no room before, or never, or too many calls wait
    already."""

    decision: Decision | None
    """The last denial, if there was one."""

    def __init__(self, message: str, decision: Decision | None) -> None:
        super().__init__("take", "no", message)
        self.decision = decision


class NoReceiptError(CallError):
    """There is nothing to refund or to confirm, or no longer."""


class InvalidCallError(CallError):
    """The call is wrong and can't be decided."""


class UnknownPolicyError(InvalidCallError):
    """No policy of that name is in force."""


class CostTooLargeError(InvalidCallError):
    """The cost is more than a limit can ever hold."""


class KeyReusedError(InvalidCallError):
    """The idempotency key was given to another request."""


def refused(op: ErrorOp, field: str, detail: str) -> InvalidCallError:
    """Returns the error of a call that is not sent."""
    problem = Problem(type="about:blank", title="Bad Request", status=0, field=field, detail=detail)
    # Units that are to be refunded count.
    recorded: Recorded = "yes" if op in ("refund", "confirm") else "no"
    return InvalidCallError(op, recorded, f"{field}: {detail}", problem)


def error_of(op: ErrorOp, recorded: Recorded | None, failure: Failure) -> CallError:
    """Returns the error of a call with this failure."""
    error = _class_of(failure)(op, recorded, failure.message, failure.problem)
    error.__cause__ = failure.cause
    return error


def _class_of(failure: Failure) -> type[CallError]:
    if failure.problem is not None:
        return _class_of_problem(failure.problem)
    return ClosedError if failure.kind == "closed" else UnavailableError


_KEY_REUSED = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused"


def _class_of_problem(problem: Problem) -> type[CallError]:
    field = problem.field or ""
    if problem.status >= 500:
        return UnavailableError
    if problem.status == 404 and field == "receipt":
        return NoReceiptError
    if problem.status == 404 and field.endswith("policy"):
        return UnknownPolicyError
    if problem.status == 422 and problem.type == _KEY_REUSED:
        return KeyReusedError
    if problem.status == 422 and field.endswith("cost"):
        return CostTooLargeError
    return InvalidCallError

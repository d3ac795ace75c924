"""Why an attempt has no decision. It is a value; the call decides what to do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._decision import Recorded

Kind = Literal["problem", "foreign", "connection", "timeout", "open", "full", "closed"]
"""``foreign`` is an answer that is not ratelimitd's; ``open`` means that requests fail at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An answer without a decision: a problem of RFC 9457."""

    type: str
    """A URI, or ``about:blank``."""
    title: str
    status: int
    """0 where the client refused the call itself."""
    detail: str
    field: str | None = None
    """The wrong member, such as ``cost`` or ``demands[1].policy``."""
    recorded: Recorded | None = None
    """Whether the units count."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: Kind
    message: str
    sent: bool
    """Whether it may have reached the service."""
    problem: Problem | None = None
    retry_after: float = 0
    """When to try again, in seconds; 0: the service did not say."""
    cause: BaseException | None = None

    @classmethod
    def of_problem(cls, problem: Problem, retry_after: float) -> Failure:
        where = f"{problem.field}: " if problem.field else ""
        message = f"status {problem.status}: {where}{problem.detail}"
        return cls("problem", message, True, problem, retry_after)

    @classmethod
    def foreign(cls, status: int, why: str, retry_after: float = 0) -> Failure:
        message = f"the answer is not ratelimitd's: status {status}, {why}"
        return cls("foreign", message, True, retry_after=retry_after if status == 503 else 0)

    @property
    def nobody_decided(self) -> bool:
        """Whether there is no decision at all: a 503 of ratelimitd itself is a policy's
        on_store_error."""
        if self.problem is not None:
            return self.problem.status >= 500 and self.problem.status != 503
        return self.kind != "closed"

    def still_counts(self) -> Recorded | None:
        """Whether units still count after a refund or confirm with this failure; None: the
        receipt's units are not known."""
        if self.problem is None:
            return "unknown" if self.sent else "yes"
        return None if self.problem.status < 500 else self.recorded(True)

    def recorded(self, leaves_units: bool) -> Recorded:
        """Whether units count after it."""
        if not leaves_units or not self.sent:
            return "no"
        if self.problem is None:
            return "unknown"
        return self.problem.recorded or ("no" if self.problem.status < 500 else "unknown")

"""Runs users' callbacks, whose errors must not affect calls and requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def raised_by(
    callback: Callable[P, object] | None, *args: P.args, **kwargs: P.kwargs
) -> str | None:
    """Calls callback, and returns the name of the error that it raised, None if it raised none.
    The error's message may have identifiers."""
    try:
        if callback is not None:
            callback(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return None

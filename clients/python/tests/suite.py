"""Reads and plays the cases of the conformance suite, which its README describes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from ratelimitd import (
    AsyncClient,
    Call,
    CallError,
    Client,
    ClosedError,
    Confirm,
    CostTooLargeError,
    Decision,
    Demand,
    InvalidCallError,
    KeyReusedError,
    NoReceiptError,
    NoRoomError,
    Options,
    UnavailableError,
    UnknownPolicyError,
)
from service import SUITE

QUIET = logging.getLogger("ratelimitd.quiet")
QUIET.disabled = True


def read_cases(name: str) -> list[Any]:
    return list(json.loads((SUITE / "cases" / f"{name}.json").read_text()))


def options_of(case: Any, **more: Any) -> Options:
    """The options of a case. Tests that pass write nothing."""
    given = {"logger": QUIET, "timeout": 20.0, **more}
    for name, value in case.get("client", {}).items():
        if name.endswith("_ms"):
            given[name.removesuffix("_ms")] = value / 1000
        else:
            given[name] = value
    return Options(**given)


async def play(client: AsyncClient | Client, case: Any) -> None:
    """Plays the steps of a case."""
    names: dict[str, str] = {}
    prefix = str(uuid.uuid4())

    def resolve(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$"):
            return names.get(value, prefix + value)
        if isinstance(value, list):
            return [resolve(v) for v in value]
        return {k: resolve(v) for k, v in value.items()} if isinstance(value, dict) else value

    for i, step in enumerate(case["steps"]):
        asked = resolve({k: v for k, v in step.items() if k not in ("expect", "save")})
        outcome = await _outcome(_asker(client), asked)
        assert_matches(outcome, step.get("expect", {}), f"step {i + 1}, {step['do']}")
        for member, name in step.get("save", {}).items():
            names[f"${name}"] = outcome[member]


Asker = Callable[..., Awaitable[Any]]


def _asker(client: AsyncClient | Client) -> Asker:
    """Returns a function that calls a method of a client of threads or of an event loop."""

    async def ask(method: str, *args: Any, **kwargs: Any) -> Any:
        if isinstance(client, AsyncClient):
            return await getattr(client, method)(*args, **kwargs)
        return await asyncio.to_thread(getattr(client, method), *args, **kwargs)

    return ask


async def _outcome(ask: Asker, step: Any) -> Any:
    n = step.get("concurrently")
    if n is None:
        return await _single(ask, step)
    outcomes = await asyncio.gather(*(_single(ask, step) for _ in range(n)))
    return {
        "allowed": sum(o.get("allowed") is True for o in outcomes),
        "denied": sum(o.get("allowed") is False for o in outcomes),
        "done": sum("done" in o for o in outcomes),
        "failed": sum("error" in o for o in outcomes),
    }


async def _single(ask: Asker, step: Any) -> Any:
    try:
        return view(await _ask(ask, step))
    except CallError as error:
        return view(error)


async def _ask(ask: Asker, step: Any) -> Any:
    do, demands = step["do"], [Demand(**d) for d in step.get("demands", [])]
    key = {"idempotency_key": step["idempotency_key"]} if "idempotency_key" in step else {}
    if do == "reserve":
        return await ask("reserve", *demands, hold=step["hold_ms"] / 1000)
    if do == "wait":
        return await ask("wait", *demands, within=step["within_ms"] / 1000)
    if do == "settle":
        cost = {"cost": step["cost"]} if "cost" in step else {}
        return await ask("settle", step["reservation"], **cost, **key)
    if do == "release":
        return await ask("release", step["reservation"])
    if do in ("refund", "confirm"):
        return await ask(do, step["receipt"])
    if do in ("reset", "explain"):
        return await ask(do, step["policy"], step["identifier"])
    if do == "batch":
        return await ask("batch", [_call(c) for c in step["calls"]])
    if do == "close":
        return await ask("close")
    return await ask(do, *demands, **key)


def _call(c: Any) -> Call | Confirm:
    if c["op"] == "confirm":
        return Confirm(c["receipt"])
    reserve = c["reserve_ms"] / 1000 if "reserve_ms" in c else None
    demands = [Demand(**d) for d in c["demands"]]
    return Call(c["op"], demands, reserve=reserve, idempotency_key=c.get("idempotency_key"))


# The kinds of errors, the more specific ones first.
KINDS = {
    UnknownPolicyError: "unknown_policy",
    CostTooLargeError: "cost_too_large",
    KeyReusedError: "key_reused",
    InvalidCallError: "invalid",
    NoReceiptError: "no_receipt",
    NoRoomError: "no_room",
    UnavailableError: "unavailable",
    ClosedError: "closed",
}


def view(outcome: Any) -> Any:
    """Returns the result of a call in the form of the suite."""
    if outcome is None:
        return {"done": True}
    if isinstance(outcome, list):
        return {"results": [view(o) for o in outcome]}
    if isinstance(outcome, CallError):
        problem = outcome.problem
        error = {
            "kind": next(
                (name for kind, name in KINDS.items() if isinstance(outcome, kind)), "other"
            ),
            "op": outcome.op,
            "recorded": outcome.recorded,
            "status": problem.status if problem else None,
            "field": problem.field if problem else None,
        }
        return {"error": error}
    members = _named(dataclasses.asdict(outcome))
    optional = ("receipt", "release", "reservation", "override", "recorded", "demands")
    if isinstance(outcome, Decision):
        return {k: v for k, v in members.items() if k not in optional or v}
    return members


def _named(members: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in members.items():
        if name in ("reset_after", "retry_after", "window"):
            named[f"{name}_ms"] = None if value is None else round(value * 1000)
        elif isinstance(value, tuple):
            named[name] = [_named(v) if isinstance(v, dict) else v for v in value]
        else:
            named[name] = value
    return named


def assert_matches(got: Any, want: Any, where: str) -> None:
    """Checks that got has all members of want."""
    if isinstance(want, list):
        assert isinstance(got, list), f"{where}: {got}, want {want}"
        assert len(got) == len(want), f"{where}: {got}, want {want}"
        for i, w in enumerate(want):
            assert_matches(got[i], w, f"{where}[{i}]")
    elif not isinstance(want, dict):
        assert (got, type(got)) == (want, type(want)), f"{where}: {got}, want {want}"
    elif "$present" in want:
        assert (got not in (None, "")) is want["$present"], f"{where}: {got}"
    elif "$at_least" in want:
        assert want["$at_least"] <= got <= want["$at_most"], f"{where}: {got}"
    else:
        assert isinstance(got, dict), f"{where}: {got}, want {want}"
        for name, w in want.items():
            assert_matches(got.get(name), w, f"{where}.{name}")

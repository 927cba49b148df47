"""A small reference model of one step's hooks, written apart from the engine, for comparing traces.

A middleware here is (name, what its before_tool does); what it does is "pass", "edit", "reject" or "raise".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """One random middleware. ``edit`` is idempotent: it sets its own mark in the arguments."""

    name: str
    before: str
    around: str
    rewrites: bool


def expected(stack: list[Spec], calls: list[str]) -> tuple[list[str], list[str]]:
    """The trace of one batch and the result texts; calls are named by their argument ``x``."""
    trace: list[str] = []
    marks = dict.fromkeys(calls, "")
    rejected: dict[str, str] = {}
    for x in calls:
        agreed: dict[str, str] = {}
        while x not in rejected:
            asks = next((spec for spec in stack if agreed.get(spec.name) != marks[x]), None)
            if asks is None:
                break
            trace.append(f"before {asks.name} {x}{marks[x]}")
            if asks.before == "reject":
                rejected[x] = f"{asks.name} rejects"
            elif asks.before == "edit" and asks.name not in marks[x]:
                marks[x] = "".join(sorted(marks[x] + asks.name))
            agreed[asks.name] = marks[x]
    texts: dict[str, str] = dict(rejected)
    for x in calls:
        if x in rejected:
            continue
        trace += _enter(stack, x + marks[x])
        texts[x] = ("[edited]" if marks[x] else "") + f"ran {x}{marks[x]}"
        for spec in stack:
            if spec.around == "answer":
                texts[x] = ("[edited]" if marks[x] else "") + f"{spec.name} answers"
                break
    for x in calls:
        for spec in reversed(stack):
            trace.append(f"after {spec.name} {x}")
            if spec.rewrites:
                texts[x] += f"+{spec.name}"
    return trace, [texts[x] for x in calls]


def _enter(stack: list[Spec], call: str) -> list[str]:
    """What ``around_tool`` hooks write down, outermost first.

    One that tries twice enters what is inside it twice; a body that has succeeded does not run again.
    """
    if not stack:
        return [f"body {call}"]
    spec, *inner = stack
    if spec.around == "answer":
        return [f"around {spec.name} {call}"]
    inside = _enter(inner, call)
    again = [line for line in inside if line != f"body {call}"] if spec.around == "twice" else []
    return [f"around {spec.name} {call}", *inside, *again]

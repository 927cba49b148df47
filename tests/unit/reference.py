"""A small reference model of one step's hooks, written apart from the engine, for comparing traces.

A middleware here is a :class:`Spec`: what its before_tool does ("pass", "edit", "reject"), its around_tool ("pass",
"twice", "answer", "raise", "catch"), and whether its after_tool rewrites the result.
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
        if x not in rejected:
            lines, texts[x], ok = _around(stack, x + marks[x], set())
            trace += lines
            if ok and marks[x]:
                texts[x] = "[edited]" + texts[x]
    for x in calls:
        for spec in reversed(stack):
            trace.append(f"after {spec.name} {x}")
            if spec.rewrites:
                texts[x] += f"+{spec.name}"
    return trace, [texts[x] for x in calls]


def _around(stack: list[Spec], call: str, ran: set[str]) -> tuple[list[str], str, bool]:
    """What ``around_tool`` hooks write down, outermost first; the text they come to; whether it is a success.

    One that tries twice enters what is inside it twice; a body that has succeeded does not run again.
    """
    if not stack:
        lines = [] if call in ran else [f"body {call}"]
        ran.add(call)
        return lines, f"ran {call}", True
    spec, *inner = stack
    lines = [f"around {spec.name} {call}"]
    if spec.around in ("answer", "raise"):
        return lines, f"{spec.name} {spec.around}s", spec.around == "answer"
    text, ok = "", False
    for _ in range(2 if spec.around == "twice" else 1):
        more, text, ok = _around(inner, call, ran)
        lines += more
        if not ok:
            return (lines, f"{spec.name} catches", True) if spec.around == "catch" else (lines, text, False)
    return lines, text, ok

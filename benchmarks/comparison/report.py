"""The table: a line per figure, a column per candidate; and the page around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.comparison.candidates import CANDIDATES, PEERS
from benchmarks.comparison.prose import GOALS, HEAD, METHOD, Goal

Measured: TypeAlias = Mapping[str, Any]
"""By row: ``figures`` (by candidate, by name), ``unavailable`` (reasons), ``load``, ``date``, ``machine``."""

NONE = "-"
QUIET = 1.5
"""A load average at which nothing else disturbs the figures much."""

Value: TypeAlias = Callable[[Measured, str], float | None]


def figure(measured: Measured, row: str, candidate: str, name: str) -> Any:
    """A figure; None where it was not measured."""
    found = measured.get(row, {}).get("figures", {}).get(candidate, {}).get(name)
    return None if isinstance(found, float) and math.isnan(found) else found


def plain(row: str, name: str, factor: float = 1.0) -> Value:
    """The figure as it was measured."""

    def value(measured: Measured, candidate: str) -> float | None:
        found = figure(measured, row, candidate, name)
        return None if found is None else float(found) * factor

    return value


def ratio(row: str, name: str) -> Value:
    """The figure over the bare workflow's: the median of the rounds' ratios."""

    def value(measured: Measured, candidate: str) -> float | None:
        found = figure(measured, row, candidate, f"{name} ratio")
        return None if found is None else float(found)

    return value


def replay_ratio(measured: Measured, candidate: str) -> float | None:
    """Over a bare workflow with as many events, which was replayed in turn with it."""
    one, other = (figure(measured, "replay", candidate, name) for name in ("seconds", "bare seconds"))
    return float(one) / float(other) if one is not None and other else None


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    title: str
    row: str
    value: Value
    format: str = ",.0f"


LINES = (
    *(
        line
        for size, said in ((16, "16 B"), (4096, "4 KB"))
        for line in (
            Line(f"wall ms per step, {said}", "steps", plain("steps", f"wall {size}"), ".1f"),
            Line("… over the bare workflow", "steps", ratio("steps", f"wall {size}"), ".2f"),
            Line(f"worker CPU ms per step, {said}", "steps", plain("steps", f"cpu {size}"), ".1f"),
            Line("… over the bare workflow", "steps", ratio("steps", f"cpu {size}"), ".2f"),
        )
    ),
    Line("history bytes per step, 4 KB, early", "steps", plain("steps", "early bytes 4096")),
    Line("history bytes per step, 4 KB, late", "steps", plain("steps", "late bytes 4096")),
    Line("history events per step", "steps", plain("steps", "late events 4096"), ".1f"),
    Line("runs per second, many at once", "throughput", plain("throughput", "runs/s"), ".1f"),
    Line("… over the bare workflow", "throughput", ratio("throughput", "runs/s"), ".2f"),
    Line("worker memory per waiting run, kB", "memory", plain("memory", "kB/run")),
    Line("answer sent to tool started, ms", "resume", plain("resume", "ms"), ".1f"),
    Line("… over the bare workflow", "resume", ratio("resume", "ms"), ".2f"),
    Line("… after 90 s, with 500 waiting", "memory", plain("memory", "ms"), ".1f"),
    Line("… over the bare workflow", "memory", ratio("memory", "ms"), ".2f"),
    Line("replay of a long run, s", "replay", plain("replay", "seconds"), ".2f"),
    Line("… over a bare workflow with as many events", "replay", replay_ratio, ".2f"),
)


def table(measured: Measured) -> str:
    """Markdown: the figures, what the goals say to ours, where each breaks, who is missing."""
    return "\n\n".join(
        part for part in (_figures(measured), _goals(measured), _growth(measured), _missing(measured)) if part
    )


def _figures(measured: Measured) -> str:
    names = [candidate.name for candidate in CANDIDATES]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for line in LINES:
        if line.row in measured:
            cells = [_cell(line.value(measured, name), line.format) for name in names]
            lines.append(f"| {line.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _goals(measured: Measured) -> str:
    lines = ["| goal | outlast | outlast, storage | best peer |", "|---|---:|---:|---:|"]
    for goal in GOALS:
        if goal.row in measured:
            ours = [_judged(goal, _goal_value(goal)(measured, name)) for name in ("outlast", "outlast, storage")]
            lines.append(f"| {goal.title} | {' | '.join(ours)} | {_best(goal, measured)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def _goal_value(goal: Goal) -> Value:
    if goal.name == "replay ratio":
        return replay_ratio
    return ratio(goal.row, goal.name) if goal.relative else plain(goal.row, goal.name)


def _judged(goal: Goal, value: float | None) -> str:
    if value is None:
        return NONE
    met = value >= goal.bound if goal.least else value <= goal.bound
    return f"{value:.2f}" if met else f"**{value:.2f}, missed**"


def _best(goal: Goal, measured: Measured) -> str:
    values = {peer.name: _goal_value(goal)(measured, peer.name) for peer in PEERS}
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return NONE
    best = (max if goal.least else min)(known, key=lambda name: known[name])
    return f"{known[best]:.2f} ({best})"


def _growth(measured: Measured) -> str:
    if "growth" not in measured:
        return ""
    lines = ["| one run, as far as it goes | results | steps | history | executions | s | what ended it |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    for size, said in ((4096, "4 KB"), (20_480, "20 KB")):
        for candidate in CANDIDATES:
            one = measured["growth"]["figures"].get(candidate.name, {})
            if f"steps {size}" in one:
                error = str(one[f"error {size}"]).replace("|", "/") or "all done"
                lines.append(
                    f"| {candidate.name} | {said} | {one[f'steps {size}']:,} | {one[f'history MB {size}']:.1f} MB "
                    f"| {one[f'executions {size}']} | {one[f'seconds {size}']:.0f} | {error} |"
                )
    return "\n".join(lines)


def _missing(measured: Measured) -> str:
    lines = [
        f"- {name}, {row}: {reason}" for row, one in measured.items() for name, reason in one["unavailable"].items()
    ]
    return "Not measured:\n\n" + "\n".join(lines) if lines else ""


def page(measured: Measured) -> str:
    """``docs/benchmarks.md``."""
    machines = dict.fromkeys(one["machine"] for one in measured.values())
    dates = sorted({one["date"] for one in measured.values()})
    loads = ", ".join(f"{row} {one['load']}" for row, one in measured.items())
    place = (
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on: {'; '.join(machines)}. "
        f"Load average of the machine when each row began: {loads}."
    )
    if any(one["load"] > QUIET for one in measured.values()):
        place += " Other work ran on it at the same time: the figures are noisy, those in milliseconds above all."
    return f"{HEAD}\n\n{place}\n\n{table(measured)}\n\n{METHOD}\n"

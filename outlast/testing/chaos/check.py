"""What must hold of every run, by its result and by the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlast.messages import ToolResultBlock, sequence_fault
from outlast.state import RunResult
from outlast.testing.chaos.agents import AT_MOST_ONCE, MAIN, SPECIALIST
from outlast.testing.chaos.faults import Fault
from outlast.testing.chaos.ledger import Line

NOTICE = 25.0
"""Seconds within which a lost worker or server is noticed: heartbeat, sticky queue, and starting again."""


@dataclass
class Verdict:
    """What was found; ``complaints`` is empty where all holds."""

    complaints: list[str]
    executed: int = 0
    unknown: int = 0


def check_run(run_id: str, result: RunResult, lines: Sequence[Line], faults: Sequence[Fault]) -> Verdict:
    """One run, with the ledger's lines of it and of its specialist."""
    verdict = Verdict([])
    _check_conversation(run_id, result, verdict)
    mine = [line for line in lines if line.run == run_id]
    blocks = iter(block for message in result.messages for block in message.tool_results)
    for (name, args), block in zip((call for turn in MAIN for call in turn), blocks, strict=False):
        if name != "task":
            _check_call(_of(mine, name, args["what"]), name, block, faults, verdict)
    theirs = [line for line in lines if line.run.startswith(f"{run_id}/")]
    for name, args in (call for turn in SPECIALIST for call in turn):
        _check_effects(_of(theirs, name, args["what"]), f"{run_id}/{name}", name, verdict)
    return verdict


def _check_conversation(run_id: str, result: RunResult, verdict: Verdict) -> None:
    if result.output != "done" or result.status != "completed":
        verdict.complaints.append(f"{run_id}: ended as {result.status} with {result.output!r}")
    if fault := sequence_fault(result.messages):
        verdict.complaints.append(f"{run_id}: unsound transcript: {fault}")
    names = [block.name for message in result.messages for block in message.tool_results]
    if names != [name for turn in MAIN for name, _ in turn]:
        verdict.complaints.append(f"{run_id}: results of {names}")
    people = sorted(record.decision.by for record in result.audit)
    if people != ["approver"] * 2:
        verdict.complaints.append(f"{run_id}: decided by {people}")


def _of(lines: Sequence[Line], tool: str, what: str) -> list[Line]:
    return [line for line in lines if (line.tool, line.what) == (tool, what)]


def _check_call(
    lines: list[Line], name: str, block: ToolResultBlock, faults: Sequence[Fault], verdict: Verdict
) -> None:
    place = f"{lines[0].run if lines else '?'}: {name} {block.call_id}"
    _check_effects(lines, place, name, verdict)
    if block.status == "executed":
        verdict.executed += 1
        if "end" not in [line.at for line in lines]:
            verdict.complaints.append(f"{place}: told as executed, and the ledger has no end of it")
    elif block.status == "unknown" and name in AT_MOST_ONCE:
        verdict.unknown += 1
        if lines and not any(_explains(fault, lines) for fault in faults):
            verdict.complaints.append(f"{place}: told as unknown, and nothing happened to it")
    else:
        verdict.complaints.append(f"{place}: {block.status}: {block.text[:200]}")


def _check_effects(lines: list[Line], place: str, name: str, verdict: Verdict) -> None:
    at = [line.at for line in lines]
    if len({line.key for line in lines}) > 1:
        verdict.complaints.append(f"{place}: several keys for one call")
    if name in AT_MOST_ONCE and at not in ([], ["begin"], ["begin", "end"]):
        verdict.complaints.append(f"{place}: at most once, and the ledger has {at}")
    if name not in AT_MOST_ONCE and "end" not in at:
        verdict.complaints.append(f"{place}: never finished: {at}")


def _explains(fault: Fault, lines: Sequence[Line]) -> bool:
    """Whether a fault can have kept the worker from telling how the call ended."""
    if fault.pid:
        return fault.pid == lines[0].pid and fault.ended >= lines[0].time
    return fault.ended >= lines[0].time - 1 and fault.began <= lines[-1].time + NOTICE

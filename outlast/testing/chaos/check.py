"""What must hold of every run, by its result and by the ledger."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlast.messages import ToolResultBlock, sequence_fault
from outlast.state import RunResult
from outlast.testing.chaos.agents import AT_MOST_ONCE, MAIN, SPECIALIST, Turn
from outlast.testing.chaos.faults import Fault
from outlast.testing.chaos.ledger import Line

REPORT_SECONDS = 10.0
"""So long after its last line a call's answer may still be on its way, and lost by a fault."""


@dataclass
class Verdict:
    """What was found; ``complaints`` is empty where all holds.

    Attributes:
        executed: Calls that the model was told have happened.
        unknown: Calls that it was told may or may not have happened, by what the ledger has of them (``begun``,
            ``ended`` or ``no line``) and by what was missing: any answer, or the way to carry it.
    """

    complaints: list[str]
    executed: int = 0
    unknown: Counter[str] = field(default_factory=Counter)


def check_run(run_id: str, results: Mapping[str, RunResult], lines: Sequence[Line], faults: Sequence[Fault]) -> Verdict:
    """One run and its specialist, by the results of all runs, the ledger's lines and the faults."""
    verdict = Verdict([])
    people = sorted(record.decision.by for record in results[run_id].audit)
    if people != ["approver"] * 2:
        verdict.complaints.append(f"{run_id}: decided by {people}")
    specialists = [name for name in results if name.startswith(f"{run_id}/")]
    if len(specialists) != 1:
        verdict.complaints.append(f"{run_id}: its specialists were {specialists}")
    for name, turns in ((run_id, MAIN), *((name, SPECIALIST) for name in specialists)):
        _check_conversation(name, results[name], turns, verdict)
        mine = [line for line in lines if line.run == name]
        _Calls(name, turns, mine, faults, verdict).check(results[name])
    return verdict


def _check_conversation(run_id: str, result: RunResult, turns: Sequence[Turn], verdict: Verdict) -> None:
    if result.output != "done" or result.status != "completed":
        verdict.complaints.append(f"{run_id}: ended as {result.status} with {result.output!r}")
    if fault := sequence_fault(result.messages):
        verdict.complaints.append(f"{run_id}: unsound transcript: {fault}")
    names = [block.name for message in result.messages for block in message.tool_results]
    if names != [name for turn in turns for name, _ in turn]:
        verdict.complaints.append(f"{run_id}: results of {names}")


class _Calls:
    """The calls of one run, each against its lines of the ledger."""

    def __init__(
        self, run_id: str, turns: Sequence[Turn], lines: Sequence[Line], faults: Sequence[Fault], verdict: Verdict
    ) -> None:
        self._run_id = run_id
        self._turns = turns
        self._lines = lines
        self._faults = faults
        self._verdict = verdict

    def check(self, result: RunResult) -> None:
        blocks = iter(block for message in result.messages for block in message.tool_results)
        for number, turn in enumerate(self._turns):
            for (name, args), block in zip(turn, blocks, strict=False):
                if name != "task":
                    found = [line for line in self._lines if (line.tool, line.what) == (name, args["what"])]
                    self._check_effects(f"{name} {args['what']}", name, found)
                    self._check_told(f"{name} {args['what']}", name, found, block, number)

    def _complain(self, call: str, text: str) -> None:
        self._verdict.complaints.append(f"{self._run_id}: {call}: {text}")

    def _check_effects(self, call: str, name: str, lines: Sequence[Line]) -> None:
        at = [line.at for line in lines]
        if len({line.key for line in lines}) > 1:
            self._complain(call, "several keys for one call")
        if name in AT_MOST_ONCE and at not in ([], ["begin"], ["begin", "end"]):
            self._complain(call, f"at most once, and the ledger has {at}")
        if name not in AT_MOST_ONCE and "end" not in at:
            self._complain(call, f"never finished: {at}")

    def _check_told(self, call: str, name: str, lines: Sequence[Line], block: ToolResultBlock, turn: int) -> None:
        if block.status == "executed":
            self._verdict.executed += 1
            if "end" not in [line.at for line in lines]:
                self._complain(call, "told as executed, and the ledger has no end of it")
        elif block.status == "unknown" and name in AT_MOST_ONCE:
            has = "no line" if not lines else "begun" if len(lines) == 1 else "ended"
            self._verdict.unknown[f"{has}, {'answer lost' if 'carried' in block.text else 'no answer'}"] += 1
            began, ended = (lines[0].time, lines[-1].time) if lines else self._around(turn)
            pid = lines[0].pid if lines else 0
            if not any(_explains(fault, pid, began, ended) for fault in self._faults):
                self._complain(call, f"told as unknown, and nothing happened to it: {block.text[:300]}")
        else:
            self._complain(call, f"{block.status}: {block.text[:200]}")

    def _around(self, turn: int) -> tuple[float, float]:
        """Between the lines of the turns before and after this one: there a call ran that left no line."""
        before, after = (
            {(name, args.get("what")) for calls in turns for name, args in calls}
            for turns in (self._turns[:turn], self._turns[turn + 1 :])
        )
        began = max((line.time for line in self._lines if (line.tool, line.what) in before), default=-math.inf)
        ended = min((line.time for line in self._lines if (line.tool, line.what) in after), default=math.inf)
        return began, ended


def _explains(fault: Fault, pid: int, began: float, ended: float) -> bool:
    """Whether a fault can have kept the worker ``pid`` (0: not known) from telling how a call ended."""
    if fault.pid and pid and fault.pid != pid:
        return False
    return fault.ended >= began and fault.began <= ended + REPORT_SECONDS

"""Sub-agents: runs of their own, started detached, that report to their parent by signal.

A parent may continue as new at any time; its children neither notice nor end. What a child asks a person is pending at
the parent too, under ``CALL/CHILD_CALL`` and with the child's path; a decision made there is sent on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING

from outlast.approvals import Decision, PendingInterrupt
from outlast.errors import AgentError
from outlast.messages import Json
from outlast.state import ChildOutcome, ChildReport, ChildState, ParentLink, RunInput
from outlast.tools import ToolCall

if TYPE_CHECKING:
    from outlast.execution import Execution

MAX_DEPTH = 4
MAX_ID_BYTES = 1000
"""The server's limit for a workflow's id."""

PATIENCE_SECONDS = 60.0
MAX_PATIENCE_SECONDS = 86_400.0


async def run_agent(run: Execution, name: str, text: str, call: ToolCall) -> ChildOutcome:
    """Start a sub-agent for a call, or find the one that runs already, and wait for its end.

    Raises:
        AgentError: ``UNKNOWN_AGENT`` or ``TOO_DEEP``: the middleware let something through that it should not have.
    """
    child = next((item for item in run.state.children if item.call_id == call.id), None)
    if child is None:
        child = await _start(run, name, text, call)
    try:
        return await _wait(run, child)
    except (Exception, asyncio.CancelledError):
        if run.runtime.cancel_requested:
            await run.runtime.cancel_run(child.id)
        raise


async def _start(run: Execution, name: str, text: str, call: ToolCall) -> ChildState:
    if name not in run.agent.subagents:
        known = ", ".join(run.agent.subagents) or "none"
        raise AgentError("UNKNOWN_AGENT", f"agent {run.agent.name!r} has no sub-agent {name!r}; it has: {known}")
    if run.state.agent.count("/") + 1 >= MAX_DEPTH:
        raise AgentError("TOO_DEEP", f"sub-agents are nested more than {MAX_DEPTH} deep at {run.state.agent}/{name}")
    child = ChildState(id=_child_id(run.runtime.run_id, call.id), name=name, call_id=call.id)
    start = RunInput(
        agent=f"{run.state.agent}/{name}",
        input=text,
        parent=ParentLink(run_id=run.runtime.run_id, call_id=call.id),
        history_limits=run.state.history_limits,
    )
    run.state.children.append(child)  # before the start: its first report may come sooner than the start's answer
    try:
        await run.runtime.start_child(child.id, start)
    except Exception:
        run.state.children.remove(child)
        raise
    run.record("tool.started", tool=call.name, call_id=call.id, agent=name, child=child.id)
    return child


def _child_id(parent: str, call_id: str) -> str:
    """The parent's id and the call's; of a parent whose id leaves no room, what stands for it."""
    whole = f"{parent}/{call_id}"
    return whole if len(whole.encode()) <= MAX_ID_BYTES else f"{hashlib.sha256(whole.encode()).hexdigest()}/{call_id}"


async def _wait(run: Execution, child: ChildState) -> ChildOutcome:
    """Until the child has reported its end. A child that says nothing for long is asked whether it lives."""
    patience = PATIENCE_SECONDS

    def news() -> bool:
        return child.outcome is not None or bool(_letters(run, child)) or run.report_due()

    while child.outcome is None:
        heard = child.report
        await run.report()
        on_time = await run.runtime.wait_until(news, patience, run.command_id(f"child.{child.call_id}"))
        lives = await _post(run, child)
        if not on_time and child.report == heard:
            patience = min(patience * 2, MAX_PATIENCE_SECONDS)
            lives = await run.runtime.signal_run(child.id, "report", None)
        if not lives and child.outcome is None:
            child.outcome = ChildOutcome(error="its run is gone: it was terminated, or its history is no longer kept")
    run.state.usage = run.state.usage + child.outcome.usage
    _show_pending(run, child, ())
    run.state.children.remove(child)
    return child.outcome


def _letters(run: Execution, child: ChildState) -> list[tuple[str, dict[str, Json]]]:
    return [letter for letter in run.state.outbox if letter[0] == child.id]


async def _post(run: Execution, child: ChildState) -> bool:
    """Send on what people decided for this child; False where nobody is there to read it."""
    lives = True
    for letter in _letters(run, child):
        run.state.outbox.remove(letter)
        lives = await run.runtime.signal_run(child.id, "decide", letter[1]) and lives
    return lives


def take_report(run: Execution, report: ChildReport) -> None:
    """A child's report: its pending interrupts become ours, its end ends the wait."""
    child = next((item for item in run.state.children if item.id == report.child), None)
    if child is None or report.number <= child.report:
        return
    child.report = report.number
    if report.paused:
        run.record("custom", text=f"sub-agent {child.name!r} ({child.id}) is paused at {report.paused}")
    child.decided = [call_id for call_id in child.decided if call_id not in report.refused]
    if report.outcome is not None:
        child.outcome = report.outcome
    _show_pending(run, child, tuple(item for item in report.pending if item.tool_call_id not in child.decided))


def _show_pending(run: Execution, child: ChildState, pending: tuple[PendingInterrupt, ...]) -> None:
    prefix = f"{child.call_id}/"
    shown = {item.tool_call_id for item in run.state.pending}
    ours = [item.replace(tool_call_id=prefix + item.tool_call_id, path=(child.name, *item.path)) for item in pending]
    run.state.pending = [item for item in run.state.pending if not item.tool_call_id.startswith(prefix)] + ours
    for item in ours:
        if item.tool_call_id not in shown:
            run.record(
                "interrupt.requested", tool=item.tool, call_id=item.tool_call_id, args=item.args, path=list(item.path)
            )
    run.state.status = "suspended" if run.state.pending else "running"
    run.runtime.changed()


def forward(run: Execution, interrupt: PendingInterrupt, decision: Decision) -> None:
    """A decision on a child's interrupt: remembered, and put where the waiting call sends it on."""
    call_id, _, child_call = interrupt.tool_call_id.partition("/")
    child = next((item for item in run.state.children if item.call_id == call_id), None)
    if child is None:
        return
    child.decided.append(child_call)
    value: Json = decision.kind
    if decision.kind == "edit":
        value = {"edit": decision.args or {}}
    elif decision.kind == "reject":
        value = {"reject": decision.reason}
    letter = {"interrupt": child_call, "decision": value, "by": decision.by, "comment": decision.comment}
    run.state.outbox.append((child.id, letter))


def report_of(run: Execution, outcome: ChildOutcome | None) -> ChildReport:
    """What this run, being a sub-agent's, tells its parent now."""
    state = run.state
    state.reports += 1
    refused, state.refused = tuple(state.refused), []
    return ChildReport(
        child=run.runtime.run_id,
        number=state.reports,
        pending=tuple(state.pending),
        refused=refused,
        paused=f"{state.pause.where}: {state.pause.error}" if state.pause is not None else "",
        outcome=outcome,
    )


def shortened(report: ChildReport, why: str) -> ChildReport:
    """The report without what is too large to be told: the child has it still, and a person can ask it there."""
    outcome = report.outcome
    if outcome is not None:
        error = f"its answer is in its own run, {report.child}, and cannot be handed over: {why}"
        return report.replace(pending=(), outcome=outcome.replace(text="", error=error))
    return report.replace(pending=(), paused=f"a question that only the run itself can be asked: {why}")


def outcome_of(run: Execution) -> ChildOutcome:
    """How this run ended, for its parent: the last text that is not empty, or the error."""
    state = run.state
    if state.failure is not None:
        return ChildOutcome(error=": ".join(state.failure), usage=state.usage)
    texts = (
        message.text for message in reversed(state.transcript) if message.role == "assistant" and message.text.strip()
    )
    text = next(texts, "") if run.agent.response_format is None else _json_text(state.output)
    return ChildOutcome(text=text, usage=state.usage)


def _json_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)

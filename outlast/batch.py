"""The tool calls of one step: gate in order, wait for people, execute concurrently, settle in order.

Each function can be entered again after a restart: how far every call has come is in its
:class:`~outlast.state.CallState`, and a body that has run is never run again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from outlast.approvals import Decision, PendingInterrupt, next_deadline, pending_interrupt
from outlast.errors import AgentError, HitlInterrupt, HookFailure, ToolError, ToolRejection, clean_text
from outlast.execution import AROUND, BODY, Execution, undone_on_failure
from outlast.messages import ResultStatus, TextBlock
from outlast.middleware.compose import compose_tool_call, describe, run_after_tool, run_before_tool
from outlast.middleware.contract import ToolNext, hook_of, name_of
from outlast.runtime import ToolExecution, current_scope, scoped
from outlast.state import CallState, check_json
from outlast.tools import ToolCall, ToolResult, error_result

DEFAULT_REJECTION = "A person rejected this call. It did not run. Do not retry it; go on without it or ask what to do."
"""What the model reads when a rejection has no reason (AC-58, D21)."""


async def run_batch(run: Execution) -> None:
    """Bring every call of the current batch to its one result, and the results into the transcript."""
    batch = run.state.batch or []
    while any(item.result is None for item in batch):
        await gate(run, batch)
        if run.state.pending:
            await wait_for_decisions(run)
        else:
            await execute(run, batch)
    await settle(run, batch)


async def gate(run: Execution, batch: Sequence[CallState]) -> None:
    """Run ``before_tool`` of every call that is still open, in call order; nothing has executed yet."""
    for index, item in enumerate(batch, start=1):
        if item.result is None and not _is_pending(run, item):
            with scoped(f"tool.{index}"):
                await _gate_call(run, item)


async def _gate_call(run: Execution, item: CallState) -> None:
    """Ask the first hook that has not yet agreed to the call as it stands, until all of them agree (AC-69, AC-70)."""
    if item.decision is not None and item.raised_by in (BODY, AROUND):
        _apply(item, item.decision, keep=item.raised_by == AROUND)
    hooks = [middleware for middleware in run.middleware if hook_of(middleware, "before_tool")]
    rounds = 0
    while item.result is None:
        key = _key(item.call)
        asks = next((middleware for middleware in hooks if item.agreed.get(name_of(middleware)) != key), None)
        if asks is None:
            break
        rounds += 1
        if rounds > 10 * len(hooks):
            raise HookFailure(f"before_tool of {name_of(asks)!r}", f"the hooks keep editing {item.call.name} in turn")
        if await _ask(run, item, asks):
            return
    fault = None if item.result is not None else run.fault(item.call.name, item.call.args)
    if fault is not None:
        item.result = error_result(item.call, f"{item.call.name} was not run: {fault}.")


async def _ask(run: Execution, item: CallState, middleware: object) -> bool:
    """One ``before_tool``. True: the call now waits for a person."""
    name = name_of(middleware)
    where = f"before_tool of {name!r}"
    try:
        with undone_on_failure(run, where):
            item.call = (await run_before_tool([middleware], item.call, run.context())).replace(id=item.call.id)
    except ToolRejection as rejection:
        item.result = _rejected(item, rejection.message)
        return False
    except HitlInterrupt as interrupt:
        if item.decision is None or item.raised_by != name:
            return _suspend(run, item, interrupt, name, where)
    if item.decision is not None and item.raised_by == name:
        _apply(item, item.decision)  # the hook did not read its answer: the engine obeys it, lest another hook finds it
    item.agreed[name] = _key(item.call)
    return False


def _suspend(run: Execution, item: CallState, interrupt: HitlInterrupt, raised_by: str, where: str) -> bool:
    """Register the interrupt; a call that could not run anyway is answered instead of shown to a person."""
    try:
        check_json(interrupt.args, "args")
        pending = pending_interrupt(interrupt, item.call.id, run.runtime.now())
        pending = PendingInterrupt.model_validate_json(pending.model_dump_json())  # as it will be when it is answered
        fault = run.fault(pending.tool, pending.args)
    except (ValueError, TypeError, OverflowError) as error:
        raise HookFailure(where, f"its HitlInterrupt cannot be shown to anybody: {describe(error)}") from None
    if fault is not None:
        item.result = error_result(item.call, f"{item.call.name} was not run: {fault}.")
        return False
    item.raised_by = raised_by
    if raised_by != BODY:  # what a person is shown is what runs (AC-69)
        item.call = item.call.replace(name=pending.tool, args=pending.args)
    run.state.pending.append(pending)
    run.record("interrupt.requested", tool=pending.tool, call_id=pending.tool_call_id, args=pending.args)
    run.runtime.changed()
    return True


def _apply(item: CallState, decision: Decision, keep: bool = False) -> None:
    """Obey a decision that no hook has read; ``keep`` lets a hook read it still."""
    item.decision = decision if keep else None
    item.decided = decision.kind
    if decision.kind == "reject":
        item.result = _rejected(item, decision.reason)
    elif decision.kind == "edit":
        item.call = item.call.replace(args=decision.args or {})


def _rejected(item: CallState, reason: object) -> ToolResult:
    return error_result(item.call, clean_text(reason) if reason else DEFAULT_REJECTION, "rejected")


async def wait_for_decisions(run: Execution) -> None:
    """Wait, at no cost, until every interrupt is decided, by a person or by its time-out (AC-72)."""
    state = run.state
    state.status = "suspended"
    run.runtime.changed()
    while state.pending:
        await run.report()
        deadline = next_deadline(state.pending)
        left = None if deadline is None else max(0.0, (deadline - run.runtime.now()).total_seconds())
        command_id = run.command_id("decision")
        if not await run.runtime.wait_until(lambda: not state.pending or run.report_due(), left, command_id):
            run.expire()
    state.status = "running"
    run.runtime.changed()


async def execute(run: Execution, batch: Sequence[CallState]) -> None:
    """Run the admitted calls concurrently; errors are raised once every call has come to rest."""
    limit = asyncio.Semaphore(run.agent.options.max_parallel_tools)
    todo = [(index, item) for index, item in enumerate(batch, start=1) if item.result is None]
    tasks = [asyncio.create_task(_execute_call(run, index, item, limit)) for index, item in todo]
    try:
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    run.check_memory("an around_tool hook")
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    errors.sort(key=lambda error: not isinstance(error, AgentError))
    if errors:
        raise errors[0]


async def _execute_call(run: Execution, index: int, item: CallState, limit: asyncio.Semaphore) -> None:
    current_scope.set(f"tool.{index}")
    asked: list[HitlInterrupt] = []
    chain = compose_tool_call(run.middleware, _body(run, index, item, limit, asked), run.context())
    before = item.decision
    try:
        item.result = _with_notice(item, await chain(item.call))
    except ToolRejection as rejection:
        item.result = _rejected(item, rejection.message)
    except ToolError as error:
        status: ResultStatus = "unknown" if error.outcome_unknown else "failed"
        item.result = error_result(item.call, clean_text(error), status)
    except HitlInterrupt as interrupt:
        body = any(interrupt is found for found in asked)
        where = f"tool {item.call.name!r}" if body else "an around_tool hook"
        if before is not None and item.decision is before:
            raise HookFailure(
                where, "it raised HitlInterrupt again after the decision; read ctx.decision(call)"
            ) from None
        _suspend(run, item, interrupt, BODY if body else AROUND, where)


def _body(
    run: Execution, index: int, item: CallState, limit: asyncio.Semaphore, asked: list[HitlInterrupt]
) -> ToolNext:
    """The innermost of the chain: the tool's own activity. Interrupts that its body raises are noted in ``asked``."""
    one_at_a_time = asyncio.Lock()

    async def body(call: ToolCall) -> ToolResult:
        if call != item.call:
            raise HookFailure(
                "around_tool", f"it changed {item.call.name}'s name or arguments; edit them in before_tool"
            )
        async with one_at_a_time:  # a hook may call twice at once
            if item.executed is None:
                item.executed = await attempt(call)
            return item.executed

    async def attempt(call: ToolCall) -> ToolResult:
        if item.lost:
            raise ToolError(item.lost, tool=call.name, outcome_unknown=True, retryable=False)
        item.attempts += 1
        key = f"s{run.state.step:04d}.tool.{index}"
        run.record("tool.started", tool=call.name, call_id=call.id, args=call.args, attempt=item.attempts)
        async with limit:
            execution = ToolExecution(
                command_id=run.ids.next(run.state.step, f"tool.{index}"),
                idempotency_key=f"{run.runtime.run_id}/{key}",
                call=call,
                attempt=item.attempts,
                decision=item.decided,
            )
            try:
                return await run.runtime.call_tool(execution)
            except HitlInterrupt as interrupt:
                asked.append(interrupt)
                raise
            except ToolError as error:
                item.lost = clean_text(error) if error.outcome_unknown else ""
                raise

    return body


def _with_notice(item: CallState, result: ToolResult) -> ToolResult:
    """The result, and where a hook or a person edited the call, a line that tells the model what ran (AC-68, D16)."""
    result = result.replace(call_id=item.call.id)
    if (item.call.name, item.call.args) == (item.original.name, item.original.args):
        return result
    notice = f"[The call was edited before it ran. What ran: {_key(item.call)}]\n"
    content = result.content
    return result.replace(content=notice + content if isinstance(content, str) else (TextBlock(text=notice), *content))


async def settle(run: Execution, batch: Sequence[CallState]) -> None:
    """Run ``after_tool`` on every result, then append the results in call order: exactly one per call."""
    for index, item in enumerate(batch, start=1):
        if item.settled or item.result is None:
            continue
        with scoped(f"tool.{index}"), undone_on_failure(run, "an after_tool hook"):
            result = await run_after_tool(run.middleware, item.result, run.context())
        item.result = result.replace(call_id=item.original.id, name=item.original.name)
        item.settled = True
    run.close_batch(batch)


def _is_pending(run: Execution, item: CallState) -> bool:
    return any(pending.tool_call_id == item.call.id for pending in run.state.pending)


def _key(call: ToolCall) -> str:
    return f"{call.name}:{json.dumps(call.args, ensure_ascii=False)}"

"""One run in progress: the agent, its hooks, its state and its runtime, and what a hook's context reaches through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from outlast.agent import Agent, collect_models, find_model
from outlast.approvals import (
    AuditRecord,
    Decision,
    DecisionMessage,
    PendingInterrupt,
    check_allowed,
    find_interrupts,
    timeout_decision,
)
from outlast.children import forward, report_of, run_agent, shortened
from outlast.errors import AgentError, DecisionRefused, HitlInterrupt, HookFailure, ToolRejection
from outlast.events import EventKind
from outlast.growing import keep_growing
from outlast.messages import Json, Message, ToolCallBlock
from outlast.middleware.contract import HookContext, hook_of
from outlast.middleware.edge_filter import Edges
from outlast.model import Completion, Model, ModelRequest
from outlast.runtime import CommandIds, ModelCall, Runtime, current_effects, current_runtime, current_scope
from outlast.state import CallState, ChildOutcome, ChildReport, InvocationState, RunState, check_json
from outlast.tools import Tool, ToolCall, error_result
from outlast.usage import Usage, spent_by

MODEL_STEP = "model"
"""The scope of a step's own model call."""

MAX_CALLS = 500
"""Calls of one step that are run: their events go into one history, and the server keeps 2,000 pending at most."""

BODY, AROUND = "(body)\n", "(around)\n"
"""``CallState.raised_by`` of an interrupt that came from the execution; no middleware can be called so."""


class Execution:
    """Implements :class:`~outlast.middleware.contract.RunHandle` over a state and a runtime.

    ``middleware`` may be another import of the agent's own (the sandboxed one); its order is the agent's.
    """

    def __init__(
        self, agent: Agent, state: RunState, runtime: Runtime, middleware: Sequence[object] | None = None
    ) -> None:
        self.agent = agent
        self.state = state
        self.runtime = runtime
        self._middleware = tuple(agent.middleware if middleware is None else middleware)
        self._edges = Edges.of(self._middleware)
        self.models = collect_models(agent.options.model, self.middleware)
        self.ids = CommandIds()
        self.streams = not any(hook_of(item, "wrap_model") for item in self.middleware)
        self._reported: tuple[str, ...] = ()
        self._report_asked = False

    def enter(self) -> None:
        """Make side effects called from here on this run's own. Call it in the task that drives the run.

        Not when the run is made: what is set outside its own task would be seen by the next run on the same thread.
        """
        current_runtime.set(self.runtime)
        keep_growing()
        current_effects.set(lambda name: self.command_id(f"{current_scope.get()}.{name}"))

    @property
    def agent_name(self) -> str:
        """The agent's name."""
        return self.agent.name

    @property
    def middleware(self) -> tuple[object, ...]:
        """The middlewares whose hooks this run calls, in registration order."""
        return self._middleware

    def context(self) -> HookContext:
        """The context of the current step."""
        return HookContext(self.state.step, self.state.invocation_state, self.runtime, self)

    @property
    def memory(self) -> InvocationState:
        """The run's dict."""
        state = self.state.invocation_state
        assert isinstance(state, InvocationState)
        return state

    def check_cancelled(self) -> None:
        """Raise CancelledError where somebody asked to cancel the run, though a hook may have swallowed it."""
        if self.runtime.cancel_requested:
            raise asyncio.CancelledError

    def check_memory(self, where: str) -> None:
        """Keep what the run's dict holds now.

        Raises:
            HookFailure: Something in it is not JSON; the dict is as it was at the last check.
        """
        try:
            self.memory.check()
        except TypeError as error:
            raise HookFailure(where, f"TypeError: {error}") from None

    def command_id(self, scope: str) -> str:
        """The next semantic id in this scope of the current step."""
        return self.ids.next(self.state.step, scope)

    def record(self, kind: EventKind, **data: Json) -> None:
        """Tell the run's watchers."""
        self._record(kind, data)

    def _record(self, kind: EventKind, data: dict[str, Json]) -> None:
        self.state.events.add(kind, self.runtime.now(), self.state.step, self._edges.event(data))

    def archive(self, before: str) -> None:
        """What stands before this message may leave the run's memory; see :mod:`outlast.archive`."""
        self.state.archive_before = before

    def emit(self, kind: str, data: Mapping[str, Json]) -> None:
        """A hook's own event; JSON values."""
        check_json(dict(data), "event")
        self._record("custom", {"scope": current_scope.get(), **data})

    async def sleep(self, seconds: float) -> None:
        """A durable timer, named after the hook that asked for it."""
        await self.runtime.sleep(max(0.0, seconds), self.command_id(f"{current_scope.get()}.sleep"))

    async def run_agent(self, name: str, text: str, call: ToolCall) -> ChildOutcome:
        """A sub-agent's run for this call; see :func:`outlast.children.run_agent`."""
        return await run_agent(self, name, text, call)

    def report_due(self) -> bool:
        """Whether this run is a sub-agent's and its parent should hear of a change."""
        waiting = tuple(item.tool_call_id for item in self.state.pending)
        return self.state.parent is not None and (self._report_asked or waiting != self._reported)

    def ask_report(self) -> None:
        """The parent wants to hear from this run."""
        self._report_asked = True

    async def report(self, outcome: ChildOutcome | None = None) -> None:
        """Tell the parent, if there is one and there is something to tell."""
        parent = self.state.parent
        if parent is None or (outcome is None and not self.report_due()):
            return
        self._report_asked = False
        self._reported = tuple(item.tool_call_id for item in self.state.pending)
        report = report_of(self, outcome)
        try:
            await self._tell(parent.run_id, report)
        except HookFailure as failure:
            await self._tell(parent.run_id, shortened(report, failure.error))

    async def _tell(self, parent: str, report: ChildReport) -> None:
        await self.runtime.signal_run(parent, "child_report", report.model_dump(mode="json", exclude_none=True))

    async def call_model(self, model: str | Model | None, request: ModelRequest, scope: str = "") -> Completion:
        """One model call, checked where it is sent; its usage counts. ``model`` None is the agent's own."""
        ref = self.model_ref(model)
        command_id = self.command_id(scope or f"{current_scope.get()}.model")
        call = ModelCall(command_id, ref, request, stream=self.streams and scope == MODEL_STEP)
        try:
            completion = await self.runtime.call_model(call)
        except Exception as error:
            self._count(spent_by(error))
            raise
        self._count(completion.usage)
        return completion

    def _count(self, usage: Usage | None) -> None:
        """Every call that was answered counts, also where its answer was of no use (AC-41)."""
        if usage is not None:
            self.state.usage = self.state.usage + usage.model_copy(update={"model_calls": 1})

    def model_ref(self, model: str | Model | None) -> str:
        """What names a model; objects are told by their place, whichever import of the agent's module they are from."""
        ref = self.agent.model_ref(model) or find_model(model or "", self.models)
        if not ref:
            name = getattr(model, "name", model)
            raise AgentError(
                "UNKNOWN_MODEL", f"model object {name!r} is not declared; put it in the middleware's `models`"
            )
        return ref

    @property
    def model_name(self) -> str:
        """The name of the agent's own model."""
        model = self.agent.options.model
        return model if isinstance(model, str) else model.name

    def find_tool(self, name: str) -> Tool | None:
        """The agent's tool of this name."""
        return self.agent.tools.get(name)

    def calls(self, only_open: bool) -> tuple[ToolCall, ...]:
        """The calls of the current step, as they stand now."""
        return tuple(item.call for item in self.state.batch or () if item.result is None or not only_open)

    async def model_step(self, request: ModelRequest) -> Completion:
        """The step's model call, inside every ``wrap_model``; call ids become ours before a hook sees them."""
        sent = request.model_copy(update={"model": ""}) if request.model else request
        completion = await self.call_model(request.model or None, sent, scope=MODEL_STEP)
        return completion.model_copy(update={"message": self.localise(completion.message)})

    def localise(self, message: Message) -> Message:
        """The message with call ids that are unique in the run, the provider's own kept beside them."""
        prefix = f"call_{self.state.earlier_calls + self.state.step}_"
        taken = [call.id for call in message.tool_calls]
        if all(call_id.startswith(prefix) for call_id in taken) and len(set(taken)) == len(taken):
            return message
        blocks, index = [], 0
        for block in message.blocks:
            if isinstance(block, ToolCallBlock):
                index += 1
                provider_id = block.provider_call_id or (None if block.id.startswith(prefix) else block.id or None)
                block = block.model_copy(update={"id": f"{prefix}{index}", "provider_call_id": provider_id})
            blocks.append(block)
        return message.model_copy(update={"blocks": tuple(blocks)})

    def take_decision(self, call: ToolCall) -> Decision | None:
        """The answer to this call's interrupt, consumed by being read: by the hook that asked, and by no other."""
        scope = current_scope.get()
        for item in self.state.batch or ():
            place = ".around_tool." if item.raised_by == AROUND else f".before_tool.{item.raised_by}"
            if item.call.id == call.id and item.decision is not None and place in scope:
                decision, item.decision = item.decision, None
                item.decided = decision.kind
                return decision
        return None

    def check_decision(self, message: DecisionMessage) -> list[PendingInterrupt]:
        """The interrupts that this decision answers; changes nothing.

        Raises:
            DecisionRefused: Unknown, not allowed, or an edit that does not fit the tool.
        """
        found = find_interrupts(self.state.pending, message.interrupt)
        for interrupt in found:
            check_allowed(interrupt, message.decision)
            if message.decision.kind == "edit":
                fault = self.fault(interrupt.tool, message.decision.args or {}, interrupt.path)
                if fault is not None:
                    raise DecisionRefused(f"the edited arguments do not fit {interrupt.tool}: {fault}")
        return found

    def decide(self, message: DecisionMessage) -> None:
        """Answer the interrupts that the message names. ``suspend`` keeps them waiting."""
        for interrupt in self.check_decision(message):
            self._answer(interrupt, message.decision)

    def expire(self) -> None:
        """Answer what nobody answered in time; emit the reminders that are due."""
        now = self.runtime.now()
        for interrupt in list(self.state.pending):
            if interrupt.path:
                continue  # the sub-agent's own run keeps its time
            if interrupt.expires_at is not None and interrupt.expires_at <= now:
                self._answer(interrupt, timeout_decision(interrupt))
            elif interrupt.reminder_at is not None and interrupt.reminder_at <= now:
                self.record("interrupt.reminded", tool=interrupt.tool, call_id=interrupt.tool_call_id)
                index = self.state.pending.index(interrupt)
                self.state.pending[index] = interrupt.replace(reminder_at=None)

    def _answer(self, interrupt: PendingInterrupt, decision: Decision) -> None:
        now = self.runtime.now()
        self.state.record(
            AuditRecord(
                at=now,
                interrupt_id=interrupt.interrupt_id,
                tool_call_id=interrupt.tool_call_id,
                tool=interrupt.tool,
                shown_args=interrupt.args,
                decision=decision,
            )
        )
        self.record(
            "interrupt.decided",
            tool=interrupt.tool,
            call_id=interrupt.tool_call_id,
            decision=decision.kind,
            by=decision.by,
        )
        if decision.kind == "suspend":
            return
        self.state.pending.remove(interrupt)
        if interrupt.path:
            forward(self, interrupt, decision)
        for item in self.state.batch or ():
            if item.call.id == interrupt.tool_call_id:
                item.decision = decision
                item.lost = ""  # somebody has looked at it: an approval may run it again
        self.runtime.changed()

    def fault(self, tool: str, args: Mapping[str, Json], path: Sequence[str] = ()) -> str | None:
        """Why this call (of the sub-agent at the path) cannot run, in words the model can act on, or None."""
        agent = self.agent.descend(path)
        tools = agent.tools if agent is not None else {}
        if tool not in tools:
            return f"there is no tool named {tool!r}; the tools are: {', '.join(tools) or 'none'}"
        return tools[tool].fault(args)

    def open_batch(self, message: Message, cut_off: bool) -> list[CallState]:
        """The calls of a message, not yet gated; what cannot run at all has its error result already."""
        batch: list[CallState] = []
        for block in message.tool_calls:
            args, fault = _arguments(block)
            call = ToolCall(id=block.id, name=block.name, args=args)
            item = CallState(call=call, original=call)
            if len(batch) >= MAX_CALLS:
                fault = f"one answer may ask for {MAX_CALLS} calls; ask for the rest in the next"
            if cut_off and block is message.tool_calls[-1]:
                fault = "the answer was cut off by the length limit inside this call; it did not run. Make it shorter"
            if fault is not None:
                item.result = error_result(call, f"{block.name} was not run: {fault}.")
            batch.append(item)
        return batch

    def close_batch(self, batch: Sequence[CallState]) -> None:
        """The results into the transcript in call order, exactly one per call; the step is done."""
        for item in batch:
            if item.result is None:
                item.result = item.executed or error_result(item.original, _unfinished(item), "cancelled")
            edited = (item.call.name, item.call.args) != (item.original.name, item.original.args)
            block = item.result.block(
                executed_name=item.call.name if edited else None,
                executed_args=json.dumps(item.call.args, ensure_ascii=False) if edited else None,
            )
            self.append(Message(role="tool", blocks=(block,)))
            self.record(
                "tool.finished", tool=block.name, call_id=block.call_id, status=block.status, text=block.text[:2000]
            )
        self.state.batch = None

    def append(self, message: Message) -> None:
        """A message at the end of the transcript."""
        number = self.state.message_count + 1
        self.state.transcript.append(
            message.model_copy(update={"id": message.id or f"m{number}", "created_at": self.runtime.now()})
        )

    def take_inbox(self) -> bool:
        """Messages sent to the run go into the transcript, between steps. True if there were any."""
        inbox, self.state.inbox = self.state.inbox, []
        for message in inbox:
            self.append(message)
        return bool(inbox)


class undone_on_failure:  # noqa: N801 - read as a statement
    """What hooks write into the run's dict here is kept if they succeed, and taken back if not: they run again.

    Raises:
        HookFailure: They succeeded, but wrote something deep inside that is not JSON.
    """

    def __init__(self, run: Execution, where: str) -> None:
        self._run = run
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None or issubclass(kind, ToolRejection | HitlInterrupt):
            self._run.check_memory(self._where)
        else:
            self._run.memory.undo()


def _arguments(block: ToolCallBlock) -> tuple[dict[str, Json], str | None]:
    """A call's arguments, or none and why they cannot be used: every later reader of them must be able to."""
    args, fault = block.parse_args()
    if fault is None:
        try:
            check_json(args, "arguments")
        except TypeError as error:
            return {}, str(error)
    return args, fault


def _unfinished(item: CallState) -> str:
    if item.attempts == 0:
        return f"{item.original.name} was not run: the run was stopped before it could."
    return (
        f"{item.original.name} was started, and the run was stopped before its result came: it may have taken effect."
    )

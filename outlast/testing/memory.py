"""Run an agent in-process, without a server: for unit tests of hooks, tools and loops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from outlast.activities.tools import run_tool
from outlast.agent import Agent
from outlast.approvals import PendingInterrupt, parse_decision_message
from outlast.children import outcome_of, take_report
from outlast.effects import find_effect
from outlast.errors import AgentRunFailed, AgentRunPaused, OutlastError, ToolRejection
from outlast.events import Event, PauseInfo
from outlast.execution import Execution
from outlast.loop import drive
from outlast.messages import Json, Message, repair_sequence, user
from outlast.middleware.edge_filter import Edges
from outlast.model import Completion, Model, check_request
from outlast.models import resolve_model
from outlast.runtime import EffectCall, ModelCall, ToolExecution
from outlast.state import ChildReport, RunInput, RunResult, RunState, new_state
from outlast.tools import ToolContext, ToolResult


class RunSuspended(OutlastError):
    """``result()`` of an in-memory run that waits for decisions; ``decide`` and call it again."""

    def __init__(self, pending: Sequence[PendingInterrupt]) -> None:
        super().__init__(f"the run waits for decisions on: {', '.join(item.interrupt_id for item in pending)}")
        self.pending = tuple(pending)


class _Parked(BaseException):
    """Unwinds the loop to where the run can be entered again."""


class _Family:
    """A run and its sub-agents' runs, by id."""

    def __init__(self) -> None:
        self.runs: dict[str, MemoryRuntime] = {}

    def is_quiet(self) -> bool:
        """Whether every run of the family is over or asleep."""
        return all(run.is_idle for run in self.runs.values())


class MemoryRuntime:
    """One run in memory, with a clock of its own that jumps over every wait.

    Use it as ``run = MemoryRuntime(agent, "hi"); await run.result()``. Implements
    :class:`outlast.runtime.Runtime` itself.

    Attributes:
        state: The run's :class:`~outlast.state.RunState`; to look at, not to change.
        commands: The semantic ids of everything the run asked the world for, in order.
    """

    def __init__(
        self,
        agent: Agent,
        input: str | None = None,
        *,
        id: str = "memory-run",
        messages: Sequence[Message] = (),
        invocation_state: Mapping[str, Json] | None = None,
        seed: int = 0,
        resolve: Callable[[str], Model] = resolve_model,
        _family: _Family | None = None,
        _start: RunInput | None = None,
    ) -> None:
        self.agent = agent
        self.commands: list[str] = []
        self._id = id
        self._random = random.Random(seed)
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._resolve = resolve
        self._cancelled = False
        self._wake = asyncio.Event()
        self._asleep = asyncio.Event()
        self._family = _family if _family is not None else _Family()
        self._family.runs[id] = self
        self._edges = Edges.of(agent.middleware)
        start = _start or RunInput(
            agent=agent.name, input=input, messages=tuple(messages), invocation_state=dict(invocation_state or {})
        )
        earlier = self._edges.messages((*start.messages, *([user(start.input)] if start.input else ())))
        self.state: RunState = new_state(start, repair_sequence(earlier), self._now)
        self._task: asyncio.Task[None] | None = None

    @property
    def pending(self) -> list[PendingInterrupt]:
        """What waits for a decision."""
        return list(self.state.pending)

    @property
    def events(self) -> list[Event]:
        """The newest events, oldest first."""
        return self.state.events.after(0, 10_000)

    async def result(self) -> RunResult:
        """Run until it ends or can do nothing more by itself.

        Raises:
            RunSuspended: It waits for decisions without a time-out.
            AgentRunPaused: It parked.
            AgentRunFailed: It ended without an answer.
        """
        if self.state.pause is not None:
            raise self._paused(self.state.pause)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drive())
        self._rouse()
        await self._settle(self._task)
        if self._task.done():
            self._task.result()
        if self.state.pause is not None:
            raise self._paused(self.state.pause)
        if self.state.failure is not None:
            raise AgentRunFailed(*self.state.failure, self.state.result())
        if not self._task.done():
            raise RunSuspended(self.state.pending)
        return self.state.result()

    def decide(self, which: str, decision: str | Mapping[str, Json], *, by: str = "", comment: str = "") -> None:
        """Answer an interrupt, as :meth:`outlast.client.Run.decide` does.

        Raises:
            DecisionRefused, ValueError: Refused; nothing has changed.
        """
        answer, comment = self._edges.decision(decision), self._edges.text(comment)
        message = parse_decision_message({"interrupt": which, "decision": answer, "by": by, "comment": comment})
        self._execution().decide(message)
        self._rouse()

    def send(self, message: str | Message) -> None:
        """Steer the run."""
        self.state.inbox += self._edges.messages([user(message) if isinstance(message, str) else message])

    def resume(self) -> None:
        """Let a parked run go on at the next ``result()``."""
        self.state.pause = None
        self.state.status = "running"

    async def cancel(self) -> None:
        """Cancel the run and wait until its open calls are answered."""
        self._cancelled = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def restart(self) -> None:
        """Forget everything that is not in the state, as a crash and continue-as-new would."""
        if self._task is not None:
            self._task.cancel()
        transcript = list(self.state.transcript)
        self.state.pack()
        self.state = RunState.model_validate_json(self.state.model_dump_json(exclude_none=True))
        self.state.transcript = transcript
        self._task = None

    def _paused(self, pause: PauseInfo) -> AgentRunPaused:
        return AgentRunPaused(self._id, pause.where, pause.error, pause.traceback)

    def _execution(self) -> Execution:
        return Execution(self.agent, self.state, self)

    async def _drive(self) -> None:
        run = self._execution()
        try:
            await drive(run)
        except _Parked:
            return
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
        await run.report(outcome_of(run))

    def _rouse(self) -> None:
        """Let the run look at its state again."""
        self._asleep.clear()
        self._wake.set()

    async def _settle(self, task: asyncio.Task[None]) -> None:
        """Until the task is done, or it and its sub-agents are asleep for want of a decision."""
        while not task.done() and not self._family.is_quiet():
            await asyncio.sleep(0)
            if not task.done() and not self._family.is_quiet():
                await asyncio.sleep(0.001)  # a tool's thread may be at work

    @property
    def is_idle(self) -> bool:
        """Whether this run is over, or asleep until somebody tells it something."""
        return self._task is None or self._task.done() or self._asleep.is_set()

    @property
    def run_id(self) -> str:
        """As given."""
        return self._id

    @property
    def random(self) -> random.Random:
        """Seeded."""
        return self._random

    @property
    def control_errors(self) -> tuple[type[BaseException], ...]:
        """The unwinding of a park."""
        return (_Parked,)

    @property
    def cancel_requested(self) -> bool:
        """After :meth:`cancel`."""
        return self._cancelled

    def now(self) -> datetime:
        """The run's own clock; it moves only when the run waits."""
        return self._now

    def uuid(self) -> UUID:
        """Seeded."""
        return UUID(int=self._random.getrandbits(128), version=4)

    async def sleep(self, seconds: float, command_id: str) -> None:
        """Jumps."""
        self.commands.append(command_id)
        self._now += timedelta(seconds=seconds)
        await asyncio.sleep(0)

    async def call_model(self, call: ModelCall) -> Completion:
        """Asks the model itself; its exceptions arrive as they are."""
        self.commands.append(call.command_id)
        messages = repair_sequence(self._edges.sent(call.request.messages))
        same = messages is call.request.messages
        request = call.request if same else call.request.model_copy(update={"messages": messages})
        check_request(request)
        model = self.agent.resolve_ref(call.model)
        completion = await (self._resolve(model) if isinstance(model, str) else model).complete(request)
        try:
            return self._edges.completion(completion)
        except ToolRejection as error:
            vars(error)["usage"] = completion.usage
            raise

    async def call_tool(self, execution: ToolExecution) -> ToolResult:
        """Runs the body here; sync tools in a thread."""
        self.commands.append(execution.command_id)
        context = ToolContext(
            run_id=self._id,
            call_id=execution.call.id,
            idempotency_key=execution.idempotency_key,
            attempt=execution.attempt,
            decision=execution.decision,
        )
        result = await run_tool(self.agent.tools[execution.call.name], execution.call.args, context)
        return self._edges.result(result)

    async def run_effect(self, call: EffectCall) -> Json:
        """Runs the function here."""
        self.commands.append(call.command_id)
        return await find_effect(call.function).run(call.args, call.kwargs)

    async def wait_until(self, condition: Callable[[], bool], timeout_seconds: float | None, command_id: str) -> bool:
        """With a time-out the clock jumps there; without one the run sleeps until :meth:`decide`."""
        self.commands.append(command_id)
        while not condition():
            if timeout_seconds is not None and not self.state.children:
                self._now += timedelta(seconds=timeout_seconds)
                return condition()
            self._wake.clear()
            self._asleep.set()
            await self._wake.wait()
        return True

    async def start_child(self, child_id: str, start: RunInput) -> None:
        """A MemoryRuntime of the same family."""
        agent = self.agent.descend(start.agent.split("/")[-1:])
        assert agent is not None
        child = MemoryRuntime(agent, id=child_id, resolve=self._resolve, _family=self._family, _start=start)
        child._task = asyncio.create_task(child._drive())

    async def signal_run(self, run_id: str, name: str, value: Json) -> bool:
        """Tells a run of the family."""
        target = self._family.runs.get(run_id)
        if target is None or target.state.status in ("completed", "failed", "cancelled"):
            return False
        if name == "child_report":
            take_report(target._execution(), ChildReport.model_validate(value))
        elif name == "decide":
            target._execution().decide(parse_decision_message(value))
        target._rouse()
        return True

    async def cancel_run(self, run_id: str) -> None:
        """Cancels a run of the family."""
        if run_id in self._family.runs:
            await self._family.runs[run_id].cancel()

    async def between_steps(self) -> None:
        """Nothing to do."""

    async def park(self, pause: PauseInfo) -> None:
        """Leaves the loop; :meth:`resume` and :meth:`result` enter it again."""
        raise _Parked

    def changed(self) -> None:
        """Nobody lists runs in memory."""

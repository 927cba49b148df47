"""The runtime over Temporal: activities, durable timers, continue-as-new. Deterministic code only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_json
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ActivityCancellationType

from outlast.activities.effects import SIDE_EFFECT, EffectInput
from outlast.activities.failures import effect_failure, model_failure, tool_failure
from outlast.activities.models import CALL_MODEL, ModelCallHead, ModelCallOptions, json_value
from outlast.activities.tools import ToolCallInput
from outlast.agent import Agent
from outlast.errors import HookFailure
from outlast.events import PauseInfo
from outlast.limits import MAX_MESSAGE_BYTES
from outlast.messages import Json
from outlast.model import Completion, ModelRequest
from outlast.runtime import EffectCall, ModelCall, ToolExecution
from outlast.state import RunInput, RunState
from outlast.tools import Tool, ToolResult
from outlast.unreadable import lacking, lacking_of
from outlast.workflows.archive import archive_old
from outlast.workflows.control import CONTROL_ERRORS
from outlast.workflows.definitions import WorkflowHost
from outlast.workflows.idle import idle
from outlast.workflows.memo import MEMO_KEY, PublishedMemo
from outlast.workflows.room import LOCAL_RESULT_BYTES, Room
from outlast.workflows.transcript import TranscriptChunks

HEARTBEAT = timedelta(seconds=10)
OUTAGE = timedelta(days=7)
"""How long an activity may wait for a worker before the run parks."""

MAX_AT_ONCE = 100
"""Side effects and model calls under way; the server's limit is 2,000 activities, and a step may have 500 tools."""

MIN_EVENTS = 8
"""What an execution does at least before it hands over: a step, or a few messages."""


class TemporalRuntime:
    """Implements :class:`outlast.runtime.Runtime` for one workflow execution.

    Attributes:
        cancelling: Set once cancellation was requested.
        unreadable: Set once something came that another worker can read and this one cannot, in words.
    """

    def __init__(self, state: RunState, chunks: TranscriptChunks, host: WorkflowHost) -> None:
        self.state = state
        self.chunks = chunks
        self.host = host
        self.agent: Agent | None = None
        self.cancelling = False
        self.unreadable = ""
        self._options: tuple[ModelCallOptions, RawValue] | None = None
        self._memo = PublishedMemo()
        self._in_flight = 0
        self._room = Room(host.has_storage)
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._started = workflow.now()
        self._first_length = workflow.info().get_current_history_length()
        self._first_size = workflow.info().get_current_history_size()

    @property
    def run_id(self) -> str:
        """The workflow id."""
        return workflow.info().workflow_id

    @property
    def random(self) -> random.Random:
        """The workflow's own."""
        return workflow.random()

    @property
    def control_errors(self) -> tuple[type[BaseException], ...]:
        """Continue-as-new, eviction and the deadlock detector's interrupt are not the hook's to have raised."""
        return CONTROL_ERRORS

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked to cancel the run."""
        return self.cancelling or workflow.cancellation_reason() is not None

    def now(self) -> datetime:
        """Workflow time."""
        return workflow.now()

    def uuid(self) -> UUID:
        """A workflow uuid."""
        return workflow.uuid4()

    async def sleep(self, seconds: float, command_id: str) -> None:
        """A durable timer, its id as the summary."""
        with self._flight():
            await workflow.sleep(seconds, summary=command_id)

    @contextmanager
    def _flight(self) -> Iterator[None]:
        """While something is under way this execution does not hand over: its answer would be lost."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def call_model(self, call: ModelCall) -> Completion:
        """The activity ``call_model``: a head, the options, and the conversation in chunks."""
        assert self.agent is not None
        self._check_open()
        head = ModelCallHead(agent=self.state.agent, model=call.model, stream=call.stream)
        try:
            messages = self.chunks.payloads_for(call.request.messages)
            payloads = [_json(head), self._model_options(call.request), *messages]
        except ValueError as error:
            raise HookFailure("a before_model or wrap_model hook", f"its request has no JSON: {error}") from None
        await self._admit(payloads, "the conversation of a model call")
        timeout = timedelta(seconds=self.agent.options.model_timeout_seconds + 30)
        async with self._slots:
            answer = await self._answer(self._model_activity(call.command_id, payloads, timeout), model_failure)
        return Completion.model_validate_json(answer)

    async def _model_activity(self, command_id: str, payloads: list[RawValue], timeout: timedelta) -> RawValue:
        raw: RawValue = await workflow.execute_activity(
            CALL_MODEL,
            args=payloads,
            activity_id=command_id,
            result_type=RawValue,
            start_to_close_timeout=timeout,
            schedule_to_close_timeout=OUTAGE,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RetryPolicy(maximum_attempts=10, maximum_interval=timedelta(seconds=30)),
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
        )
        return raw

    async def call_tool(self, execution: ToolExecution) -> ToolResult:
        """The activity named after the tool."""
        assert self.agent is not None
        self._check_open()
        tool = self.agent.tools[execution.call.name]
        call = ToolCallInput(
            agent=self.state.agent,
            tool=tool.name,
            call_id=execution.call.id,
            key=execution.idempotency_key,
            args=execution.call.args,
            attempt=execution.attempt,
            decision=execution.decision,
            calls=len(self.state.batch or ()),
        )
        payload = _json(call)
        await self._admit([payload], f"the arguments of {tool.name}")
        answer = await self._answer(
            self._tool_activity(execution.command_id, tool, payload),
            lambda error: tool_failure(error, tool.name, tool.options.idempotent),
        )
        return ToolResult.model_validate_json(answer)

    async def _tool_activity(self, command_id: str, tool: Tool, payload: RawValue) -> RawValue:
        attempts = tool.options.max_attempts if tool.options.idempotent else 1
        timeout = timedelta(seconds=tool.options.timeout_seconds)
        retry = RetryPolicy(maximum_attempts=attempts, maximum_interval=timedelta(seconds=60))
        raw: RawValue
        if tool.options.local:
            task = await self._room.admit(LOCAL_RESULT_BYTES, self._another_task)
            raw = await workflow.execute_local_activity(
                tool.name,
                payload,
                activity_id=command_id,
                result_type=RawValue,
                start_to_close_timeout=timeout,
                schedule_to_close_timeout=OUTAGE,
                retry_policy=retry,
            )
            self._room.give_back(task, max(0, LOCAL_RESULT_BYTES - len(raw.payload.data)))
        else:
            raw = await workflow.execute_activity(
                tool.name,
                payload,
                activity_id=command_id,
                result_type=RawValue,
                task_queue=tool.options.task_queue,
                start_to_close_timeout=timeout,
                schedule_to_close_timeout=OUTAGE,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=retry,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        return raw

    async def run_effect(self, call: EffectCall) -> Json:
        """The activity ``side_effect``."""
        payload = _json(EffectInput(function=call.function, args=call.args, keywords=call.kwargs))
        await self._admit([payload], f"the arguments of {call.function}")
        async with self._slots:
            running = workflow.execute_activity(
                SIDE_EFFECT,
                payload,
                activity_id=call.command_id,
                result_type=RawValue,
                summary=call.function.rpartition(":")[2][:100],
                start_to_close_timeout=timedelta(seconds=call.timeout_seconds),
                schedule_to_close_timeout=OUTAGE,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=RetryPolicy(maximum_attempts=call.max_attempts),
            )
            result: Json = json.loads(await self._answer(running, lambda error: effect_failure(error, call.function)))
        return result

    async def wait_until(self, condition: Callable[[], bool], timeout_seconds: float | None, command_id: str) -> bool:
        """Wait; hand over to a fresh execution where this one's history has grown meanwhile."""

        def woken() -> bool:
            return condition() or (self.is_worn() and self._in_flight == 0)

        await self._publish_rest()
        try:
            with idle():
                await workflow.wait_condition(woken, timeout=timeout_seconds, timeout_summary=command_id)
        except TimeoutError:
            return condition()
        if not condition():
            self.continue_as_new()
        return True

    async def between_steps(self) -> None:
        """Hand over to a fresh execution where this one's history is long enough."""
        if self.is_worn():
            if self.state.archive_before and self._room.is_stored() and await archive_old(self.state):
                self.chunks = TranscriptChunks(self.state.transcript)
            self.continue_as_new()

    async def park(self, pause: PauseInfo) -> None:
        """Hand over to a fresh execution that only waits: no replay will meet the code that failed.

        A state that is too large to hand over waits here.
        """
        self.changed()
        try:
            self.continue_as_new()
        except HookFailure:
            await self.wait_for_resume()

    async def wait_for_resume(self) -> None:
        """Wait until the run is resumed or aborted, or its time is up."""
        state = self.state
        seconds = self.agent.options.pause_timeout_seconds if self.agent is not None else None
        try:
            with idle():
                await workflow.wait_condition(
                    lambda: state.pause is None or state.abort is not None, timeout=seconds, timeout_summary="pause"
                )
        except TimeoutError:
            state.failure = ("PAUSE_TIMEOUT", f"nobody resumed the run within {seconds:g} seconds")

    async def start_child(self, child_id: str, start: RunInput) -> None:
        """A child workflow that survives this execution (ABANDON) and answers by signal."""
        payload = _json(start)
        await self._admit([payload], "the input of a sub-agent")
        with self._flight(), contextlib.suppress(WorkflowAlreadyStartedError):
            await workflow.start_child_workflow(
                workflow.info().workflow_type,
                payload,
                id=child_id,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo={MEMO_KEY: {"agent": start.agent, "status": "running"}},
                static_summary=start.agent[:100],
            )

    async def signal_run(self, run_id: str, name: str, value: Json) -> bool:
        """A signal to another workflow."""
        payload = json_value(to_json(value))
        size = self._room.check([payload], f"the message to {run_id}", MAX_MESSAGE_BYTES)
        with self._flight():
            try:
                await self._room.admit(size, self._another_task)
                await workflow.get_external_workflow_handle(run_id).signal(name, payload)
            except ApplicationError:
                return False
        return True

    async def cancel_run(self, run_id: str) -> None:
        """A cancellation request to another workflow."""
        with contextlib.suppress(ApplicationError):
            await workflow.get_external_workflow_handle(run_id).cancel()

    def changed(self) -> None:
        """Publish the status to the memo, where listing finds it without waking the run."""
        self._memo.publish(self.state)

    async def _publish_rest(self) -> None:
        if self._memo.lags:
            await self._another_task()
            self.changed()

    def is_worn(self) -> bool:
        """Whether this execution should hand over to the next."""
        info, limits = workflow.info(), self.state.history_limits
        length = info.get_current_history_length()
        if length - self._first_length < MIN_EVENTS:
            return False
        # Sizes count from the start: a state that is itself larger than the limit would hand over for ever.
        return (
            info.is_continue_as_new_suggested()
            or length >= limits.events
            or info.get_current_history_size() - self._first_size >= limits.size
            or (workflow.now() - self._started).total_seconds() >= limits.seconds
        )

    def continue_as_new(self) -> None:
        """Continue as new with the whole state, encoded and measured before the call.

        Raises:
            AgentError: ``STATE_TOO_LARGE``, where no payload could carry it; nothing is lost.
        """
        payloads = state_payloads(self.state, self.chunks)
        self._room.check(payloads, "the run's state")
        workflow.continue_as_new(args=payloads)

    def _model_options(self, request: ModelRequest) -> RawValue:
        options = ModelCallOptions.model_construct(
            tools=request.tools, response_format=request.response_format, settings=request.settings
        )
        if self._options is None or self._options[0] != options:
            self._options = (options, _json(options))
        return self._options[1]

    async def _answer(self, running: Awaitable[RawValue], failure: Callable[[ActivityError], BaseException]) -> bytes:
        """The activity's result as JSON text, or its failure in our own words."""
        try:
            with self._flight():
                raw = await running
        except ActivityError as error:
            details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
            await self._block_if(next(filter(None, map(lacking_of, details)), None))
            raise failure(error) from None
        await self._block_if(lacking(raw.payload.metadata))
        return raw.payload.data

    async def _block_if(self, missing: str | None) -> None:
        """Never return where this worker lacks a key: nothing may be decided by what another one can read.

        The run sees :attr:`unreadable` and fails the workflow task, which leaves no trace and is tried again.
        """
        if missing is not None:
            self.unreadable = missing
            await asyncio.get_running_loop().create_future()

    def _check_open(self) -> None:
        """Nothing begins in a cancelled run, whatever a hook made of the cancellation; side effects may clean up."""
        if self.cancel_requested:
            raise asyncio.CancelledError

    async def _admit(self, payloads: list[RawValue], what: str) -> None:
        """Wait for a workflow task with room: what one task asks for travels in one request, which is bounded too."""
        await self._publish_rest()
        await self._room.admit(self._room.check(payloads, what), self._another_task)

    async def _another_task(self) -> None:
        await self.sleep(0.001, "room")


def state_payloads(state: RunState, chunks: TranscriptChunks) -> list[RawValue]:
    """The arguments of the next execution: the state, then the transcript in chunks."""
    state.pack()
    head = CarriedState.model_construct(layout=chunks.layout(), state=state)
    return [_json(head), *(chunk.payload for chunk in chunks.chunks())]


class CarriedState(BaseModel):
    """The first argument of a continued execution."""

    layout: list[tuple[int, int]]
    state: RunState


def _json(value: BaseModel) -> RawValue:
    return json_value(value.model_dump_json(exclude_none=True).encode())

"""The workflow ``AgentRun``: one agent run, however many Temporal executions it continues as."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

from pydantic import ValidationError
from pydantic_core import from_json
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from outlast.activities.models import json_value
from outlast.children import outcome_of
from outlast.errors import HookFailure, UnknownAgent, clean_text
from outlast.events import PauseInfo
from outlast.execution import Execution
from outlast.limits import MAX_INLINE_BYTES, MAX_MESSAGE_BYTES
from outlast.loop import drive, end
from outlast.messages import Json, load_messages, repair_sequence, user
from outlast.middleware.compose import describe
from outlast.state import RunInput, RunState, new_state
from outlast.unreadable import lacking, lost
from outlast.workflows.commands import Command, Refused, answer, check, named_interrupt, obey
from outlast.workflows.definitions import current_host
from outlast.workflows.room import LOCAL_RESULT_BYTES
from outlast.workflows.runtime import CarriedState, TemporalRuntime
from outlast.workflows.transcript import TranscriptChunks

WORKFLOW = "AgentRun"
OTHER_WORKERS = timedelta(seconds=10)
"""How long a new run whose input this worker has no key for is left to others, before it fails."""


@workflow.defn(name=WORKFLOW)
class AgentRun:
    """Arguments: :class:`~outlast.state.RunInput`, or a carried state and its transcript's chunks.

    They come as they are (:class:`~outlast.workflows.sandbox.RawInputRunner`), so that none can stick a run.
    """

    takes_raw_input = True

    @workflow.init
    def __init__(self, parts: Sequence[RawValue]) -> None:
        self._execution: Execution | None = None
        self._fault = ""
        self._unreadable = _unread(parts)
        self._state: RunState | None = None
        layout: list[tuple[int, int]] = []
        try:
            if self._unreadable is not None:
                raise ValueError(self._unreadable)
            self._state, layout = _read(parts)
        except (ValidationError, ValueError, TypeError) as error:
            self._fault = f"the run's input is not usable: {clean_text(str(error), 1500)}"
        if self._state is not None:
            chunks = TranscriptChunks(self._state.transcript, layout)
            self._runtime = TemporalRuntime(self._state, chunks, current_host())
            self._load()

    def _load(self) -> None:
        """Find the agent and its hooks; where that fails the run parks, whatever it was."""
        state, host = self._state, self._runtime.host
        assert state is not None
        try:
            agent = host.agents.get(state.agent)
            middleware = host.middleware(state.agent)
        except UnknownAgent as error:
            self._cannot_load("UNKNOWN_AGENT", f"agent {state.agent!r}", str(error))
        except Exception as error:
            if workflow.unsafe.is_replaying():
                raise  # this worker's code is broken; the task is retried, and a sound worker goes on
            self._cannot_load("AGENT_MODULE", f"the module of agent {state.agent!r}", describe(error))
        else:
            self._runtime.agent = agent
            state.fingerprint = agent.fingerprint
            self._execution = Execution(agent, state, self._runtime, middleware)

    def _cannot_load(self, code: str, where: str, error: str) -> None:
        assert self._state is not None
        if self._state.pause is None:
            self._state.pause = PauseInfo(where=where, error=error, code=code, since=workflow.now())
            self._state.status = "paused"

    @workflow.run
    async def run(self, parts: Sequence[RawValue]) -> RawValue:
        """Run to the end; see :func:`outlast.loop.drive`."""
        if self._unreadable is not None and _is_for_others():
            raise RuntimeError(f"the run's input cannot be read here: {self._unreadable}")  # the task is retried
        if self._state is None:
            raise ApplicationError(self._fault, type="INVALID_INPUT", non_retryable=True)
        try:
            await self._run(self._state)
        except asyncio.CancelledError:
            if self._state.status != "completed":
                self._end("CANCELLED", "the run was cancelled")
                self._runtime.changed()
                await self._report_outcome()
                raise
        await self._report_outcome()
        return self._close(self._state)

    async def _run(self, state: RunState) -> None:
        first = workflow.info().continued_run_id is None
        while state.pause is not None and state.failure is None and state.abort is None:
            await self._wait_while_paused(state, first)
        if first and self._execution is not None:
            self._execution.record("run.started", agent=state.agent)
        if state.failure is None and state.abort is None:
            await self._drive(state)
        if state.abort is not None and state.status != "completed":
            self._end("ABORTED", state.abort)
        elif state.failure is not None:
            self._end(*state.failure)

    async def _wait_while_paused(self, state: RunState, first: bool) -> None:
        """Until it is resumed, aborted or over time. What failed to load is loaded again by a fresh execution."""
        paused = state.pause
        self._runtime.changed()
        if self._execution is not None:
            self._execution.ask_report()
            await self._execution.report()
        if first:  # so that no replay meets the definition that failed to load
            self._hand_over()
        await self._runtime.wait_for_resume()
        if self._execution is None and state.failure is None and state.abort is None:
            self._hand_over()  # another worker may know the agent by now
            state.pause, state.status = paused, "paused"
        self._runtime.changed()

    def _hand_over(self) -> None:
        """Continue as new; where the state is too large for that, this execution goes on."""
        with contextlib.suppress(HookFailure):
            self._runtime.continue_as_new()

    async def _drive(self, state: RunState) -> None:
        """The loop, and beside it whatever ends it from outside."""
        assert self._execution is not None
        task = asyncio.create_task(drive(self._execution))
        try:
            await workflow.wait_condition(
                lambda: task.done() or state.abort is not None or bool(self._runtime.unreadable)
            )
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if self._runtime.unreadable:
            raise RuntimeError(f"an answer cannot be read here: {self._runtime.unreadable}")  # the task is retried
        if task.done():
            await task
        else:
            await self._stop(task)

    async def _stop(self, task: asyncio.Task[None]) -> None:
        """Cancel the loop and wait until its activities have ended and its open calls are answered."""
        self._runtime.cancelling = True
        task.cancel()
        await workflow.wait([task])

    def _end(self, code: str, message: str) -> None:
        assert self._state is not None
        if self._execution is not None:
            end(self._execution, code, message)
            return
        self._state.failure, self._state.pause = (code, message), None
        self._state.status = "cancelled" if code == "CANCELLED" else "failed"

    async def _report_outcome(self) -> None:
        if self._execution is not None:
            await self._execution.report(outcome_of(self._execution))

    def _close(self, state: RunState) -> RawValue:
        """The workflow's result, or the failure that ends it."""
        payload = self._result(state)
        self._runtime.changed()
        if state.failure is not None:
            code, message = state.failure
            raise ApplicationError(message, payload, type=code, non_retryable=True)
        return payload

    def _result(self, state: RunState) -> RawValue:
        """As much of the result as one payload carries; the messages can be asked for in pages.

        A sub-agent's result is also written into its parent's history, beside those of its siblings: it is kept short.
        """
        whole = state.result()
        short = whole.model_copy(update={"messages": (), "messages_omitted": True})
        bare = short.model_copy(update={"invocation_state": {}, "interrupts": (), "audit": ()})
        room = (
            (MAX_INLINE_BYTES,) * 3
            if state.parent is None
            else (LOCAL_RESULT_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
        )
        for result, limit in zip((whole, short, bare), room, strict=True):
            payload = json_value(result.model_dump_json(exclude_none=True).encode())
            if self._runtime.host.has_storage or len(payload.payload.data) <= limit:
                return payload
        self._end("RESULT_TOO_LARGE", "the answer is larger than a result may be without storage (OUTLAST_STORAGE)")
        return json_value(bare.model_copy(update={"output": None}).model_dump_json(exclude_none=True).encode())

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """``decide``, ``send``, ``resume``, ``abort``; anything else is noted and ignored."""
        try:
            self._obey(check(self._state, self._execution, name, args))
        except Refused as refused:
            self._note(name, str(refused))
            self._give_back(name, args)
        except Exception as error:
            self._note(name, describe(error))

    def _give_back(self, name: str, args: Sequence[RawValue]) -> None:
        """A decision of the parent that could not be obeyed here becomes pending again there."""
        if (
            name == "decide"
            and self._execution is not None
            and self._state is not None
            and self._state.parent is not None
        ):
            self._state.refused.append(named_interrupt(args))
            self._execution.ask_report()

    @workflow.update(dynamic=True)
    def on_update(self, name: str, args: Sequence[RawValue]) -> Json:
        """As the signals, but answered: a refusal reaches the sender and leaves nothing in the history."""
        try:
            return self._obey(check(self._state, self._execution, name, args))
        except Exception as error:
            raise ApplicationError(clean_text(str(error)), type="Refused", non_retryable=True) from None

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse what cannot be obeyed, before it is recorded."""
        try:
            check(self._state, self._execution, name, args)
        except Refused as refused:
            raise ApplicationError(str(refused), type="Refused", non_retryable=True) from None

    @workflow.query(dynamic=True)
    def on_query(self, name: str, args: Sequence[RawValue]) -> Json:
        """``status``, ``pending``, ``events``, ``messages``, ``result``."""
        return answer(self._state, self._execution, name, args)

    def _obey(self, command: Command) -> Json:
        assert self._state is not None
        return obey(self._state, self._execution, command)

    def _note(self, name: str, reason: str) -> None:
        if self._execution is not None:
            self._execution.record("input.refused", name=clean_text(name, 80), reason=clean_text(reason, 500))


def _unread(parts: Sequence[RawValue]) -> str | None:
    reasons = (lacking(part.payload.metadata) or lost(part.payload.metadata) for part in parts)
    return next((reason for reason in reasons if reason is not None), None)


def _is_for_others() -> bool:
    """Whether a run whose input this worker cannot have is left to other workers.

    One that has begun always is. A new one fails in the end, with the reason: its input may be a stranger's.
    """
    info = workflow.info()
    begun = info.continued_run_id is not None or workflow.unsafe.is_replaying()
    return begun or workflow.now() - info.workflow_start_time < OTHER_WORKERS


def _read(parts: Sequence[RawValue]) -> tuple[RunState, list[tuple[int, int]]]:
    """The state that these arguments hold, and how its transcript is divided in chunks.

    Raises:
        ValueError, TypeError: They hold none; the message says what they should be.
    """
    head = from_json(_data(parts[0])) if parts else None
    if not isinstance(head, dict):
        raise ValueError("it must be an object like {'agent': NAME, 'input': TEXT}")
    if "state" in head:
        carried = CarriedState.model_validate(head)
        carried.state.transcript = [message for part in parts[1:] for message in load_messages(_data(part))]
        lengths = [length for length, _ in carried.layout]
        if min(lengths, default=1) < 1 or sum(lengths) != len(carried.state.transcript):
            raise ValueError("the layout does not fit the transcript")
        return carried.state, carried.layout
    start = RunInput.model_validate(head)
    earlier = (*start.messages, *([user(start.input)] if start.input else []))
    if not earlier:
        raise ValueError("neither 'input' nor 'messages' gives the agent anything to do")
    return new_state(start, repair_sequence(earlier), workflow.now()), []


def _data(part: RawValue) -> bytes:
    encoding = part.payload.metadata.get("encoding")
    if encoding != b"json/plain":
        raise ValueError(f"it must be JSON (encoding json/plain), not {encoding!r:.80}")
    return part.payload.data

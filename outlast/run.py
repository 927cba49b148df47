"""One run, by its id: watch, steer, approve, cancel and inspect it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import temporalio.client
from pydantic_core import from_json, to_json
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError
from temporalio.service import RPCError

from outlast.activities.archive import read_archived
from outlast.activities.models import json_value
from outlast.approvals import PendingInterrupt
from outlast.archive import ArchivedPart
from outlast.errors import (
    AgentRunFailed,
    AgentRunPaused,
    DecisionRefused,
    NoAnswer,
    OutlastError,
    clean_text,
)
from outlast.limits import MAX_MESSAGE_BYTES
from outlast.messages import Json, Message, load_messages, user
from outlast.server_answers import BETWEEN_EXECUTIONS, in_words, is_full, readable, told
from outlast.state import RunResult, check_json
from outlast.watch import WatchEvent, watch
from outlast.workflows.memo import RunSummary, published_summary

if TYPE_CHECKING:
    from outlast.client import Client

_ANSWER = timedelta(seconds=20)


class RunInfo(RunSummary):
    """One run in a list, from its memo alone: nothing was woken.

    Attributes:
        id: The run's id.
        temporal_status: ``RUNNING``, ``COMPLETED``, ``FAILED``, ``CANCELED``, ``TERMINATED``, ``TIMED_OUT``.
    """

    id: str
    temporal_status: str = ""
    started_at: datetime | None = None
    closed_at: datetime | None = None


class Run:
    """A run, by its id. Holds nothing but the id: any process may make one."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self._refusal = ""
        self.id = run_id

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    @property
    def temporal(self) -> temporalio.client.Client:
        """The Temporal client under it."""
        return self._client.temporal

    @property
    def _handle(self) -> temporalio.client.WorkflowHandle[Any, RawValue]:
        return self._client.temporal.get_workflow_handle(self.id, result_type=RawValue)

    async def result(self) -> RunResult:
        """Wait for the end.

        Raises:
            AgentRunPaused: The run parked; resume it and await the result again.
            AgentRunFailed: It ended without an answer, or was cancelled.
            RunNotFound: There is no such run.
        """
        waiting = asyncio.ensure_future(self._outcome())
        delay = 0.5
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=delay)
                if done:
                    return waiting.result()
                await self._raise_if_paused()
                delay = min(delay * 1.5, 15.0)
        finally:
            waiting.cancel()

    async def _outcome(self) -> RunResult:
        """Follow the executions to the last; look between two whether the run parked."""
        execution: str | None = None
        while True:
            handle = self._client.temporal.get_workflow_handle(self.id, run_id=execution, result_type=RawValue)
            try:
                raw = await told(handle.result(follow_runs=False), self.id)
                return await self._whole(RunResult.model_validate(readable(from_json(raw.payload.data), self.id)))
            except temporalio.client.WorkflowContinuedAsNewError as error:
                execution = error.new_execution_run_id
                await self._raise_if_paused()
            except temporalio.client.WorkflowFailureError as error:
                raise await self._failed(error.cause) from None

    async def _failed(self, cause: BaseException) -> AgentRunFailed:
        if isinstance(cause, ApplicationError):
            found = readable(next((item for item in cause.details if isinstance(item, Mapping)), None), self.id)
            result = await self._whole(RunResult.model_validate(found)) if found is not None else None
            return AgentRunFailed(cause.type or "FAILED", cause.message, result)
        if isinstance(cause, CancelledError):
            return AgentRunFailed("CANCELLED", "the run was cancelled", await self._last_words())
        code = "TERMINATED" if isinstance(cause, TerminatedError) else "FAILED"
        return AgentRunFailed(code, clean_text(str(cause)), None)

    async def _last_words(self) -> RunResult | None:
        try:
            return await self.snapshot()
        except (OutlastError, ValueError):
            return None

    async def _whole(self, result: RunResult) -> RunResult:
        """The result with the messages that the run keeps in storage; without any, where those cannot be had."""
        if not result.archived:
            return result
        try:
            earlier = [message for part in result.archived for message in await self._archived(part)]
        except OutlastError:
            return result.replace(messages=(), messages_omitted=True)
        return result.replace(messages=(*earlier, *result.messages), archived=())

    async def _archived(self, part: ArchivedPart) -> tuple[Message, ...]:
        try:
            return await read_archived(self._client.temporal, self.id, part.payload)
        except ValueError as error:
            raise OutlastError(
                f"run {self.id!r}: {part.messages} of its older messages cannot be read here: "
                f"{clean_text(error, 300)}; "
                "this process needs the storage and the keys of the run's workers (OUTLAST_STORAGE, encryption keys)"
            ) from None

    async def snapshot(self) -> RunResult:
        """The run as it is now, asked of the run itself: transcript, state, usage, audit trail; the output at the end.

        Raises:
            NoAnswer: No worker answered.
        """
        result = RunResult.model_validate(await self._query("result"))
        return result.replace(messages=tuple(await self.messages()), archived=())

    async def _raise_if_paused(self) -> None:
        info = await self.info()
        if info.status == "paused" and info.temporal_status == "RUNNING":
            where, _, error = info.error.partition(": ")
            raise AgentRunPaused(self.id, where, error)

    async def info(self) -> RunInfo:
        """Status, step and pending interrupts as the run last published them; wakes nothing."""
        description = await told(self._handle.describe(), self.id)
        return run_info(description, await description.memo())

    async def pending(self) -> list[PendingInterrupt]:
        """The pending interrupts with their whole arguments, asked of the run itself."""
        return [PendingInterrupt.model_validate(item) for item in await self._query("pending")]

    async def decide(
        self, which: str, decision: str | Mapping[str, Json], *, by: str = "", comment: str = "", id: str = ""
    ) -> None:
        """Answer an interrupt: named by its id, its tool call id, or its bare tool name.

        ``decision``: ``"approve"``, ``{"edit": args}``, ``{"reject": "why"}``.

        Raises:
            DecisionRefused: Unknown, already decided, or not allowed. The run keeps waiting.
            NoAnswer: No worker answered.
        """
        edges = self._client.edges
        message = {
            "interrupt": which,
            "decision": edges.decision(decision),
            "by": by,
            "comment": edges.text(comment),
            "id": id or uuid.uuid4().hex,
        }
        check_json(message, "decision")
        await self._update("decide", message)

    async def send(self, message: str | Message) -> None:
        """Steer the run: the message joins the conversation before its next step."""
        [filtered] = self._client.edges.messages([user(message) if isinstance(message, str) else message])
        content = filtered.text if isinstance(message, str) else filtered.model_dump(mode="json", exclude_none=True)
        await self._update(
            "send", {"message" if not isinstance(message, str) else "text": content, "id": uuid.uuid4().hex}
        )

    async def resume(self, *, by: str = "") -> None:
        """Let a parked run go on: what failed is done again, nothing else.

        Raises:
            DecisionRefused: It is not paused.
        """
        await self._update("resume", {"by": by, "id": uuid.uuid4().hex})

    async def abort(self, reason: str = "") -> None:
        """End the run now, as failed with the code ``ABORTED``."""
        await self._update("abort", {"reason": self._client.edges.text(reason), "id": uuid.uuid4().hex})

    async def cancel(self) -> None:
        """Ask the run to stop: running tools are told, open calls are answered, the transcript stays sound."""
        await told(self._handle.cancel(), self.id)

    async def messages(self) -> list[Message]:
        """The transcript so far, asked of the run in pages."""
        found: list[Message] = []
        after: int | None = 0
        while after is not None:
            page = await self._query("messages", {"after": after})
            for part in page.get("archived", ()):
                found.extend(await self._archived(ArchivedPart.model_validate(part)))
            found.extend(load_messages(page["messages"]))
            after = page["next"]
        return found

    def events(self, *, after: int = 0, deltas: bool = True) -> AsyncIterator[WatchEvent]:
        """What happens, as it happens, until the run ends; from a cursor (``seq``) on. Adds nothing to the history."""
        return watch(self._client.temporal, self.id, after=after, deltas=deltas)

    async def _update(self, name: str, value: Json) -> None:
        """Send a command and wait until it was obeyed; sent again, under the same id, where the run was handing over.

        An update that meets a continue-as-new may be aborted although it took effect. The run remembers command ids
        over the handover, so that sending it again does nothing twice.
        """
        update_id = uuid.uuid4().hex
        self._refusal = ""
        payload = _payload(value)
        self._client.check_size(payload, MAX_MESSAGE_BYTES, f"`{name}` to run {self.id!r}")
        try:
            async with asyncio.timeout(_ANSWER.total_seconds()):
                while not await self._sent(name, payload, update_id):
                    await asyncio.sleep(0.1)
        except temporalio.client.WorkflowUpdateFailedError as error:
            raise DecisionRefused(getattr(error.cause, "message", str(error.cause))) from None
        except (TimeoutError, temporalio.client.WorkflowUpdateRPCTimeoutOrCancelledError):
            reason = f"the server says: {self._refusal}" if self._refusal else "is a worker running for its task queue?"
            raise NoAnswer(
                f"run {self.id!r} did not answer `{name}` within {_ANSWER.total_seconds():g} s; {reason}"
            ) from None

    async def _sent(self, name: str, value: RawValue, update_id: str) -> bool:
        """Whether the run obeyed; False where it was between two executions."""
        try:
            await self._handle.execute_update(name, value, id=update_id, result_type=RawValue)
        except RPCError as error:
            if error.status in BETWEEN_EXECUTIONS and not is_full(error):
                self._refusal = error.message
                return False
            raise in_words(error, self.id) from None
        except temporalio.client.WorkflowUpdateFailedError as error:
            if getattr(error.cause, "type", "") == "AcceptedUpdateCompletedWorkflow":
                return False
            raise
        return True

    async def _query(self, name: str, value: Json = None) -> Any:  # noqa: ANN401 - JSON
        try:
            query = self._handle.query(name, _payload(value), rpc_timeout=_ANSWER)
            answer: Any = readable(await told(query, self.id), self.id)
        except temporalio.client.WorkflowQueryFailedError as error:
            raise NoAnswer(f"run {self.id!r} could not be asked for its {name}: {error}") from None
        if isinstance(answer, Mapping) and "error" in answer and len(answer) == 1:
            raise OutlastError(f"run {self.id!r}: {answer['error']}")
        return answer


def run_info(execution: temporalio.client.WorkflowExecution, memo: Mapping[str, Any]) -> RunInfo:
    """A run as visibility and its memo tell it."""
    known = {
        "id": execution.id,
        "temporal_status": execution.status.name if execution.status is not None else "",
        "started_at": execution.start_time,
        "closed_at": execution.close_time,
    }
    return RunInfo.model_validate({**published_summary(memo), **known})


def _payload(value: Json) -> RawValue:
    return json_value(to_json(value))

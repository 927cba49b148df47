"""Start, watch, steer, approve, cancel and inspect runs from Python."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import temporalio.client
from pydantic_core import from_json, to_json
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, WorkflowAlreadyStartedError
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
    RunExists,
    clean_text,
)
from outlast.limits import MAX_INLINE_BYTES, MAX_MESSAGE_BYTES, check_run_id, check_sent
from outlast.messages import Json, Message, load_messages, user
from outlast.middleware.edge_filter import Edges
from outlast.server_answers import BETWEEN_EXECUTIONS, in_words, is_full, readable, told
from outlast.state import HistoryLimits, RunInput, RunResult, check_json
from outlast.watch import WatchEvent, watch
from outlast.workflows.agent_run import WORKFLOW
from outlast.workflows.memo import MEMO_KEY, PendingPreview, RunSummary, published_summary

_ANSWER = timedelta(seconds=20)
DEFAULT_TASK_QUEUE = "outlast"


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


class PendingDecision(PendingPreview):
    """A pending interrupt in the inbox over all runs."""

    run_id: str
    agent: str


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
        return _info(description, await description.memo())

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


class Client:
    """A client over a Temporal client; see :meth:`connect`.

    Args:
        temporal: Whose data converter must be that of the workers.
        task_queue: Where runs are started.
        history_limits: When the executions of runs started here hand over to fresh ones.
        filters: Middlewares that filter what this client sends before a payload exists (``pii_redact(...,
            at_edges=True)``); others among them are ignored, so that ``agent.middleware`` will do.
    """

    def __init__(
        self,
        temporal: temporalio.client.Client,
        *,
        task_queue: str = DEFAULT_TASK_QUEUE,
        history_limits: HistoryLimits | None = None,
        filters: Iterable[object] = (),
    ) -> None:
        self.temporal = temporal
        self.edges = Edges.of(filters)
        self.task_queue = task_queue
        self.history_limits = history_limits or HistoryLimits()

    @classmethod
    async def connect(
        cls, address: str | None = None, *, task_queue: str | None = None, filters: Iterable[object] = ()
    ) -> Self:
        """Connect as Temporal's own environment variables and config file say.

        Raises:
            OutlastError: The server cannot be reached; the message says which and what to do.
        """
        from outlast.settings import Settings, connect  # the client of a plugin user needs no settings

        settings = Settings.load(address=address, task_queue=task_queue)
        return cls(await connect(settings), task_queue=settings.task_queue, filters=filters)

    async def start(
        self,
        agent: str,
        input: str | None = None,
        *,
        id: str | None = None,
        messages: Sequence[Message] = (),
        invocation_state: Mapping[str, Json] | None = None,
    ) -> Run:
        """Start a run and return at once.

        Args:
            agent: The agent's name; a worker of the task queue must have it.
            input: The user's message.
            id: Yours to choose, so that a repeated start is refused instead of doubled.
            messages: An earlier conversation to go on with; repaired where it broke off.
            invocation_state: JSON values for the run's dict.

        Raises:
            TypeError: ``invocation_state`` holds something that is not JSON; the message names the key.
            ValueError: Neither input nor messages; an id that is empty, too long, or that the client's filters would
                change.
            OutlastError: More than 1.9 MB, and this client has no storage.
            ToolRejection: A filter refuses the input.
            RunExists: A run of this id was started before.
        """
        if not input and not messages:
            raise ValueError("give the agent something to do: input=..., or messages=... that end with a user message")
        state = dict(invocation_state or {})
        check_json(state, "invocation_state")
        run_id = id if id is not None else f"{agent}-{uuid.uuid4().hex[:12]}"
        check_run_id(run_id)
        if self.edges.text(run_id) != run_id:
            raise ValueError("the run's id holds what the client's filters take out; ids are seen everywhere")
        text = None if input is None else self.edges.messages([user(input)])[0].text
        start = RunInput(
            agent=agent,
            input=text,
            messages=self.edges.messages(messages),
            invocation_state=state,
            history_limits=self.history_limits,
        )
        value = json_value(start.model_dump_json(exclude_none=True).encode("utf-8", "replace"))
        self.check_size(value, MAX_INLINE_BYTES, f"the start of run {run_id!r}")
        try:
            await told(
                self.temporal.start_workflow(
                    WORKFLOW,
                    value,
                    id=run_id,
                    task_queue=self.task_queue,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    memo={MEMO_KEY: {"agent": agent, "status": "running"}},
                    static_summary=agent[:100],
                ),
                run_id,
            )
        except WorkflowAlreadyStartedError:
            raise RunExists(
                f"a run {run_id!r} was started before; client.get({run_id!r}) is it, or choose another id"
            ) from None
        return Run(self, run_id)

    def check_size(self, value: RawValue, limit: int, what: str) -> None:
        """Raise OutlastError where a value is larger than this, and no storage takes it."""
        if self.temporal.data_converter.external_storage is None:
            check_sent(len(value.payload.data), limit, what)

    def get(self, run_id: str) -> Run:
        """The run of this id; nothing is asked of the server yet."""
        return Run(self, run_id)

    async def runs(self, *, open_only: bool = False, limit: int = 100) -> list[RunInfo]:
        """The newest runs, from visibility alone."""
        return [item async for item in self._list(open_only, limit)]

    async def pending(self, *, limit: int = 1000) -> list[PendingDecision]:
        """The inbox: what waits for a decision, over all open runs, soonest expiry first. Wakes no run."""
        found = [
            PendingDecision(**item.model_dump(), run_id=run.id, agent=run.agent)
            async for run in self._list(True, limit)
            for item in run.pending
        ]
        return sorted(
            found, key=lambda item: (item.expires_at is None, item.expires_at, item.requested_at, item.run_id)
        )

    async def _list(self, open_only: bool, limit: int) -> AsyncIterator[RunInfo]:
        query = f"WorkflowType = '{WORKFLOW}'" + (" AND ExecutionStatus = 'Running'" if open_only else "")
        count = 0
        async for execution in self.temporal.list_workflows(query, limit=limit * 2):
            status = execution.status
            if status == temporalio.client.WorkflowExecutionStatus.CONTINUED_AS_NEW:
                continue
            yield _info(execution, await execution.memo())
            count += 1
            if count >= limit:
                return


def _info(execution: temporalio.client.WorkflowExecution, memo: Mapping[str, Any]) -> RunInfo:
    known = {
        "id": execution.id,
        "temporal_status": execution.status.name if execution.status is not None else "",
        "started_at": execution.start_time,
        "closed_at": execution.close_time,
    }
    return RunInfo.model_validate({**published_summary(memo), **known})


def _payload(value: Json) -> RawValue:
    return json_value(to_json(value))

"""Start runs from Python, list them, and see what waits for people."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Self

import temporalio.client
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from outlast.activities.models import json_value
from outlast.errors import (
    RunExists,
)
from outlast.limits import MAX_INLINE_BYTES, check_run_id, check_sent
from outlast.messages import Json, Message, user
from outlast.middleware.edge_filter import Edges
from outlast.run import Run, RunInfo, run_info
from outlast.server_answers import told
from outlast.state import HistoryLimits, RunInput, check_json
from outlast.workflows.agent_run import WORKFLOW
from outlast.workflows.memo import MEMO_KEY, PendingPreview

DEFAULT_TASK_QUEUE = "outlast"


class PendingDecision(PendingPreview):
    """A pending interrupt in the inbox over all runs."""

    run_id: str
    agent: str


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
        await self._start(agent, run_id, value)
        return Run(self, run_id)

    async def _start(self, agent: str, run_id: str, value: RawValue) -> None:
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
            yield run_info(execution, await execution.memo())
            count += 1
            if count >= limit:
                return

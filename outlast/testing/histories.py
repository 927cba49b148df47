"""Fetching what ran: every execution of a run (continue-as-new links), and of its sub-agents."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

Execution = tuple[str, str]
"""Workflow id and the run id of one execution."""


async def fetch_histories(client: Client, executions: Iterable[tuple[str, str | None]]) -> list[WorkflowHistory]:
    """The histories of these executions and of all that they are linked to, ordered by workflow id and start.

    Args:
        client: Of the namespace where they ran.
        executions: Workflow ids; with None for the run id, the newest execution is meant.
    """
    found: dict[Execution, WorkflowHistory] = {}
    waiting = list(executions)
    while waiting:
        workflow_id, run_id = waiting.pop()
        if run_id is None:
            run_id = (await client.get_workflow_handle(workflow_id).describe()).run_id
        if (workflow_id, run_id) in found:
            continue
        try:
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:  # an old link whose retention is over
                continue
            raise
        found[workflow_id, run_id] = history
        waiting.extend(link for event in history.events for link in _links(workflow_id, event))
    return sorted(found.values(), key=_place)


def _place(history: WorkflowHistory) -> tuple[str, int]:
    return history.workflow_id, history.events[0].event_time.ToNanoseconds()


def _links(workflow_id: str, event: HistoryEvent) -> list[Execution]:
    """The executions that an event leads to."""
    started = event.workflow_execution_started_event_attributes
    if started.continued_execution_run_id:
        return [(workflow_id, started.continued_execution_run_id)]
    if event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id:
        return [(workflow_id, event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id)]
    child = event.child_workflow_execution_started_event_attributes.workflow_execution
    return [(child.workflow_id, child.run_id)] if child.run_id else []

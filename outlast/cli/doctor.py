"""``doctor``: what keeps runs from going on, each with the next step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import DONE, FAILED, NO_ANSWER, AsJson, Server, register

if TYPE_CHECKING:
    from datetime import datetime

    from temporalio.client import WorkflowExecution, WorkflowExecutionDescription

    from outlast.cli.pollers import Poller
    from outlast.client import Client
    from outlast.run import RunInfo
    from outlast.settings import Settings

_LOOKED_AT = 200
_AT_ONCE = 20
_STUCK_ATTEMPTS = 3
_UNSERVED_SECONDS = 15.0
_TOO_LARGE = ("PayloadsTooLarge", "TMPRL1103")


@dataclass(frozen=True)
class Complaint:
    """Something that needs a person.

    Attributes:
        subject: A run's id, or ``server``, ``worker``.
        problem: What is wrong, in words.
        next_step: What to type or do.
    """

    kind: str
    subject: str
    problem: str
    next_step: str


def add(app: typer.Typer) -> None:
    """Add this module's command."""
    register(app, doctor)


async def doctor(
    server: Server,
    waiting_hours: Annotated[
        float, typer.Option(min=0, help="Name runs that have waited longer for a decision.")
    ] = 24.0,
    as_json: AsJson = False,
) -> int:
    """Find what needs a person, each with the next step.

    No server, no worker, stuck, paused and forgotten runs. Exit code 1 where there is any.
    """
    from outlast.client import Client
    from outlast.settings import ServerUnreachable, connect

    settings = server.settings()
    try:
        client = Client(await connect(settings), task_queue=settings.task_queue)
    except ServerUnreachable as error:
        problem, _, step = str(error).partition(". ")
        complaints = [Complaint("no server", "server", problem, step)]
        _report(settings, None, complaints, as_json)
        return NO_ANSWER
    complaints = [item async for item in _examine(client, waiting_hours * 3600)]
    open_runs = await client.temporal.count_workflows("WorkflowType = 'AgentRun' AND ExecutionStatus = 'Running'")
    _report(settings, open_runs.count, complaints, as_json)
    return FAILED if complaints else DONE


async def _examine(client: Client, waiting_seconds: float) -> AsyncIterator[Complaint]:
    """Everything that is wrong, the most general first."""
    from outlast.cli.pollers import pollers

    executions = [item async for item in _open_runs(client)]
    queues = Counter(item.task_queue for item in executions)
    names = list(dict.fromkeys([client.task_queue, *sorted(queues)]))
    found = await asyncio.gather(*(pollers(client.temporal, queue) for queue in names))
    served = dict(zip(names, found, strict=True))
    for queue, workers in served.items():
        if not workers:
            waiting = f"; {queues[queue]} open run{'s' * (queues[queue] != 1)} cannot go on" if queues[queue] else ""
            step = f"outlast worker agents.py --task-queue {queue}"
            yield Complaint("no worker", "worker", f"no worker serves the task queue {queue!r}{waiting}", step)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(execution: WorkflowExecution) -> list[Complaint]:
        async with limit:
            return await _look(client, execution, served[execution.task_queue], waiting_seconds)

    for complaints in await asyncio.gather(*map(look, executions)):
        for complaint in complaints:
            yield complaint


async def _open_runs(client: Client) -> AsyncIterator[WorkflowExecution]:
    """Those with a problem that the server knows, then the newest."""
    base = "WorkflowType = 'AgentRun' AND ExecutionStatus = 'Running'"
    seen: set[str] = set()
    for query in (f"{base} AND TemporalReportedProblems IS NOT NULL", base):
        async for execution in client.temporal.list_workflows(query, limit=_LOOKED_AT):
            if execution.id not in seen:
                seen.add(execution.id)
                yield execution


async def _look(
    client: Client, execution: WorkflowExecution, workers: Sequence[Poller], waiting_seconds: float
) -> list[Complaint]:
    """What is wrong with one run."""
    from outlast.errors import RunNotFound

    try:
        info = await client.get(execution.id).info()
        described = await client.temporal.get_workflow_handle(execution.id).describe()
    except RunNotFound:
        return []
    found = [*_paused(info), *_waiting(info, waiting_seconds), *_retrying(described)]
    found += [*await _stuck(client, described), *await _untaken(client, described)]
    return found or _pinned(described, workers)


def _paused(info: RunInfo) -> list[Complaint]:
    if info.status != "paused":
        return []
    return [Complaint("paused", info.id, info.error, f"fix the cause, then: outlast resume {info.id}")]


def _waiting(info: RunInfo, seconds: float) -> list[Complaint]:
    from datetime import UTC, datetime

    from outlast.cli.screen import span

    asked = min((item.requested_at for item in info.pending if item.requested_at is not None), default=None)
    waited = (datetime.now(UTC) - asked).total_seconds() if asked is not None else 0.0
    if info.status != "suspended" or asked is None or waited < seconds:
        return []
    tools = ", ".join(dict.fromkeys(item.tool for item in info.pending))
    return [
        Complaint("waiting", info.id, f"{tools} has waited {span(waited)} for a decision", f"outlast show {info.id}")
    ]


async def _stuck(client: Client, described: WorkflowExecutionDescription) -> list[Complaint]:
    """A workflow task that fails again and again, or that nobody takes."""
    task = described.raw_description.pending_workflow_task
    problems = described.search_attributes.get("TemporalReportedProblems")
    if task.attempt < 2 and not problems:
        return []
    causes = "; ".join(map(str, problems or ())) or await _last_failure(client, described)
    if any(sign in causes for sign in _TOO_LARGE):
        problem = "an update that somebody sent it is larger than a worker can answer; it holds up the run"
        reset = f"temporal workflow reset --type LastWorkflowTask --workflow-id {described.id} --reason 'too large'"
        step = f"{reset}; the server's history.maxInFlightUpdatePayloads=1900000 keeps such updates out"
    elif task.attempt >= _STUCK_ATTEMPTS or problems:
        problem = f"its workflow task has failed {task.attempt} times" + (f" ({causes})" if causes else "")
        step = (
            f"outlast replay {described.id} --agents agents.py tells why; it goes on by itself once a fix is deployed"
        )
    else:
        return []
    return [Complaint("stuck", described.id, problem, step)]


async def _last_failure(client: Client, described: WorkflowExecutionDescription) -> str:
    """What the history says of the last workflow task that failed."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest

    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.temporal.namespace,
        execution=WorkflowExecution(workflow_id=described.id, run_id=described.run_id or ""),
        maximum_page_size=20,
    )
    answer = await client.temporal.workflow_service.get_workflow_execution_history_reverse(request)
    failures = (event.workflow_task_failed_event_attributes.failure.message for event in answer.history.events)
    return next((message[:300] for message in failures if message), "")


def _retrying(described: WorkflowExecutionDescription) -> list[Complaint]:
    """Activities that are tried again and again, or that nobody takes."""
    found = []
    for pending in described.raw_description.pending_activities:
        if pending.attempt >= _STUCK_ATTEMPTS:
            why = pending.last_failure.message or "no worker answers for it"
            problem = f"{pending.activity_type.name} is at attempt {pending.attempt}: {why[:300]}"
            found.append(Complaint("retrying", described.id, problem, f"outlast show {described.id}"))
    return found


async def _untaken(client: Client, described: WorkflowExecutionDescription) -> list[Complaint]:
    """Activities on a queue of their own (``@tool(task_queue=...)``) that no worker serves."""
    from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType

    from outlast.cli.pollers import pollers

    scheduled = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    raw = described.raw_description
    waiting = {
        item.activity_options.task_queue.name: item.activity_type.name
        for item in raw.pending_activities
        if item.state == scheduled
    }
    waiting.pop(described.task_queue, None)
    return [
        Complaint(
            "no worker",
            described.id,
            f"no worker serves the task queue {queue!r}, where its {name} waits",
            f"start a worker that has {name} on that queue: outlast worker agents.py --task-queue {queue}",
        )
        for queue, name in sorted(waiting.items())
        if queue and not await pollers(client.temporal, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    ]


def _pinned(described: WorkflowExecutionDescription, workers: Sequence[Poller]) -> list[Complaint]:
    """A run that belongs to a version of the code that no worker has any more: it waits, and nothing says so."""
    raw = described.raw_description
    version = raw.workflow_execution_info.versioning_info.deployment_version
    name = f"{version.deployment_name}.{version.build_id}" if version.build_id else ""
    if not raw.HasField("pending_workflow_task") or not workers or any(worker.version == name for worker in workers):
        return []
    if _seconds_since(raw.pending_workflow_task.scheduled_time.ToDatetime()) < _UNSERVED_SECONDS:
        return []
    if not name:
        deployment, _, build = workers[0].version.rpartition(".")
        problem = f"no version of the workers' deployment {deployment} is current, so nobody takes it"
        step = f"temporal worker deployment set-current-version --deployment-name {deployment} --build-id {build}"
    else:
        problem = f"it needs version {name}, which no worker has"
        move = "temporal workflow update-options --versioning-override-behavior auto_upgrade"
        step = f"start a worker of that version, or move the run: {move} --workflow-id {described.id}"
    return [Complaint("no version", described.id, problem, step)]


def _seconds_since(moment: datetime) -> float:
    from datetime import UTC, datetime

    return (datetime.now(UTC) - moment.replace(tzinfo=UTC)).total_seconds()


def _report(settings: Settings, open_runs: int | None, complaints: Sequence[Complaint], as_json: bool) -> None:
    from rich.text import Text

    from outlast.cli.screen import BAD, GOOD, QUIET, STRONG, WARN, clean, indented, out, print_json

    place: Mapping[str, str] = {
        "server": settings.address,
        "namespace": settings.namespace,
        "task_queue": settings.task_queue,
    }
    if as_json:
        print_json({**place, "open_runs": open_runs, "complaints": [vars(item) for item in complaints]})
        return
    screen = out()
    screen.print(
        Text(f"server {settings.address}, namespace {settings.namespace}, task queue {settings.task_queue}", QUIET)
    )
    if not complaints:
        screen.print(Text.assemble(("well", GOOD), f"  {open_runs} open run{'s' * (open_runs != 1)}, none needs you"))
    for item in complaints:
        style = WARN if item.kind == "waiting" else BAD
        screen.print(Text.assemble("\n", (item.kind, style), "  ", (clean(item.subject), STRONG)))
        screen.print(indented(clean(item.problem)))
        screen.print(indented(clean(item.next_step), 4, label="  > "))

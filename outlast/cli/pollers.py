"""Who looks for work on a task queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

FRESH = timedelta(seconds=75)
"""A worker asks again every minute; the server remembers one that was killed for five."""


@dataclass(frozen=True)
class Poller:
    """A worker's process.

    Attributes:
        identity: ``pid@host``, unless the worker says otherwise.
        version: ``deployment.build``, where the worker has one.
    """

    identity: str
    version: str = ""


async def pollers(
    client: Client, task_queue: str, kind: TaskQueueType.ValueType = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
) -> list[Poller]:
    """The workers that have asked this task queue for tasks lately."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request)
    newest = datetime.now(UTC) - FRESH
    found = {_poller(item) for item in answer.pollers if item.last_access_time.ToDatetime(UTC) > newest}
    return sorted(found, key=lambda item: (item.identity, item.version))


def _poller(item: PollerInfo) -> Poller:
    options = item.deployment_options
    version = f"{options.deployment_name}.{options.build_id}" if options.build_id else ""
    return Poller(item.identity, version)


async def count_pollers(client: Client, task_queue: str) -> int:
    """How many there are."""
    return len(await pollers(client, task_queue))

"""``local_env``: a real Temporal server and a worker for a test; the server is started once per process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import temporalio.client
from temporalio.api.common.v1 import TimeSkippingConfig
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHistory
from temporalio.worker import Worker

from outlast.agent import Agent
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.model import Model
from outlast.models import resolve_model
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, connect
from outlast.state import HistoryLimits

_servers: dict[bool, DevServer] = {}
_queues = itertools.count(1)
open_envs: list[LocalEnv] = []
"""Environments of the running test, for the pytest plugin."""


async def local_server(*, time_skipping: bool = False) -> DevServer:
    """The process's own server: real, on loopback and a free port, ended with the process."""
    if time_skipping not in _servers:
        _servers[time_skipping] = DevServer(time_skipping=time_skipping)
    return await _servers[time_skipping].start()


class LocalEnv:
    """What a test works with.

    Attributes:
        client: An :class:`outlast.client.Client` of the environment's own task queue.
        temporal: The Temporal client under it.
        address: The server's, for command lines.
        worker: The running Temporal worker.
        started: Ids of the runs that were started through ``client``.
    """

    worker: Worker

    def __init__(
        self, temporal: temporalio.client.Client, address: str, agents: Sequence[Agent], plugin: Plugins
    ) -> None:
        self.address = address
        self.agents = tuple(agents)
        self.temporal = temporal
        self.task_queue = f"test-{next(_queues)}"
        self.client = Client(temporal, task_queue=self.task_queue)
        self.started: list[str] = []
        self.storage: str | None = None
        self._plugin = plugin
        self._running = False

    async def start_worker(self) -> None:
        """A worker, fresh: nothing is cached, so that every open run is replayed."""
        self.worker = Worker(self.temporal, task_queue=self.task_queue, plugins=[self._plugin()])
        await self.worker.__aenter__()
        self._running = True

    async def stop_worker(self) -> None:
        """Stop the worker; running tools are finished first."""
        if self._running:
            self._running = False
            await self.worker.__aexit__(None, None, None)

    async def histories(self) -> list[WorkflowHistory]:
        """Histories of everything that ran on this environment's task queue, every execution of every run."""
        query = f"TaskQueue = '{self.task_queue}'"
        ids = {(found.id, found.run_id) async for found in self.temporal.list_workflows(query)}
        for run_id in self.started:  # visibility may lag behind
            ids |= await self._chain(run_id)
        handles = [self.temporal.get_workflow_handle(run_id, run_id=execution) for run_id, execution in sorted(ids)]
        return [await handle.fetch_history() for handle in handles]

    async def _chain(self, run_id: str) -> set[tuple[str, str]]:
        described = await self.temporal.get_workflow_handle(run_id).describe()
        return {(run_id, described.run_id)}


Plugins = Callable[[], AgentPlugin]


class _Started(Interceptor):
    """Notes which runs are started, and lets their timers be skipped where asked."""

    def __init__(self, skip: bool) -> None:
        self.ids: list[str] = []
        self._skip = skip

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Noting(next, self.ids, self._skip)


class _Noting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, ids: list[str], skip: bool) -> None:
        super().__init__(next)
        self._ids = ids
        self._skip = skip

    async def start_workflow(self, input: StartWorkflowInput) -> temporalio.client.WorkflowHandle[Any, Any]:
        if self._skip:
            input.time_skipping_config = TimeSkippingConfig(enabled=True)
        handle = await super().start_workflow(input)
        self._ids.append(input.id)
        return handle


@asynccontextmanager
async def local_env(
    agents: Sequence[Agent],
    *,
    storage: str | Path | None = None,
    time_skipping: bool = False,
    continue_as_new_events: int = 1000,
    resolve: Callable[[str], Model] = resolve_model,
) -> AsyncIterator[LocalEnv]:
    """A client and a worker on a real Temporal server.

    Args:
        agents: What the worker runs.
        storage: A directory for large payloads.
        time_skipping: Timers of runs fire at once: a time-out of thirty days takes a moment.
        continue_as_new_events: History after which a run goes on in a fresh execution.
        resolve: Makes models of strings; a test may give scripted ones.
    """
    server = await local_server(time_skipping=time_skipping)
    url = None if storage is None else f"dir://{Path(storage).resolve()}"  # noqa: ASYNC240 - a test's own directory
    plain = await connect(Settings.load(address=server.address, storage=url, environ={}))
    noting = _Started(time_skipping)
    config = plain.config()
    config["interceptors"] = [noting]
    temporal = temporalio.client.Client(**config)

    def plugin() -> AgentPlugin:
        return AgentPlugin(agents, resolve=resolve)

    env = LocalEnv(temporal, server.address, agents, plugin)
    env.client.history_limits = HistoryLimits(events=continue_as_new_events)
    env.started = noting.ids
    env.storage = url
    open_envs.append(env)
    await env.start_worker()
    try:
        yield env
    finally:
        await env.stop_worker()

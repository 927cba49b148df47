"""``local_env``: a real Temporal server and a worker for a test; the server is started once per process."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import temporalio.client
from temporalio.api.common.v1 import TimeSkippingConfig
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowHistory,
)
from temporalio.worker import Worker

from outlast.agent import Agent
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.keyring import KEYS, Keyring
from outlast.model import Model
from outlast.models import resolve_model
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, connect
from outlast.state import HistoryLimits
from outlast.testing.histories import fetch_histories
from outlast.testing.replay import replay

MAX_SKIPS = 10_000
"""Timers that one run may skip: a loop of timers without an end is stopped by it."""

_queues = itertools.count(1)
_server: DevServer | None = None
_starting = False
open_envs: list[LocalEnv] = []
"""Environments of the running test, for the pytest plugin."""


async def local_server() -> DevServer:
    """The process's own server: real, on loopback and a free port, in memory, ended with the process."""
    global _server, _starting
    while _starting:
        await asyncio.sleep(0.02)
    _starting = True
    try:
        if _server is None:
            _server = DevServer(time_skipping=True)
        return await _server.start()
    finally:
        _starting = False


class LocalEnv:
    """What a test works with. Made by :func:`local_env`.

    Attributes:
        client: An :class:`outlast.client.Client` of the environment's own task queue.
        temporal: The Temporal client under it.
        address: The server's, for command lines.
        task_queue: The environment's own.
        worker: The running Temporal worker.
        agents: What the worker runs.
        started: Ids of the runs that were started through ``client``.
        storage: The storage's URL, or None.
        encryption: The keys, or None.
    """

    worker: Worker

    def __init__(
        self,
        temporal: temporalio.client.Client,
        agents: Sequence[Agent],
        make_worker: Callable[[temporalio.client.Client, str], Worker],
        started: list[str],
    ) -> None:
        self.address = temporal.service_client.config.target_host
        self.agents = tuple(agents)
        self.temporal = temporal
        self.task_queue = f"test-{os.getpid()}-{next(_queues)}"
        filters = [middleware for agent in agents for middleware in agent.middleware]
        self.client = Client(temporal, task_queue=self.task_queue, filters=filters)
        self.started = started
        self.storage: str | None = None
        self.encryption: Keyring | None = None
        self._make_worker = make_worker
        self._running = False

    async def start_worker(self) -> None:
        """A worker, fresh: nothing is cached, so that every open run is replayed."""
        if not self._running:
            self.worker = self._make_worker(self.temporal, self.task_queue)
            await self.worker.__aenter__()
            self._running = True

    async def stop_worker(self) -> None:
        """Stop the worker; running tools are finished first."""
        if self._running:
            self._running = False
            await self.worker.__aexit__(None, None, None)

    async def histories(self) -> list[WorkflowHistory]:
        """Histories of everything that ran on this environment's task queue: every execution of every run."""
        executions: set[tuple[str, str | None]] = {(run_id, None) for run_id in self.started}
        query = f"TaskQueue = '{self.task_queue}'"  # what was not started through our client
        executions |= {(found.id, found.run_id) async for found in self.temporal.list_workflows(query)}
        return await fetch_histories(self.temporal, executions)

    async def replay(self) -> None:
        """Replay everything that ran; see :func:`outlast.testing.replay`.

        Raises:
            ReplayFailed: Something does not replay.
        """
        __tracebackhide__ = True
        await replay(self.agents, await self.histories(), storage=self.storage, encryption=self.encryption)

    async def close(self) -> None:
        """Stop the worker now: what still executes a tool or a model call is terminated instead of waited for."""
        if self._running:
            query = f"TaskQueue = '{self.task_queue}' AND ExecutionStatus = 'Running'"
            ids = {found.id async for found in self.temporal.list_workflows(query)} | set(self.started)
            for handle in map(self.temporal.get_workflow_handle, sorted(ids)):
                described = await handle.describe()
                if described.status == WorkflowExecutionStatus.RUNNING and described.raw_description.pending_activities:
                    await handle.terminate("the test's environment was closed")
        await self.stop_worker()


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
            input.time_skipping_config = TimeSkippingConfig(enabled=True, max_session_skip_count=MAX_SKIPS)
        handle = await super().start_workflow(input)
        self._ids.append(input.id)
        return handle


@asynccontextmanager
async def local_env(
    agents: Sequence[Agent],
    *,
    storage: str | Path | None = None,
    encryption: Keyring | None = None,
    time_skipping: bool = False,
    continue_as_new_events: int = 1000,
    max_cached_runs: int = 1000,
    idle_seconds: float = 60.0,
    resolve: Callable[[str], Model] = resolve_model,
) -> AsyncIterator[LocalEnv]:
    """A client and a worker on a real Temporal server.

    Args:
        agents: What the worker runs.
        storage: A directory for large payloads.
        encryption: Keys that all payloads are encrypted with.
        time_skipping: Timers of runs fire at once: a time-out of thirty days takes a moment.
        continue_as_new_events: History after which a run goes on in a fresh execution.
        max_cached_runs: Runs that the worker keeps in memory; with 0 every task replays its run from the start.
        idle_seconds: Runs that wait for people so long leave the worker's memory.
        resolve: Makes models of strings; a test may give scripted ones.
    """
    server = await local_server()
    url = None if storage is None else f"dir://{Path(storage).resolve()}"  # noqa: ASYNC240 - a test's own directory
    keys = {} if encryption is None else {KEYS: encryption.to_text()}
    plain = await connect(Settings.load(address=server.address, storage=url, environ=keys))
    noting = _Started(time_skipping)
    config = plain.config()
    config["interceptors"] = [noting]
    temporal = temporalio.client.Client(**config)

    def make_worker(client: temporalio.client.Client, task_queue: str) -> Worker:
        plugin = AgentPlugin(agents, resolve=resolve, idle_seconds=idle_seconds)
        return Worker(client, task_queue=task_queue, plugins=[plugin], max_cached_workflows=max_cached_runs)

    env = LocalEnv(temporal, agents, make_worker, noting.ids)
    env.client.history_limits = HistoryLimits(events=continue_as_new_events)
    env.storage, env.encryption = url, encryption
    open_envs.append(env)
    await env.start_worker()
    try:
        yield env
    finally:
        await env.close()

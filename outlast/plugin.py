"""For those who already run Temporal workers: ``Worker(..., plugins=[AgentPlugin([editor])])``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker, WorkerConfig

from outlast.activities.archive import archive
from outlast.activities.effects import run_side_effect
from outlast.activities.models import ModelActivities
from outlast.activities.tools import ToolActivities
from outlast.agent import Agent
from outlast.idle_runs import letting_go_of_idle_runs
from outlast.model import Model
from outlast.models import resolve_model
from outlast.registry import AgentRegistry
from outlast.workflows.agent_run import AgentRun
from outlast.workflows.definitions import REPLAYER, WorkflowHost, install_host, sandbox_runner


class AgentPlugin(SimplePlugin):
    """Adds agents to a Temporal worker or replayer: the workflow, the activities, and a sandbox that guards hooks.

    Args:
        agents: Each is started by its name.
        resolve: Makes a model of a string like ``"openai:gpt-5"``.
        max_tool_threads: Threads for synchronous tools.
        idle_seconds: Runs that have waited for people so long leave the worker's memory; a decision brings them back.

    Raises:
        ValueError: Two agents have one name, or a tool is named like another activity of the worker.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        resolve: Callable[[str], Model] = resolve_model,
        max_tool_threads: int = 32,
        idle_seconds: float = 60.0,
    ) -> None:
        super().__init__("outlast.AgentPlugin")
        self.agents = AgentRegistry(agents)
        self._resolve = resolve
        self._idle_seconds = idle_seconds
        self._executor = ThreadPoolExecutor(max_tool_threads, thread_name_prefix="outlast-tool")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Temporal calls this when the worker is made."""
        config = super().configure_worker(config)
        storage = config["client"].data_converter.external_storage is not None
        install_host(config["task_queue"], self._host(storage))
        config["workflows"] = [*config.get("workflows", []), AgentRun]
        config["activities"] = [*config.get("activities", []), *self._activities(config)]
        config["workflow_runner"] = sandbox_runner(self.agents)
        # Token deltas travel in heartbeats; at the SDK's own minute they would not be live.
        config["max_heartbeat_throttle_interval"] = timedelta(milliseconds=100)
        shortest = timedelta(seconds=self._longest_tool())
        config["graceful_shutdown_timeout"] = max(config.get("graceful_shutdown_timeout") or timedelta(), shortest)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Temporal calls this around the worker's life."""
        async with letting_go_of_idle_runs(worker, self._idle_seconds):
            await super().run_worker(worker, next)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Temporal calls this when a replayer is made."""
        config = super().configure_replayer(config)
        converter = config.get("data_converter")
        install_host(REPLAYER, self._host(converter is not None and converter.external_storage is not None))
        config["workflows"] = [*config.get("workflows", []), AgentRun]
        config["workflow_runner"] = sandbox_runner(self.agents)
        return config

    def _host(self, storage: bool) -> WorkflowHost:
        return WorkflowHost(self.agents, storage)

    def _activities(self, config: WorkerConfig) -> list[Callable[..., Any]]:
        tools = ToolActivities(self.agents, self._executor)
        models = ModelActivities(self.agents, self._resolve)
        ours: list[Callable[..., Any]] = [models.call_model, run_side_effect, archive, *tools.definitions()]
        names = [_activity_name(fn) for fn in (*config.get("activities", []), *ours)]
        doubles = sorted({name for name in names if name and names.count(name) > 1})
        if doubles:
            raise ValueError(
                f"two activities of this worker are named {', '.join(doubles)}; rename the tool: @tool(name=...)"
            )
        return ours

    def _longest_tool(self) -> float:
        return max(
            (tool.options.timeout_seconds for _, agent in self.agents.everyone() for tool in agent.tools.values()),
            default=30.0,
        )


def _activity_name(fn: object) -> str | None:
    definition = getattr(fn, "__temporal_activity_definition", None)
    return getattr(definition, "name", None)

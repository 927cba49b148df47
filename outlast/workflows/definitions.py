"""How workflow code finds an agent: the worker's own object, and its hooks from a sandboxed import.

The package and all that a worker has imported is passed through the sandbox; the modules that define agents and
hooks are not, so that a clock or a random number in a hook is caught and named.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxMatcher, SandboxRestrictions
from temporalio.worker.workflow_sandbox._importer import Importer

from outlast.agent import Agent
from outlast.middleware.contract import HOOKS, hook_of, imported_again
from outlast.registry import AgentRegistry
from outlast.workflows.module_finder import remember_file
from outlast.workflows.sandbox import GuardedRunner, RawInputRunner


@dataclass(frozen=True)
class WorkflowHost:
    """What one worker offers to the runs of its task queue.

    Attributes:
        has_storage: Whether large payloads go to external storage.
        places: Per agent, the name under which its module holds it; sandboxed hooks are found there.
    """

    agents: AgentRegistry
    has_storage: bool = False
    places: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for agent in self.agents:
            attribute = _attribute_of(agent)
            if attribute is not None:
                self.places[agent.name] = attribute

        for _, agent in self.agents.everyone():
            _ = agent.fingerprint  # builds the schemas now: a fault in one stops the worker at its start, not a run

    def middleware(self, name: str) -> Sequence[object]:
        """An agent's middlewares as the sandbox imports them; the worker's own where no module holds the agent.

        Raises:
            Exception: Whatever importing the agent's module raises under the sandbox's guard.
        """
        first, *path = name.split("/")
        attribute = self.places.get(first)
        if attribute is None or not workflow.unsafe.in_sandbox():
            return self.agents.get(name).middleware
        # Hooks are run under guard, so their modules are; tools and models are the worker's own.
        with _loading():
            module = __import__(self.agents.get(first).module, fromlist=[attribute])
        found: Agent | None = getattr(module, attribute).descend(path)
        return found.middleware if found is not None else self.agents.get(name).middleware


REPLAYER = ""
"""Stands for the task queue of a replayer, which has none."""

REPLAY_NAMESPACE = "ReplayNamespace"
"""What Temporal's ``Replayer`` calls the namespace unless it is told one."""

_hosts: dict[str, WorkflowHost] = {}


def install_host(task_queue: str, host: WorkflowHost) -> None:
    """Make a host known to the workflows of this task queue in this process."""
    _hosts[task_queue] = host


def current_host() -> WorkflowHost:
    """The host of the running workflow's task queue; in a replayer, the newest replayer's."""
    info = workflow.info()
    if info.namespace == REPLAY_NAMESPACE:  # else a worker of this process would lend its agents to the replay
        return _hosts[REPLAYER]
    return _hosts.get(info.task_queue) or _hosts[REPLAYER]


def sandbox_runner(agents: Iterable[Agent]) -> SandboxedWorkflowRunner:
    """A runner that guards the modules which define agents and hooks, and passes everything else through."""
    guarded = {name for agent in agents for name in _guarded_modules(agent)}
    parents = {name.rpartition(".")[0] for name in guarded} - {""}
    while parents - guarded:
        guarded |= parents
        parents = {name.rpartition(".")[0] for name in guarded} - {""}
    passed = {name for name in list(sys.modules) if name not in guarded and name != "__main__"}
    restrictions = SandboxRestrictions.default
    restrictions = dataclasses.replace(
        restrictions, invalid_module_members=_while_running(restrictions.invalid_module_members)
    )
    return GuardedRunner(runner_class=RawInputRunner, restrictions=restrictions.with_passthrough_modules(*passed))


def _while_running(matcher: SandboxMatcher) -> SandboxMatcher:
    """The same rules, for hooks alone: a module may read its prompts from files while it is imported."""
    children = {name: _while_running(child) for name, child in matcher.children.items()}
    return dataclasses.replace(matcher, children=children, only_runtime=True)


@contextmanager
def _loading() -> Iterator[None]:
    """As Temporal loads a workflow's module: what it does when it is imported is free, what its hooks do is guarded."""
    importer = Importer.current_importer()
    context = importer.restriction_context if importer is not None else None
    silent = workflow.SandboxImportNotificationPolicy.SILENT
    if context is not None:
        context.is_runtime = False
    again = imported_again.set(True)
    try:
        with workflow.unsafe.sandbox_import_notification_policy(silent):
            yield
    finally:
        imported_again.reset(again)
        if context is not None:
            context.is_runtime = True


def _attribute_of(agent: Agent) -> str | None:
    """The name under which the agent's module holds it, if that module can be imported by name."""
    module = sys.modules.get(agent.module)
    if module is None or agent.module in ("__main__", "__mp_main__"):
        return None
    if file := getattr(module, "__file__", None):
        remember_file(agent.module, file)
    return next((name for name, value in vars(module).items() if value is agent), None)


def _guarded_modules(agent: Agent) -> set[str]:
    if _attribute_of(agent) is None:
        return set()
    modules = {agent.module}
    for middleware in (item for _, member in AgentRegistry([agent]).everyone() for item in member.middleware):
        for hook in (hook_of(middleware, name) for name in HOOKS):
            if hook is not None:
                modules.add(getattr(hook, "__module__", "") or "")
    return {name for name in modules if name and not name.startswith("outlast.") and name != "__main__"}

"""The composition root: agents from a file or module, a Temporal worker around them, its health and its orderly end."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import temporalio.activity
import temporalio.client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
    WorkerDeploymentConfig,
)

from outlast import log_filter
from outlast.agent import Agent
from outlast.check import shown_path
from outlast.errors import OutlastError, clean_text
from outlast.health import Answer, health_server
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, connect

_PACKAGE = Path(__file__).parent


class AgentsNotLoaded(OutlastError):
    """A file or module gave no agents; the message says why."""


def load_agents(place: str | Path) -> list[Agent]:
    """The agents that a file (``agents.py``) or a dotted module (``myapp.agents``) holds, in the order of its names.

    A file is imported under its own name, with its folder (or that of its outermost package) on ``sys.path``, so that
    a workflow's sandbox, a replay and a ``@side_effect`` find it again by that name.

    Raises:
        AgentsNotLoaded: No such file, it cannot be imported, it holds no agent, or two of one name.
    """
    name, file = _module_name(str(place))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise AgentsNotLoaded(f"there is no file and no module {str(place)!r}, seen from {Path.cwd()}") from None
        raise AgentsNotLoaded(_import_problem(place, error)) from error
    except (Exception, SystemExit) as error:
        raise AgentsNotLoaded(_import_problem(place, error)) from error
    found = getattr(module, "__file__", None)
    if file is not None and (found is None or not Path(found).samefile(file)):
        raise AgentsNotLoaded(
            f"{place} cannot be imported as {name!r}, which is the name of {found or 'a built-in module'}; rename it"
        )
    return _agents_of(module, place)


def _module_name(place: str) -> tuple[str, Path | None]:
    """The name to import and, where a file was meant, the file; puts what is needed on ``sys.path``."""
    path = Path(place)
    if path.is_dir() and (path.suffix or "/" in place or os.sep in place):
        raise AgentsNotLoaded(f"{place} is a folder; name the file in it that holds the agents")
    if not (path.suffix == ".py" or "/" in place or os.sep in place):
        _put_on_path(Path.cwd())
        return place, None
    if not path.is_file():
        raise AgentsNotLoaded(f"there is no file {place}, seen from {Path.cwd()}")
    path = path.resolve()
    if path.suffix != ".py" or "." in path.stem:
        raise AgentsNotLoaded(f"{place} cannot be imported: a module's file is named like agents.py")
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    _put_on_path(root)
    return ".".join(parts), path


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_problem(place: str | Path, error: BaseException) -> str:
    """One sentence with the user's own line in it."""
    what = clean_text(f"{type(error).__name__}: {error}".removesuffix(": "), 500)
    if isinstance(error, SyntaxError) and error.filename:
        what = f"{type(error).__name__}: {error.msg}"
        line = (error.text or "").strip()
        return f"{place} cannot be imported: {shown_path(error.filename)}, line {error.lineno}: {line}: {what}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    where = f"{shown_path(own[-1].filename)}, line {own[-1].lineno}: {own[-1].line}: " if own else ""
    return f"{place} cannot be imported: {where}{what}"


def _is_own(filename: str) -> bool:
    """Whether a frame is the user's: neither ours, nor the standard library's, nor an installed package's."""
    path = Path(filename)
    library = Path(os.__file__).parent
    installed = "site-packages" in path.parts or path.is_relative_to(library)
    return not (filename.startswith("<") or installed or path.is_relative_to(_PACKAGE))


def _agents_of(module: ModuleType, place: str | Path) -> list[Agent]:
    found: dict[int, Agent] = {}
    for value in list(vars(module).values()):
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else (value,)
        found |= {id(item): item for item in items if isinstance(item, Agent)}
    agents = list(found.values())
    if not agents:
        raise AgentsNotLoaded(
            f"{place} holds no agent; write `editor = Agent(AgentOptions(name='editor', ...))` at its top level"
        )
    check_names(agents)
    for agent in vars(module).values():
        if isinstance(agent, Agent) and not is_guarded(agent):  # a factory elsewhere made it; here it has a name
            agent.module = module.__name__
    return agents


def is_guarded(agent: Agent) -> bool:
    """Whether a workflow's sandbox can import this agent's hooks again: its module must hold it by a name."""
    return any(value is agent for value in vars(sys.modules.get(agent.module, object)).values())


def check_names(agents: Sequence[Agent]) -> None:
    """Raise AgentsNotLoaded where two agents have one name."""
    doubles = sorted(name for name, count in Counter(agent.name for agent in agents).items() if count > 1)
    if doubles:
        names = ", ".join(map(repr, doubles))
        raise AgentsNotLoaded(f"two agents are named {names}; a run addresses its agent by name")


class _Calls(Interceptor):
    """Counts the calls in progress, by activity type."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()

    def __str__(self) -> str:
        return ", ".join(f"{name} ({count})" for name, count in sorted(self.running.items()))

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Counted(next, self.running)


class _Counted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, running: Counter[str]) -> None:
        super().__init__(next)
        self._running = running

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: ANN401 - Temporal's own signature
        name = temporalio.activity.info().activity_type
        self._running[name] += 1
        try:
            return await self.next.execute_activity(input)
        finally:
            self._running[name] -= 1
            self._running += Counter()  # drops what is at zero


async def run_worker(
    agents: Sequence[Agent],
    settings: Settings,
    *,
    say: Callable[[str], None],
    health_host: str = "127.0.0.1",
    on_ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the agents until SIGTERM, SIGINT or ``stop``; calls in progress are then finished first.

    A second signal ends the process at once; its calls are taken over by other workers.

    Args:
        agents: What is served.
        settings: Server, task queue, limits, health port.
        say: Is told what a person at the terminal should know, line by line.
        health_host: Where ``/healthz`` and ``/readyz`` are served, if ``settings.health_port`` is set.
        on_ready: Called once the worker takes work.
        stop: Ends the worker when it is set.

    Raises:
        OutlastError: The server cannot be reached, a port is in use, or TEMPORAL_DEBUG is set.
    """
    _refuse_debug_mode()
    check_names(agents)
    if settings.encryption is not None:
        log_filter.install()
    client = await connect(settings)
    calls, ended = _Calls(), stop if stop is not None else asyncio.Event()
    worker = make_worker(client, agents, settings, [calls])
    async with _health(settings, health_host, client, ended, calls) as port:
        with _signals(ended):
            serving = asyncio.create_task(worker.run())
            say(f"serving {', '.join(agent.name for agent in agents)}")
            say(f"task queue {settings.task_queue}, namespace {client.namespace}, server {settings.address}")
            if settings.encryption is not None:
                first, *others = settings.encryption.ids
                say(f"encrypts with the key {first}" + (f", decrypts also with {', '.join(others)}" if others else ""))
            if port is not None:
                say(f"health at http://{health_host}:{port}/readyz")
            on_ready()
            await _serve(worker, serving, ended, calls, say)


def make_worker(
    client: temporalio.client.Client,
    agents: Sequence[Agent],
    settings: Settings,
    interceptors: Sequence[Interceptor] = (),
) -> Worker:
    """A Temporal worker for these agents; its graceful shutdown lasts at least as long as the longest tool may."""
    return Worker(
        client,
        task_queue=settings.task_queue,
        plugins=[AgentPlugin(agents)],
        interceptors=interceptors,
        max_cached_workflows=settings.max_cached_runs,
        max_concurrent_activities=settings.max_concurrent_activities,
        max_concurrent_workflow_tasks=settings.max_concurrent_workflow_tasks,
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_seconds),
        deployment_config=_deployment(settings),
    )


def _deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    if settings.deployment is None or settings.build_id is None:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=settings.deployment, build_id=settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _refuse_debug_mode() -> None:
    if os.environ.get("TEMPORAL_DEBUG"):
        raise OutlastError(
            "TEMPORAL_DEBUG is set, which switches off the detector of hooks that never end and the sandbox's guard; "
            "unset it to start a worker"
        )


async def _serve(
    worker: Worker, serving: asyncio.Task[None], ended: asyncio.Event, calls: _Calls, say: Callable[[str], None]
) -> None:
    """Until the end was asked for or the worker failed; then the orderly shutdown."""
    asked = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if not serving.done():
        if calls.running:
            say(f"stopping once these calls have finished: {calls}; a second signal stops at once")
        await worker.shutdown()
    try:
        await serving
    except (RuntimeError, RPCError) as error:
        raise OutlastError(f"the worker cannot go on: {clean_text(str(error), 500)}") from error
    say("stopped")


@contextmanager
def _signals(ended: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event; the second one ends the process, whatever still runs."""

    def on_signal(number: int) -> None:
        if ended.is_set():
            os._exit(128 + number)
        ended.set()

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _health(
    settings: Settings, host: str, client: temporalio.client.Client, ended: asyncio.Event, calls: _Calls
) -> AsyncIterator[int | None]:
    """The health endpoint, where a port is configured; yields its port."""
    if settings.health_port is None:
        yield None
        return

    async def ready() -> Answer:
        running = dict(calls.running)
        if ended.is_set():
            return 503, {"status": "stopping", "calls": running}
        try:
            await client.service_client.check_health(timeout=timedelta(seconds=2))
        except RPCError as error:
            return 503, {"status": "no server", "server": settings.address, "error": clean_text(error.message, 200)}
        return 200, {"status": "ready", "task_queue": settings.task_queue, "calls": running}

    async with health_server(host, settings.health_port, ready) as port:
        yield port

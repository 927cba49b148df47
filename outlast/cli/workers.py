"""``worker``, ``check`` and ``replay``: the commands that load agents."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import DONE, FAILED, BadInput, Server, register

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory

    from outlast.agent import Agent
    from outlast.settings import Settings

Places = Annotated[
    list[str],
    typer.Argument(metavar="AGENTS...", help="Files like agents.py, or modules like myapp.agents.", show_default=False),
]

_MAX_WARNINGS = 8


def add(app: typer.Typer) -> None:
    """Add this module's commands."""
    register(app, worker)
    register(app, check)
    register(app, replay)


async def worker(
    agents: Places,
    server: Server,
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /healthz and /readyz there.", show_default=False)
    ] = None,
    health_host: Annotated[
        str, typer.Option(envvar="OUTLAST_HEALTH_HOST", help="Where the health port listens.")
    ] = "127.0.0.1",
    log_level: Annotated[str, typer.Option(envvar="OUTLAST_LOG_LEVEL", help="debug, info, warning, error.")] = (
        "warning"
    ),
) -> int:
    """Run a worker for a real cluster.

    SIGTERM lets running calls finish; a second one stops at once.
    """
    import dataclasses

    settings = server.settings()
    if health_port is not None:
        settings = dataclasses.replace(settings, health_port=health_port)
    start_logging(log_level)
    await serve(agents, settings, health_host)
    return DONE


async def serve(places: Sequence[str], settings: Settings, health_host: str = "127.0.0.1") -> None:
    """Load the agents and work until a signal comes."""
    from outlast.worker import run_worker

    loaded = load(places)
    warn(loaded)
    await run_worker(loaded, settings, say=say, health_host=health_host, on_ready=lambda: _hint(settings))


def load(places: Sequence[str]) -> list[Agent]:
    """The agents of all places.

    Raises:
        AgentsNotLoaded: A place has none, or two agents have one name.
    """
    from outlast.worker import check_names, load_agents

    agents = {id(agent): agent for place in places for agent in load_agents(place)}
    check_names(list(agents.values()))
    return list(agents.values())


def warn(agents: Sequence[Agent]) -> None:
    """Say which hooks would not replay, and which the sandbox cannot guard; a worker starts all the same."""
    from outlast.check import check_agents
    from outlast.worker import is_guarded

    for agent in agents:
        if agent.middleware and not is_guarded(agent):
            sys.stderr.write(
                f"warning: the sandbox does not guard the hooks of {agent.name!r}, which has no name of its own at the "
                f"top level of its module; write `{agent.name} = ...` there\n"
            )
    findings = check_agents(agents)
    for finding in findings[:_MAX_WARNINGS]:
        sys.stderr.write(f"warning: {finding}\n")
    if len(findings) > _MAX_WARNINGS:
        sys.stderr.write(f"warning: {len(findings) - _MAX_WARNINGS} more; `outlast check` lists them all\n")


def say(line: str) -> None:
    """A line of a worker, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def start_logging(level: str) -> None:
    """Log to standard error.

    Raises:
        BadInput: There is no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise BadInput(f"--log-level {level!r} is not allowed: give debug, info, warning or error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _hint(settings: Settings) -> None:
    if settings.deployment is not None:
        say(
            f"build {settings.build_id} of deployment {settings.deployment}; it takes new runs once it is current: "
            f"temporal worker deployment set-current-version --deployment-name {settings.deployment} "
            f"--build-id {settings.build_id}"
        )


def check(agents: Places) -> int:
    """Name what would not replay in the hooks' source.

    Exit code 1 where something is found. A line that ends in `# outlast: ok` is accepted.
    """
    from outlast.check import check_agents
    from outlast.middleware.contract import HOOKS, hook_of
    from outlast.registry import AgentRegistry

    loaded = load(agents)
    findings = check_agents(loaded)
    for hook, group in groupby(findings, lambda finding: f"{finding.hook}, agent {finding.agent!r}"):
        say(f"{hook}")
        for finding in group:
            say(f"  {finding.file}:{finding.line}: {finding.uses}\n      {finding.instead}")
    everyone = [agent for _, agent in AgentRegistry(loaded).everyone()]
    hooks = sum(hook_of(item, hook) is not None for agent in everyone for item in agent.middleware for hook in HOOKS)
    names = ", ".join(agent.name for agent in loaded)
    if not findings:
        say(f"{hooks} {'hook' if hooks == 1 else 'hooks'} of {names}: nothing found that would not replay")
        return DONE
    say(f"\n{len(findings)} found in {hooks} {'hook' if hooks == 1 else 'hooks'} of {names}")
    return FAILED


async def replay(
    target: Annotated[
        str, typer.Argument(metavar="RUN|FILE", help="A run's id, or a history as JSON.", show_default=False)
    ],
    server: Server,
    agents: Annotated[list[str], typer.Option(help="Files or modules with the agents.", show_default=False)],
    exact: Annotated[
        bool, typer.Option("--exact", help="Also compare every input and result; for code that was not changed.")
    ] = False,
) -> int:
    """Would a run survive a deploy of this code?

    Replays it against the agents as they are now. Exit code 1 where it does not replay.
    """
    from outlast.testing.replay import ReplayFailed
    from outlast.testing.replay import replay as replay_histories

    loaded = load(agents)
    settings = server.settings()
    histories = await _fetch(target, server) if (found := _read_history(Path(target))) is None else found
    try:
        await replay_histories(loaded, histories, storage=settings.storage, encryption=settings.encryption, exact=exact)
    except ReplayFailed as error:
        from outlast.cli.command import say_error

        say_error(str(error))
        return FAILED
    events = sum(len(history.events) for history in histories)
    say(f"{target} replays: {len(histories)} execution{'s' * (len(histories) != 1)}, {events} events")
    return DONE


def _read_history(file: Path) -> list[WorkflowHistory] | None:
    from temporalio.client import WorkflowHistory

    if not file.is_file():
        return None
    try:
        return [WorkflowHistory.from_json(file.stem, file.read_text())]
    except Exception as error:  # whatever the JSON and protobuf readers raise
        raise BadInput(
            f"{file} is not a workflow's history as JSON ({' '.join(str(error).split())[:200]}); "
            "`temporal workflow show --workflow-id RUN --output json` writes one"
        ) from None


async def _fetch(run_id: str, server: Server) -> list[WorkflowHistory]:
    from temporalio.service import RPCError, RPCStatusCode

    from outlast.errors import RunNotFound
    from outlast.testing.histories import fetch_histories

    client = await server.client()
    try:
        return await fetch_histories(client.temporal, [(run_id, None)])
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise RunNotFound(f"there is no run and no file {run_id!r}; `outlast runs` lists the runs") from None
        raise

"""What agents redact ``at_edges``, for the commands that send texts: it is taken out before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import BadInput, Server

if TYPE_CHECKING:
    from outlast.agent import Agent
    from outlast.client import Client
    from outlast.run import Run

Guards = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="FILE",
        envvar="OUTLAST_AGENTS",
        help="Where the agents are defined: what they redact at their edges is redacted before it is sent.",
        show_default=False,
    ),
]


def redacts_at_edges(agent: Agent) -> bool:
    """Whether texts must pass the agent's filters before they are sent to a run of it, or of its sub-agents."""
    from outlast.middleware.edge_filter import HasEdgeFilter

    own = any(getattr(item, "at_edges", True) for item in agent.middleware if isinstance(item, HasEdgeFilter))
    return own or any(map(redacts_at_edges, agent.subagents.values()))


async def client_of(server: Server, agents: str | None, agent: str) -> Client:
    """A connected client with the filters of an agent, where it is known to have some.

    Known it is from ``--agents``, or from the ``outlast dev`` that runs here.

    Raises:
        BadInput: ``--agents`` has no such agent.
        AgentsNotLoaded: The agents cannot be loaded; nothing is sent.
    """
    from outlast.client import Client
    from outlast.settings import connect

    filters = _filters(server, agents, agent)
    settings = server.settings()
    return Client(await connect(settings), task_queue=settings.task_queue, filters=filters)


async def run_of(server: Server, agents: str | None, run: str) -> Run:
    """A run, through a client with the filters of its agent; see :func:`client_of`."""
    client = await server.client()
    if agents is None and _dev_places(server) is None:
        return client.get(run)
    agent = (await client.get(run).info()).agent
    client.edges = (await client_of(server, agents, agent)).edges
    return client.get(run)


def _filters(server: Server, agents: str | None, name: str) -> list[object]:
    places = [agents] if agents is not None else _dev_places(server, name)
    if not places:
        return []
    from outlast.cli.workers import load
    from outlast.errors import UnknownAgent
    from outlast.registry import AgentRegistry

    registry, parts = AgentRegistry(load(places)), name.split("/")
    try:
        line = [registry.get("/".join(parts[: depth + 1])) for depth in range(len(parts))]
    except UnknownAgent:
        if agents is None:
            return []
        raise BadInput(f"{agents} has no agent {name!r}, whose filters would be needed") from None
    return [middleware for found in line for middleware in found.middleware]


def _dev_places(server: Server, name: str = "") -> Sequence[str] | None:
    """Where the ``outlast dev`` that is meant has its agents from; None where none of them redacts at its edges."""
    from outlast.dev_folder import find_dev

    dev = find_dev()
    if dev is None or (server.settings().connection.address or dev.address) != dev.address:
        return None
    if dev.private is not None and (name.split("/")[0] not in dev.private if name else not dev.private):
        return None
    return dev.agents or None

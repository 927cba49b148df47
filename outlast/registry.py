"""Agents by name: what one worker can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outlast.agent import Agent
from outlast.errors import UnknownAgent
from outlast.middleware.edge_filter import Edges


class AgentRegistry:
    """The agents of a worker.

    Raises:
        TypeError: Something is not an Agent.
        ValueError: Two agents have one name.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._agents: dict[str, Agent] = {}
        self._edges: dict[str, Edges] = {}
        for agent in agents:
            if not isinstance(agent, Agent):
                raise TypeError(f"{agent!r:.80} is not an Agent; write Agent(AgentOptions(...))")
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise ValueError(f"two agents are named {agent.name!r}; a run addresses its agent by name")

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def get(self, name: str) -> Agent:
        """The agent of this name; ``editor/researcher`` is the sub-agent ``researcher`` of ``editor``.

        Raises:
            UnknownAgent: There is none; the message lists the known ones.
        """
        first, *path = name.split("/")
        found = self._agents[first].descend(path) if first in self._agents else None
        if found is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise UnknownAgent(
                f"no agent is named {name!r} on this worker; known: {known}. Deploy a worker that has it"
            )
        return found

    def edges(self, name: str) -> Edges:
        """What filters the activities of this agent: its own middlewares, and those of the agents above it.

        Raises:
            UnknownAgent: There is none.
        """
        if name not in self._edges:
            parts = name.split("/")
            line = [self.get("/".join(parts[: depth + 1])) for depth in range(len(parts))]
            self._edges[name] = Edges.of(middleware for agent in line for middleware in agent.middleware)
        return self._edges[name]

    def everyone(self) -> Iterator[tuple[str, Agent]]:
        """Every agent and sub-agent, with the name that addresses it."""
        waiting = [(agent.name, agent) for agent in self]
        while waiting:
            name, agent = waiting.pop(0)
            yield name, agent
            waiting.extend((f"{name}/{child.name}", child) for child in agent.subagents.values())

"""Who is compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One column of the table.

    Attributes:
        name: In the table.
        module: Of ``benchmarks.peers``; also names its environment and its constraints.
        packages: What pip is asked for; none: this package's own environment serves.
        storage: Whether payloads are kept in a directory.
        update: The update by which a person answers, where the documentation has one; else the signal ``approve``.
    """

    name: str
    module: str
    packages: tuple[str, ...] = ()
    storage: bool = False
    update: str = ""

    @property
    def is_ours(self) -> bool:
        return self.module == "outlast_agent"


BARE = Candidate("bare workflow", "bare_workflow")
INLINE = Candidate("outlast", "outlast_agent")
STORED = Candidate("outlast, storage", "outlast_agent", storage=True)
PEERS = (
    Candidate("pydantic-ai", "pydantic_ai_agent", ("pydantic-ai-slim[temporal]",)),
    Candidate("OpenAI Agents", "openai_agent", ("temporalio-openai-agents",)),
    Candidate("Strands", "strands_agent", ("temporalio-strands-agents",)),
    Candidate("LangGraph", "langgraph_agent", ("temporalio-langgraph",)),
    Candidate("Deep Agents", "deep_agent", ("temporalio-deepagents",), update="resume"),
)
CANDIDATES = (BARE, INLINE, STORED, *PEERS)


class Unavailable(Exception):
    """A candidate cannot be measured; the text says why, and stands in the table."""

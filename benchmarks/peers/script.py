"""The script that every model here follows. Only the standard library: it runs in every peer's environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

INSTRUCTIONS = "You fetch pages, and publish when asked to."


def next_call(prompt: str, results: int) -> tuple[str, dict[str, Any]] | None:
    """The tool call after so many results; None when the work is done.

    Args:
        prompt: Three numbers: pages to fetch, characters of each, publications to make. Publishing needs an approval.
        results: Tool results in the conversation so far.
    """
    pages, size, publications = map(int, prompt.split())
    if results < pages:
        return "fetch", {"page": results, "size": size, "of": pages}
    if results < pages + publications:
        return "publish", {"title": f"Report {results}"}
    return None


@dataclass(frozen=True)
class Served:
    """What a worker is made of.

    Attributes:
        workflows: Each file has one, named ``Bench``, which takes the prompt; outlast's comes with its plugin.
        activities: The tools.
        plugins: Of the peer; on the client, from where workers and replayers take them.
        connect: Makes the client from an address and a storage URL, if not Temporal's own ``Client.connect``.
        replaying: More arguments of ``Replayer``, from a storage URL.
    """

    workflows: Sequence[type] = ()
    activities: Sequence[Callable[..., Any]] = ()
    plugins: Sequence[Any] = ()
    connect: Callable[[str, str | None], Awaitable[Client]] | None = None
    replaying: Callable[[str | None], Mapping[str, Any]] = lambda storage: {}

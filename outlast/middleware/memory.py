"""What a middleware remembers of a run: one JSON object in ``invocation_state``, under its name and the run's id.

The id keeps one run's counts out of the next, where somebody hands the whole ``invocation_state`` on.
"""

from __future__ import annotations

from pydantic_core import from_json, to_json

from outlast.messages import Json
from outlast.middleware.contract import HookContext


def recall(ctx: HookContext, name: str) -> dict[str, Json]:
    """A copy of what the middleware of this name remembers of this run; empty at first."""
    kept: Json = ctx.invocation_state.get(name)
    run = ctx.run_id if ctx.middleware else ""  # outside a run there is no id
    if isinstance(kept, dict) and kept.get("run") == run:
        copied: dict[str, Json] = from_json(to_json(kept))
        return copied
    return {"run": run}


def remember(ctx: HookContext, name: str, memory: dict[str, Json]) -> None:
    """Keep it; JSON values only."""
    ctx.invocation_state[name] = memory

"""Agents whose hooks replay without a word from Temporal, with other values: what only an exact replay finds."""

from __future__ import annotations

from outlast import Agent, AgentOptions, HookContext, create_middleware
from outlast.model import ModelRequest
from outlast.testing.scripted import ScriptedModel

WORDS = ("red", "orange", "yellow", "green", "blue", "indigo", "violet", "black", "white", "grey", "pink", "brown")


def tell_in_any_order(request: ModelRequest, ctx: HookContext) -> ModelRequest:
    """The order of a set of texts changes with the hash seed."""
    text = " ".join(set(WORDS))
    [last] = request.messages[-1].blocks
    return request.replace(messages=(request.messages[-1].replace(blocks=(last.replace(text=text),)),))


def keep_in_any_order(request: ModelRequest, ctx: HookContext) -> None:
    """As above, in the run's own state, which is in its result."""
    ctx.invocation_state["words"] = list(set(WORDS))


asker = Agent(
    AgentOptions(
        name="asker",
        model=ScriptedModel(["ok"] * 20),
        middleware=[create_middleware("asker", before_model=tell_in_any_order)],
    )
)
keeper = Agent(
    AgentOptions(
        name="keeper",
        model=ScriptedModel(["ok"] * 20),
        middleware=[create_middleware("keeper", before_model=keep_in_any_order)],
    )
)

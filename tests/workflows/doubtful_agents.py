"""An agent whose order of middlewares is warned of, which notes how often it was."""

from __future__ import annotations

import warnings

from outlast import Agent, AgentOptions, HookContext, create_middleware
from outlast.middleware import human_in_the_loop, tool_call_limit
from outlast.model import ModelRequest
from outlast.testing import ScriptedModel


def tell(request: ModelRequest, ctx: HookContext) -> None:
    ctx.invocation_state["warnings"] = len(told)


with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    doubtful = Agent(
        AgentOptions(
            name="doubtful",
            model=ScriptedModel(["done"]),
            middleware=[
                human_in_the_loop({"publish": True}),
                tool_call_limit(run_limit=1),
                create_middleware("tell", before_model=tell),
            ],
        )
    )

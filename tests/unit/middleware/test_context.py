"""What hooks may ask of the step: its calls, a tool, another model."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import HookContext, ToolRejection, create_middleware, tool
from outlast.errors import AgentRunFailed
from outlast.model import ModelRequest
from outlast.testing.scripted import ScriptedModel, call, calls
from outlast.tools import ToolCall
from tests.unit.middleware.agents import run


@tool(idempotent=False)
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


async def test_a_hook_sees_the_steps_calls_as_they_stand_and_which_are_still_open() -> None:
    seen: list[Any] = []

    def judge(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        seen.append(([c.args["n"] for c in ctx.calls], [c.args["n"] for c in ctx.open_calls]))
        if call.args["n"] == 1:
            raise ToolRejection("no")
        return call.replace(args={"n": 20}) if call.args["n"] == 2 else None

    hook = create_middleware("judge", before_tool=judge)
    await run([calls(call("look", n=1), call("look", n=2), call("look", n=3)), "done"], hook, tools=[look])
    assert seen[0] == ([1, 2, 3], [1, 2, 3])
    assert seen[-1] == ([1, 20, 3], [20, 3])


async def test_a_hook_may_ask_another_model_for_a_step_and_the_model_is_not_told() -> None:
    second = ScriptedModel(["from second"], name="other:second")

    def choose(request: ModelRequest, ctx: HookContext) -> ModelRequest:
        assert ctx.model == "scripted"
        return request.replace(model=ctx.model_ref(second))

    first = ScriptedModel([])
    result = await run(first, create_middleware("choose", models=[second], before_model=choose))
    assert result.output == "from second"
    assert second.requests[0].model == ""


async def test_a_model_object_that_no_middleware_declared_is_named_in_the_error() -> None:
    def choose(request: ModelRequest, ctx: HookContext) -> None:
        ctx.model_ref(ScriptedModel([], name="other:undeclared"))

    with pytest.raises(AgentRunFailed, match="UNKNOWN_MODEL: model object 'other:undeclared' is not declared"):
        await run([], create_middleware("choose", before_model=choose))


async def test_a_hook_sees_how_a_tool_is_declared() -> None:
    seen: list[Any] = []

    def note(request: ModelRequest, ctx: HookContext) -> None:
        found = ctx.tool("look")
        seen.append((found is not None and found.options.idempotent, ctx.tool("ghost")))

    await run(["done"], create_middleware("note", before_model=note), tools=[look])
    assert seen == [(False, None)]


def test_outside_a_run_it_says_what_to_use() -> None:
    with pytest.raises(RuntimeError, match="use MemoryRuntime or local_env"):
        _ = HookContext().calls

"""AC-43 to AC-45, D40 to D42: an upper bound on the turns of a run."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import tool
from outlast.errors import AgentRunFailed, ServerFault
from outlast.middleware import create_sub_agent_middleware, human_in_the_loop, model_call_limit, model_retry
from outlast.middleware.sub_agents import SubAgent
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import ScriptedModel, call, calls
from tests.unit.middleware.agents import agent, run


@tool
def look() -> str:
    """Look."""
    return "seen"


async def test_n_calls_succeed_and_the_next_ends_the_run_before_the_provider_is_asked() -> None:
    """AC-43."""
    model = ScriptedModel([call("look")] * 5)
    with pytest.raises(AgentRunFailed, match="used its 3 model calls") as ended:
        await run(model, model_call_limit(3), tools=[look])
    assert ended.value.code == "BUDGET_EXCEEDED"
    assert len(model.requests) == 3


async def test_a_run_that_finishes_in_n_calls_is_not_disturbed_and_zero_allows_none() -> None:
    """AC-43."""
    assert (await run([call("look"), "done"], model_call_limit(2), tools=[look])).output == "done"
    with pytest.raises(AgentRunFailed):
        await run(["never"], model_call_limit(0))


async def test_a_step_that_waited_for_a_person_and_a_restart_is_counted_once() -> None:
    """AC-44."""
    model = ScriptedModel([call("look"), call("look"), "done"])
    hooks = human_in_the_loop({"look": True}), model_call_limit(3)
    memory = MemoryRuntime(agent(model, *hooks, tools=[look]), "go")
    for _ in range(2):
        with pytest.raises(RunSuspended):
            await memory.result()
        memory.restart()
        memory.decide("look", "approve")
    assert (await memory.result()).output == "done"


async def test_retries_are_no_calls_and_the_breach_passes_through_an_outer_retry() -> None:
    """AC-45."""
    model = ScriptedModel([ServerFault("x"), call("look"), "never"])
    with pytest.raises(AgentRunFailed, match="BUDGET_EXCEEDED"):
        await run(model, model_retry(on_failure="continue"), model_call_limit(1), tools=[look])
    assert len(model.requests) == 2


async def test_a_model_that_repeats_a_blocked_call_for_ever_ends_in_the_bound() -> None:
    """D40."""
    model = ScriptedModel([call("missing")] * 50)
    with pytest.raises(AgentRunFailed, match="BUDGET_EXCEEDED"):
        await run(model, model_call_limit(5))


async def test_parallel_sub_agents_and_their_parent_are_counted_apart() -> None:
    """D42."""
    child = ScriptedModel([call("look"), call("look"), "a", "b"])
    spec = SubAgent(name="w", description="works", tools=[look], middleware=[model_call_limit(2)])
    ask: Any = call("task", description="x", subagent_type="w")
    hooks = create_sub_agent_middleware(child, [spec]), model_call_limit(2)
    result = await run([calls(ask, ask), "done"], *hooks)
    assert result.output == "done"
    assert not any(block.is_error for message in result.messages for block in message.tool_results)


@pytest.mark.parametrize("given", [-1, 1.5, True, "3", None])
def test_what_is_no_count_is_refused_when_it_is_made(given: Any) -> None:
    with pytest.raises(ValueError, match="max_calls must be a whole number from 0 up"):
        model_call_limit(given)

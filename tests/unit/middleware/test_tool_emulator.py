"""AC-116: a model plays the tools; they never run."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import tool
from outlast.errors import AgentRunPaused, ServerFault
from outlast.middleware import human_in_the_loop, policy_filter, tool_emulator_middleware, tool_retry
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import Reply, ScriptedModel, call, calls
from tests.unit.middleware.agents import agent, run, statuses, texts

RAN: list[str] = []


@tool
def charge(euros: int) -> str:
    """Charge a card."""
    RAN.append("charge")
    return "really charged"


@tool
def look() -> str:
    """Look."""
    RAN.append("look")
    return "really seen"


TOOLS = [charge, look]


@pytest.fixture(autouse=True)
def forget() -> None:
    RAN.clear()


async def test_without_a_list_every_tool_is_emulated_and_its_result_says_so() -> None:
    """AC-116."""
    player = ScriptedModel([' {"receipt": 7} ', "a cat"])
    turn = calls(call("charge", euros=1), call("look"))
    result = await run([turn, "done"], tool_emulator_middleware(player), tools=TOOLS)
    assert statuses(result.messages) == ["emulated", "emulated"]
    assert texts(result.messages) == ['{"receipt": 7}', "a cat"]
    assert RAN == []


async def test_with_a_list_the_others_run_for_real() -> None:
    """AC-116."""
    turn = calls(call("charge", euros=1), call("look"))
    for given, expected in (([charge], ["emulated", "executed"]), ([], ["executed", "executed"])):
        result = await run([turn, "done"], tool_emulator_middleware(ScriptedModel(["x"]), given), tools=TOOLS)
        assert statuses(result.messages) == expected
    assert sorted(RAN) == ["charge", "look", "look"]


async def test_the_player_is_told_what_the_tool_is_and_what_it_answered_before() -> None:
    player = ScriptedModel(["balance 5", "balance 4"])
    script: list[Reply] = [call("charge", euros=1), call("charge", euros=2), "done"]
    await run(script, tool_emulator_middleware(player), tools=TOOLS)
    first, second = (request.messages[-1].text for request in player.requests)
    assert "Charge a card." in first
    assert '"euros"' in first
    assert 'charge({"euros": 1})' in first
    assert 'charge({"euros": 1}) -> balance 5' in second
    assert player.requests[0].tools == ()


async def test_its_calls_count_in_the_runs_usage_and_not_in_its_steps() -> None:
    result = await run([call("look"), "done"], tool_emulator_middleware(ScriptedModel(["x"])), tools=TOOLS)
    assert (result.usage.model_calls, result.steps) == (3, 2)


async def test_after_a_failure_a_restart_and_a_resume_the_tool_has_still_not_run() -> None:
    """AC-116."""
    player = ScriptedModel([ServerFault("down"), "played"])
    memory = MemoryRuntime(agent([call("look"), "done"], tool_emulator_middleware(player), tools=TOOLS), "go")
    with pytest.raises(AgentRunPaused, match="ServerFault"):
        await memory.result()
    memory.restart()
    memory.resume()
    assert statuses((await memory.result()).messages) == ["emulated"]
    assert not any(command.startswith("s0001.tool.1.2") or command == "s0001.tool.1" for command in memory.commands)
    assert RAN == []


async def test_a_retry_outside_it_repeats_the_emulation() -> None:
    player = ScriptedModel([ServerFault("down"), "played"])
    result = await run([call("look"), "done"], tool_retry(), tool_emulator_middleware(player), tools=TOOLS)
    assert texts(result.messages) == ["played"]


async def test_policies_and_people_judge_an_emulated_call_as_if_it_were_real() -> None:
    hooks = (
        tool_emulator_middleware(ScriptedModel(["x"])),
        policy_filter(deny=["charge"]),
        human_in_the_loop({"look": True}),
    )
    memory = MemoryRuntime(agent([calls(call("charge", euros=1), call("look")), "done"], *hooks, tools=TOOLS), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    memory.decide("look", "approve")
    assert statuses((await memory.result()).messages) == ["rejected", "emulated"]


async def test_an_unknown_tool_and_arguments_that_do_not_fit_are_not_emulated() -> None:
    player = ScriptedModel([])
    turn = calls(call("missing"), call("charge", euros="many"))
    result = await run([turn, "done"], tool_emulator_middleware(player), tools=TOOLS)
    assert statuses(result.messages) == ["failed", "failed"]


async def test_it_remembers_ten_answers_each_cut() -> None:
    player = ScriptedModel(["x" * 5000] * 12)
    result = await run([*[call("look")] * 12, "done"], tool_emulator_middleware(player), tools=TOOLS)
    kept = result.invocation_state["tool_emulator"]["answers"]
    assert len(kept) == 10
    assert max(map(len, kept)) <= 1000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((3,), "model must be a text like"),
        (("",), "model is empty"),
        (("openai:gpt-5", "look"), "tools must be a list of tool names, not 'look'"),
    ],
)
def test_a_bad_option_is_named_when_it_is_given(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        tool_emulator_middleware(*arguments)

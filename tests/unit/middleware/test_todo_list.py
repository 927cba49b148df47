"""AC-113, AC-114, D54: a list of the run's own, written whole, at most once per turn."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import HookContext, create_middleware, tool
from outlast.middleware import create_sub_agent_middleware, list_todos, todo_list
from outlast.middleware.sub_agents import SubAgent
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import ScriptedModel, call, calls
from tests.unit.middleware.agents import agent, run, statuses, texts

ONE = {"content": "look", "status": "in_progress"}
TWO = {"content": "answer", "status": "pending"}


@tool
def look() -> str:
    """Look."""
    return "seen"


def write(*todos: Any) -> Any:
    return call("write_todos", todos=list(todos))


async def test_the_tool_is_contributed_and_the_list_can_be_read_from_the_result() -> None:
    """AC-113."""
    model = ScriptedModel([write(ONE, TWO), "done"])
    result = await run(model, todo_list())
    assert [spec.name for spec in model.requests[0].tools] == ["write_todos"]
    assert list_todos(result) == list_todos(result.invocation_state) == [ONE, TWO]
    assert texts(result.messages) == ["The list is now:\n- [in_progress] look\n- [pending] answer"]


async def test_a_hook_reads_the_list_of_its_own_run() -> None:
    """AC-113."""
    seen: list[Any] = []
    watch = create_middleware("watch", before_model=lambda request, ctx: seen.append(list_todos(ctx)))
    await run([write(ONE), "done"], todo_list(), watch)
    assert seen == [[], [ONE]]


async def test_each_write_replaces_the_whole_list() -> None:
    """AC-114."""
    assert list_todos(await run([write(ONE, TWO), write(TWO), "done"], todo_list())) == [TWO]
    assert list_todos(await run([write(ONE), write(), "done"], todo_list())) == []


@pytest.mark.parametrize(
    "bad", [{"content": "x", "status": "doing"}, {"content": "x"}, {"status": "pending"}, "x", {**ONE, "owner": "me"}]
)
async def test_an_item_that_is_none_is_an_error_result_and_the_list_stays(bad: Any) -> None:
    """AC-114."""
    result = await run([write(ONE), write(TWO, bad), "done"], todo_list())
    assert statuses(result.messages) == ["executed", "failed"]
    assert list_todos(result) == [ONE]


async def test_two_lists_in_one_turn_are_all_refused_and_other_calls_run() -> None:
    """AC-114, D54."""
    turn = calls(write(TWO), call("look"), write())
    result = await run([write(ONE), turn, "done"], todo_list(), tools=[look])
    assert statuses(result.messages) == ["executed", "rejected", "executed", "rejected"]
    assert list_todos(result) == [ONE]


async def test_writing_the_list_runs_no_activity() -> None:
    memory = MemoryRuntime(agent([write(ONE), "done"], todo_list()), "go")
    await memory.result()
    assert memory.commands == ["s0001.model", "s0002.model"]


async def test_the_list_survives_a_restart_and_a_new_run_starts_without_one() -> None:
    """AC-114."""
    definition = agent(ScriptedModel([write(ONE), "done", "again", "handed"]), todo_list())
    memory = MemoryRuntime(definition, "go")
    first = await memory.result()
    memory.restart()
    assert list_todos(memory.state) == [ONE]
    again = await MemoryRuntime(definition, "go", id="two", messages=first.messages).result()
    handed = await MemoryRuntime(definition, "go", id="three", invocation_state=first.invocation_state).result()
    assert list_todos(again) == list_todos(handed) == []


async def test_two_runs_of_one_agent_do_not_share_a_list() -> None:
    """AC-113: there is no state in the module or the middleware."""
    definition = agent(ScriptedModel([write(ONE), write(TWO), "done", "done"]), todo_list())
    one, two = MemoryRuntime(definition, "go", id="one"), MemoryRuntime(definition, "go", id="two")
    a = await one.result()
    assert list_todos(a) == [TWO]
    assert list_todos(await two.result()) == []


async def test_a_sub_agent_has_its_own_list() -> None:
    child = ScriptedModel([write(TWO), "child done"])
    spec = SubAgent(name="w", description="works", middleware=[todo_list()])
    hooks = todo_list(), create_sub_agent_middleware(child, [spec])
    result = await run([write(ONE), call("task", description="x", subagent_type="w"), "done"], *hooks)
    assert list_todos(result) == [ONE]


@pytest.mark.parametrize("instructions", ["", "Be brief."])
async def test_the_model_is_told_how_to_use_it_and_the_transcript_is_not(instructions: str) -> None:
    model = ScriptedModel([write(ONE), "done"])
    result = await run(model, todo_list(prompt="USE THE LIST"), instructions=instructions)
    for request in model.requests:
        assert request.messages[0].role == "system"
        assert request.messages[0].text == (f"{instructions}\n\nUSE THE LIST" if instructions else "USE THE LIST")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_prompt_that_is_none_is_refused_when_it_is_given() -> None:
    with pytest.raises(TypeError, match="todo_list: prompt must be a text"):
        todo_list(prompt="")
    assert list_todos(HookContext()) == []

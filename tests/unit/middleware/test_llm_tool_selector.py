"""AC-115, D55, D56: many tools narrowed to the relevant few, once per user turn, enforced where a call would run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast import AgentError, create_middleware, tool
from outlast.errors import AgentRunFailed, ServerFault
from outlast.messages import assistant, user
from outlast.middleware import llm_tool_selector_middleware
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import ScriptedModel, call
from outlast.tools import Tool
from tests.unit.middleware.agents import agent, run, statuses, texts


def numbered(count: int) -> list[Tool]:
    def made(number: int) -> Tool:
        def body() -> str:
            return f"ran t{number}"

        return tool(name=f"t{number}", description=f"Tool number {number}.")(body)

    return [made(number) for number in range(count)]


def choosing(*names: str) -> str:
    return json.dumps({"tools": list(names)})


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in model.requests]


async def test_the_model_is_shown_what_was_selected_in_the_agents_order() -> None:
    """AC-115."""
    model, selector = ScriptedModel(["done"]), ScriptedModel([choosing("t7", "t2", "t7")])
    result = await run(model, llm_tool_selector_middleware(selector), tools=numbered(12))
    assert offered(model) == [["t2", "t7"]]
    assert result.usage.model_calls == 2


@pytest.mark.parametrize(("tools", "most", "asked"), [(9, None, 0), (10, None, 1), (4, 4, 0), (5, 4, 1), (3, 1, 1)])
async def test_no_question_is_asked_where_there_is_nothing_to_choose(tools: int, most: int | None, asked: int) -> None:
    """AC-115: ten tools without a bound, more than the bound with one."""
    selector = ScriptedModel([choosing("t0")])
    await run(["done"], llm_tool_selector_middleware(selector, most), tools=numbered(tools))
    assert len(selector.requests) == asked


async def test_at_most_max_tools_are_kept_the_first_named_first() -> None:
    """AC-115."""
    model, selector = ScriptedModel(["done"]), ScriptedModel([choosing("t3", "t1", "t0")])
    await run(model, llm_tool_selector_middleware(selector, 2), tools=numbered(5))
    assert offered(model) == [["t1", "t3"]]


async def test_tools_that_are_always_included_do_not_count_and_are_not_asked_about() -> None:
    """AC-115."""
    model, selector = ScriptedModel(["done"]), ScriptedModel([choosing("t3", "t4")])
    await run(model, llm_tool_selector_middleware(selector, 1, always_include=["t4", "t0"]), tools=numbered(5))
    assert offered(model) == [["t0", "t3", "t4"]]
    assert "t4" not in selector.requests[0].messages[0].text
    three = ScriptedModel([])
    await run(["done"], llm_tool_selector_middleware(three, 3, always_include=["t0"]), tools=numbered(4))
    assert three.requests == []


async def test_an_always_included_name_that_does_not_exist_is_ignored_with_a_warning() -> None:
    """AC-115."""
    selector = llm_tool_selector_middleware(ScriptedModel([choosing("t1")]), 1, ["t0", "ghost"])
    memory = MemoryRuntime(agent(["done"], selector, tools=numbered(5)), "go")
    await memory.result()
    told = [event.data["text"] for event in memory.events if event.kind == "custom"]
    assert told == ["tool selection: always_include names no tool of this agent: ghost"]


async def test_unknown_names_are_dropped_with_a_warning_and_never_run() -> None:
    """AC-115, D55."""
    model = ScriptedModel([call("ghost"), "done"])
    selector = llm_tool_selector_middleware(ScriptedModel([choosing("ghost", "t1")]), 2)
    memory = MemoryRuntime(agent(model, selector, tools=numbered(5)), "go")
    result = await memory.result()
    assert offered(model)[0] == ["t1"]
    assert statuses(result.messages) == ["failed"]
    told = [event.data["text"] for event in memory.events if event.kind == "custom"]
    assert told == ["tool selection: unknown names ignored: ghost"]


@pytest.mark.parametrize(
    "answer",
    [
        "no JSON",
        "[]",
        '{"tools": "t1"}',
        '{"tool": ["t1"]}',
        '{"tools": []}',
        '{"tools": ["ghost"]}',
        '{"tools": [1, null]}',
        "",
        ServerFault("down"),
        ValueError("own model's bug"),
        "[" * 100_000,
    ],
)
async def test_a_selector_that_fails_or_chooses_nothing_real_leaves_all_tools(answer: Any) -> None:
    """AC-115, D55: it fails open, on what is advertised."""
    model = ScriptedModel([call("t4"), "done"])
    result = await run(model, llm_tool_selector_middleware(ScriptedModel([answer]), 2), tools=numbered(5))
    assert [len(names) for names in offered(model)] == [5, 5]
    assert statuses(result.messages) == ["executed"]


async def test_a_control_error_of_the_selector_ends_the_run() -> None:
    selector = ScriptedModel([AgentError("STOP", "x")])
    with pytest.raises(AgentRunFailed, match="STOP"):
        await run(["never"], llm_tool_selector_middleware(selector, 2), tools=numbered(5))


async def test_what_was_left_out_does_not_run_though_the_model_calls_it() -> None:
    """AC-115: enforced at execution."""
    model = ScriptedModel([call("t4"), call("t1"), "done"])
    result = await run(model, llm_tool_selector_middleware(ScriptedModel([choosing("t1")]), 2), tools=numbered(5))
    assert statuses(result.messages) == ["rejected", "executed"]
    assert "not among the tools offered" in texts(result.messages)[0]


async def test_an_edit_of_the_name_does_not_get_around_it() -> None:
    rename = create_middleware("rename", before_tool=lambda call, ctx: call.replace(name="t4"))
    selector = llm_tool_selector_middleware(ScriptedModel([choosing("t1")]), 2)
    result = await run([call("t1"), "done"], selector, rename, tools=numbered(5))
    assert statuses(result.messages) == ["rejected"]


async def test_the_loop_of_one_user_turn_asks_once_also_after_a_restart() -> None:
    """AC-115."""
    model, selector = ScriptedModel([call("t1"), call("t1"), "done"]), ScriptedModel([choosing("t1")])
    memory = MemoryRuntime(agent(model, llm_tool_selector_middleware(selector, 2), tools=numbered(5)), "go")
    memory.restart()
    await memory.result()
    assert len(selector.requests) == 1
    assert offered(model) == [["t1"]] * 3


async def test_a_new_user_message_asks_again_and_calls_in_flight_are_still_run() -> None:
    """AC-115."""
    memory: MemoryRuntime

    @tool(name="t0")
    def steer() -> str:
        """Steer."""
        memory.send("now something else")
        return "steered"

    selector = ScriptedModel([choosing("t0"), choosing("t3")])
    model = ScriptedModel([call("t0"), "done"])
    tools = [steer, *numbered(5)[1:]]
    memory = MemoryRuntime(agent(model, llm_tool_selector_middleware(selector, 1), tools=tools), "go")
    result = await memory.result()
    assert offered(model) == [["t0"], ["t3"]]
    assert statuses(result.messages) == ["executed"]


async def test_the_selector_reads_the_recent_turns_as_plain_text() -> None:
    """D56: "do it" alone says nothing."""
    selector = ScriptedModel([choosing("t1")])
    earlier = [user("can you refund order 7?"), assistant("Yes. Shall I?"), user("do it")]
    definition = agent(["done"], llm_tool_selector_middleware(selector, 2), tools=numbered(5), instructions="SECRET")
    await MemoryRuntime(definition, messages=earlier).result()
    [request] = selector.requests
    assert "user: can you refund order 7?\nassistant: Yes. Shall I?\nuser: do it" in request.messages[1].text
    assert "SECRET" not in str(request.messages)
    assert request.tools == ()


async def test_the_answer_is_asked_for_as_json_with_the_names_there_are() -> None:
    selector = ScriptedModel([choosing("t1")])
    await run(["done"], llm_tool_selector_middleware(selector, 2), tools=numbered(3))
    form = selector.requests[0].response_format
    assert form is not None
    assert form.json_schema["properties"]["tools"]["items"]["enum"] == ["t0", "t1", "t2"]
    assert "- t2: Tool number 2." in selector.requests[0].messages[0].text


async def test_a_long_conversation_is_cut_for_the_selector() -> None:
    selector = ScriptedModel([choosing("t1")])
    definition = agent(["done"], llm_tool_selector_middleware(selector, 2), tools=numbered(3))
    await MemoryRuntime(definition, messages=[user("old"), *[user("x" * 100_000)] * 20]).result()
    assert len(selector.requests[0].messages[1].text) < 20_000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((3,), "model must be a text like"),
        (("openai:gpt-5", 0), "max_tools must be a whole number from 1 up, not 0"),
        (("openai:gpt-5", 2, "t1"), "always_include must be a list of tool names, not 't1'"),
    ],
)
def test_a_bad_option_is_named_when_it_is_given(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        llm_tool_selector_middleware(*arguments)

"""AC-118, D22, D42, D61: specialists are runs of their own, and what they ask a person is decided at the parent."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import Agent, AgentError, AgentOptions, tool
from outlast.messages import Message
from outlast.middleware import create_middleware, human_in_the_loop
from outlast.middleware.sub_agents import SubAgent, create_sub_agent_middleware
from outlast.model import ModelRequest
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import Reply, ScriptedModel, call, calls, text
from outlast.tools import ToolCall


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def results(messages: tuple[Message, ...]) -> list[str]:
    return [result.text for message in messages for result in message.tool_results]


def team(parent: list[Reply], child: ScriptedModel, **options: Any) -> Agent:
    writer = SubAgent(name="writer", description="writes", instructions="You write.", tools=[publish], **options)
    middleware = create_sub_agent_middleware(child, [writer])
    return Agent(AgentOptions(name="editor", model=ScriptedModel(parent), middleware=[middleware]))


def ask(description: str = "write it") -> Any:
    return call("task", description=description, subagent_type="writer")


async def test_a_specialist_sees_its_instructions_and_the_description_and_nothing_else() -> None:
    """AC-118: and the parent's history holds one result more."""
    child = ScriptedModel(["a fine text"])
    result = await MemoryRuntime(team([ask("the task"), "done"], child), "secret of the parent").result()
    [request] = child.requests
    assert [message.text for message in request.messages] == ["You write.", "the task"]
    assert results(result.messages) == ["a fine text"]
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_its_usage_counts_in_the_parents() -> None:
    """AC-118."""
    result = await MemoryRuntime(team([ask(), "done"], ScriptedModel(["x"])), "go").result()
    assert result.usage.model_calls == 3
    assert result.usage.input_tokens == 30


async def test_an_unknown_specialist_is_answered_with_the_names_there_are() -> None:
    """AC-118."""
    wrong = call("task", description="x", subagent_type="poet")
    result = await MemoryRuntime(team([wrong, "done"], ScriptedModel([])), "go").result()
    assert results(result.messages) == ["There is no sub-agent 'poet'. Choose one of: writer."]


async def test_the_last_text_that_is_not_empty_is_the_answer() -> None:
    """AC-118, D61."""
    child = ScriptedModel(
        [
            Message(
                role="assistant",
                blocks=(*text("halfway").message.blocks, *call("publish", title="a").message.tool_calls),
            ),
            "",
        ]
    )
    result = await MemoryRuntime(team([ask(), "done"], child), "go").result()
    assert results(result.messages) == ["halfway"]


async def test_a_child_that_ends_in_an_error_is_an_error_result_and_the_parent_goes_on() -> None:
    """AC-118, D61: a bound on its steps is its own, and holds."""
    child = ScriptedModel([call("publish", title="a")] * 3)
    result = await MemoryRuntime(team([ask(), "done"], child, max_steps=2), "go").result()
    assert result.output == "done"
    [answer] = results(result.messages)
    assert answer.startswith("Sub-agent writer could not finish: MAX_STEPS")


async def test_a_child_has_no_task_tool_of_its_own() -> None:
    """AC-118, D61."""
    child = ScriptedModel([call("task", description="deeper", subagent_type="writer"), "gave up"])
    await MemoryRuntime(team([ask(), "done"], child), "go").result()
    assert [spec.name for spec in child.requests[0].tools] == ["publish"]
    [denied] = child.requests[1].messages[-1].tool_results
    assert denied.is_error


async def test_specialists_that_have_specialists_are_nested_four_deep_at_most() -> None:
    """AC-118, D61: an agent that is told to go deeper gets an error result, and every level above goes on."""
    deep: list[object] = []
    for level in range(5, 0, -1):
        deeper = call("task", description=f"level {level + 1}", subagent_type=f"l{level + 1}")
        replies: list[Reply] = [deeper, lambda request: request.messages[-1].tool_results[0].text]
        model = ScriptedModel(replies if level < 5 else ["never reached"])
        spec = SubAgent(name=f"l{level}", description="x", model=model, middleware=deep)
        deep = [create_sub_agent_middleware("openai:unused", [spec])]
    top = ScriptedModel([call("task", description="level 1", subagent_type="l1"), "done"])
    result = await MemoryRuntime(Agent(AgentOptions(name="top", model=top, middleware=deep)), "go").result()
    assert result.output == "done"
    assert "TOO_DEEP" in results(result.messages)[0]


async def test_a_childs_exception_is_an_error_result() -> None:
    """AC-118, D61: it does not end the parent."""
    broken = AgentError("STOP", "the child is done for")
    result = await MemoryRuntime(team([ask(), "done"], ScriptedModel([broken])), "go").result()
    [answer] = [found for message in result.messages for found in message.tool_results]
    assert (answer.is_error, answer.text) == (True, "Sub-agent writer could not finish: STOP: the child is done for")
    assert result.output == "done"


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ("approve", "published draft"),
        ({"edit": {"title": "better"}}, "published better"),
        ({"reject": "not now"}, "not now"),
    ],
)
async def test_approve_edit_and_reject_at_the_parent_reach_the_child(decision: Any, expected: str) -> None:
    """AC-118, D22."""

    def report(request: ModelRequest) -> str:
        return request.messages[-1].tool_results[0].text

    child = ScriptedModel([call("publish", title="draft"), report])
    agent = team([ask(), "done"], child, middleware=[human_in_the_loop({"publish": True})])
    run = MemoryRuntime(agent, "go")
    with pytest.raises(RunSuspended):
        await run.result()
    [pending] = run.pending
    assert (pending.path, pending.tool, pending.args) == (("writer",), "publish", {"title": "draft"})
    run.decide(pending.tool_call_id, decision, by="alice")
    result = await run.result()
    assert expected in results(result.messages)[0]
    assert [record.decision.by for record in result.audit] == ["alice"]


async def test_twenty_children_with_an_approval_each_are_decided_in_any_order() -> None:
    """AC-118."""

    def child_turn(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        return call("publish", title=last.text) if last.role == "user" else text(last.tool_results[0].text)

    child = ScriptedModel([child_turn] * 40)
    parent: list[Reply] = [calls(*(ask(f"t{n}") for n in range(20))), "done"]
    run = MemoryRuntime(team(parent, child, middleware=[human_in_the_loop({"publish": True})]), "go")
    with pytest.raises(RunSuspended):
        await run.result()
    assert len(run.pending) == 20
    for pending in sorted(run.pending, key=lambda item: item.args["title"], reverse=True):
        run.decide(pending.tool_call_id, "approve")
    result = await run.result()
    assert results(result.messages) == [f"published t{n}" for n in range(20)]


async def test_counters_of_parent_and_child_are_separate() -> None:
    """D42, D61: no state leaks between parent, child and sibling."""

    def count(call: ToolCall, ctx: Any) -> None:
        ctx.invocation_state["count"] = ctx.invocation_state.get("count", 0) + 1

    counter = create_middleware("counter", before_tool=count)
    child = ScriptedModel([call("publish", title="a"), call("publish", title="b"), "x"] * 2)
    writer = SubAgent(name="writer", description="writes", tools=[publish], middleware=[counter])
    agent = Agent(
        AgentOptions(
            name="editor",
            model=ScriptedModel([ask(), ask(), "done"]),
            middleware=[create_sub_agent_middleware(child, [writer]), counter],
        )
    )
    result = await MemoryRuntime(agent, "go").result()
    assert result.invocation_state == {"count": 2}


@pytest.mark.parametrize(
    ("subagents", "message"),
    [
        ([], "empty"),
        ([{"name": "a", "description": "x"}, {"name": "a", "description": "y"}], "two sub-agents are named a"),
        ([{"name": "a"}], "description missing"),
        ([{"name": "a", "description": "x", "promt": "y"}], "unknown key promt"),
        ([{"name": "a/b", "description": "x"}], "without '/'"),
    ],
)
def test_bad_sub_agents_are_refused_when_the_middleware_is_made(subagents: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_sub_agent_middleware("openai:gpt-5", subagents)


def test_a_model_that_is_none_is_refused_when_it_is_given() -> None:
    with pytest.raises(ValueError, match="create_sub_agent_middleware: model is empty"):
        create_sub_agent_middleware("", [{"name": "a", "description": "x"}])

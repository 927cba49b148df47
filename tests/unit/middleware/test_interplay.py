"""Every ordered pair of the prebuilt middlewares works together on one script."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Agent, AgentOptions, tool
from outlast.messages import sequence_fault
from outlast.middleware import (
    SubAgent,
    context_editing_middleware,
    create_sub_agent_middleware,
    filesystem_middleware,
    human_in_the_loop,
    llm_tool_selector_middleware,
    model_call_limit,
    model_fallback,
    model_retry,
    pii_redact,
    policy_filter,
    summarization_middleware,
    todo_list,
    tool_call_limit,
    tool_emulator_middleware,
    tool_retry,
)
from outlast.model import ModelRequest
from outlast.state import RunResult
from outlast.testing import MemoryRuntime, RunSuspended, ScriptedModel, call, calls
from outlast.testing.scripted import Reply, text

MAKERS: dict[str, Callable[[Path], object]] = {
    "model_retry": lambda root: model_retry(),
    "tool_retry": lambda root: tool_retry(),
    "model_fallback": lambda root: model_fallback(ScriptedModel([turn] * 20)),
    "model_call_limit": lambda root: model_call_limit(50),
    "tool_call_limit": lambda root: tool_call_limit(run_limit=50),
    "human_in_the_loop": lambda root: human_in_the_loop({"publish": True}),
    "policy_filter": lambda root: policy_filter(deny=["forbidden"]),
    "todo_list": lambda root: todo_list(),
    "selector": lambda root: llm_tool_selector_middleware(ScriptedModel([text("{}")] * 20)),
    "emulator": lambda root: tool_emulator_middleware(ScriptedModel([text("made up")] * 20), tools=["nothing"]),
    "summarization": lambda root: summarization_middleware(ScriptedModel(["notes"] * 20), 300, 4),
    "context_editing": lambda root: context_editing_middleware(),
    "sub_agents": lambda root: create_sub_agent_middleware(
        ScriptedModel(["report"] * 20), [SubAgent(name="helper", description="helps")]
    ),
    "pii_redact": lambda root: pii_redact("email"),
    "filesystem": lambda root: filesystem_middleware(str(root)),
}


@tool
def look(n: int) -> str:
    """Look."""
    return f"saw {n} for bob@example.com " + "word " * 20


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


@tool
def breaks() -> str:
    """Break."""
    raise ConnectionError("down")


SCRIPT: list[Reply] = [
    call("look", n=1),
    calls(call("look", n=2), call("publish", title="x")),
    call("breaks"),
    call("publish", title="y"),
    call("look", n=3),
    "done",
]


def turn(request: ModelRequest) -> Reply:
    """The next line of the script, by what was answered; what a summary or an edit hides is told by the last call."""
    seen = [block.raw_args + block.name for message in request.messages for block in message.tool_calls]
    keys = ['{"n": 1}look', '{"title": "x"}publish', "{}breaks", '{"title": "y"}publish', '{"n": 3}look']
    return SCRIPT[max((keys.index(key) + 1 for key in seen if key in keys), default=0)]


async def outcome(agent: Agent, restart: bool = False) -> RunResult:
    run = MemoryRuntime(agent, "write to bob@example.com")
    for _ in range(10):
        try:
            return await run.result()
        except RunSuspended as waiting:
            if restart:
                run.restart()
            for item in waiting.pending:
                run.decide(item.tool_call_id, "approve")
    raise AssertionError("the run does not end")


def made(stack: list[object]) -> Agent:
    options = AgentOptions(
        name="a", model=ScriptedModel([turn] * 30), tools=[look, publish, breaks], middleware=stack, max_steps=12
    )
    return Agent(options)


def check(result: RunResult) -> None:
    assert result.output == "done"
    assert sequence_fault(result.messages) is None
    found = [r for message in result.messages for r in message.tool_results]
    assert [r.name for r in found] == ["look", "look", "publish", "breaks", "publish", "look"]
    assert [r.is_error for r in found] == [False, False, False, True, False, False]


REFUSED = {("context_editing", "summarization")}
WARNED = {("human_in_the_loop", "tool_call_limit"), ("summarization", "pii_redact"), ("selector", "pii_redact")}


@pytest.mark.parametrize("pair", list(itertools.permutations(MAKERS, 2)), ids="-".join)
async def test_every_ordered_pair_ends_the_script_soundly_or_is_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    """Which pairs are warned of, and which are refused, is told here exactly."""
    stack = [MAKERS[name](tmp_path) for name in pair]
    if pair in REFUSED:
        with pytest.raises(ValueError, match="register summarization before context_editing"):
            made(stack)
        return
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        agent = made(stack)
    assert [item.category for item in told] == [UserWarning] * (pair in WARNED)
    check(await outcome(agent))


async def test_all_of_them_in_the_recommended_order_survive_restarts(tmp_path: Path) -> None:
    order = ["pii_redact", "policy_filter", "tool_call_limit", "human_in_the_loop", "emulator", "tool_retry"]
    order += ["model_call_limit", "model_fallback", "model_retry", "summarization", "context_editing", "selector"]
    order += ["todo_list", "filesystem", "sub_agents"]
    assert sorted(order) == sorted(MAKERS)
    check(await outcome(made([MAKERS[name](tmp_path) for name in order]), restart=True))

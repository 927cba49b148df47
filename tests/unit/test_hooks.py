"""AC-1 to AC-24: what a middleware is, in which order hooks run, and what they may change."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest

from outlast import Agent, AgentOptions, AgentRunPaused, HookContext, create_middleware, tool
from outlast.messages import assistant, user
from outlast.middleware import (
    compose_model_call,
    compose_tool_call,
    human_in_the_loop,
    run_after_model,
    run_after_tool,
    run_before_model,
    run_before_tool,
)
from outlast.middleware.contract import HOOKS, ModelNext
from outlast.model import Completion, ModelRequest, ResponseFormat, ToolSpec
from outlast.state import RunState
from outlast.testing import MemoryRuntime, RunSuspended, ScriptedModel, call
from outlast.tools import ToolCall, ToolResult
from tests.unit.hooked import Tracer, add, agent, outcome


async def test_every_hook_runs_in_the_pinned_order() -> None:
    """AC-4, AC-6, AC-7, AC-8, AC-10, AC-11."""
    trace: list[str] = []
    await outcome([call("add", a=1, b=2), "done"], Tracer("A", trace), Tracer("B", trace))
    model = ["before_model A", "before_model B", "enter model A", "enter model B", "leave model B", "leave model A"]
    model += ["after_model B", "after_model A"]
    tools = ["before_tool A", "before_tool B", "enter tool A", "enter tool B", "leave tool B", "leave tool A"]
    tools += ["after_tool B", "after_tool A"]
    assert trace == model + tools + model


async def test_the_helpers_give_the_same_order_without_an_agent() -> None:
    """AC-20."""
    trace: list[str] = []
    stack = [Tracer("A", trace), Tracer("B", trace)]
    ctx = HookContext(step=1, invocation_state={})
    request, made = ModelRequest(messages=(user("hi"),)), Completion(message=assistant("x"))
    asked, answer = ToolCall(id="1", name="add"), ToolResult(call_id="1", name="add")

    async def model(request: ModelRequest) -> Completion:
        return made

    async def body(call: ToolCall) -> ToolResult:
        return answer

    await run_before_model(stack, request, ctx)
    assert await compose_model_call(stack, model, ctx)(request) is made
    await run_after_model(stack, made, ctx)
    await run_before_tool(stack, asked, ctx)
    assert await compose_tool_call(stack, body, ctx)(asked) is answer
    await run_after_tool(stack, answer, ctx)
    assert [line.split()[-1] for line in trace] == list("ABABBABAABABBABA")


async def test_hooks_may_be_absent_sync_async_or_give_an_awaitable() -> None:
    """AC-1, AC-13."""
    seen: list[str] = []

    async def later(result: ToolResult) -> ToolResult:
        seen.append("awaited")
        return result.replace(content="changed")

    def after(result: ToolResult, ctx: HookContext) -> Awaitable[ToolResult]:
        return later(result)

    class Duck:
        name = "duck"

        def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
            seen.append("duck")

    texts, _ = await outcome([call("add", a=1, b=2), "done"], Duck(), create_middleware("x", after_tool=after))
    assert (texts, seen) == (["changed"], ["duck", "awaited"])


async def test_no_middleware_is_a_plain_loop() -> None:
    """AC-2."""
    nothing: list[list[object] | None] = [None, []]
    for none in nothing:
        options = AgentOptions(
            name="a", model=ScriptedModel([call("add", a=1, b=2), "done"]), tools=[add], middleware=none
        )
        assert (await MemoryRuntime(Agent(options), "go").result()).output == "done"


def test_an_unknown_hook_is_refused_when_the_middleware_is_made() -> None:
    """AC-3."""
    with pytest.raises(TypeError, match="before_modle"):
        create_middleware("x", before_modle=lambda request, ctx: None)  # type: ignore[call-arg]


async def test_what_before_model_changes_reaches_that_call_only() -> None:
    """AC-5, AC-17, AC-18, D12: the scope guard."""
    model = ScriptedModel([call("add", a=1, b=2), "done"])

    def only_once(request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        return request.replace(messages=(user("replaced"),), tools=()) if ctx.step == 1 else None

    run = MemoryRuntime(agent([], create_middleware("x", before_model=only_once), model=model), "original")
    result = await run.result()
    first, second = model.requests
    assert ([message.text for message in first.messages], first.tools) == (["replaced"], ())
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[0].text == "original"
    assert len(second.tools) == 2
    assert result.messages[0].text == "original"


async def test_before_model_may_replace_the_format_and_each_sees_what_the_one_before_made() -> None:
    """AC-4, AC-5."""
    model = ScriptedModel(['{"n": 1}'])
    seen: list[Any] = []

    def first(request: ModelRequest, ctx: HookContext) -> ModelRequest:
        return request.replace(response_format=None)

    def second(request: ModelRequest, ctx: HookContext) -> ModelRequest:
        seen.append(request.response_format)
        return request.replace(response_format=ResponseFormat(name="mine", json_schema={"type": "object"}))

    stack = (create_middleware("first", before_model=first), create_middleware("second", before_model=second))
    await outcome([], *stack, model=model, response_format=dict[str, int])
    assert seen == [None]
    assert model.requests[0].response_format == ResponseFormat(name="mine", json_schema={"type": "object"})


async def test_after_model_may_rewrite_the_completion_the_last_registered_first() -> None:
    """AC-7: what comes out is what runs and what is kept."""

    def marked(name: str) -> object:
        def after(completion: Completion, ctx: HookContext) -> Completion | None:
            return completion.replace(message=assistant(f"{completion.message.text}{name}"))

        return create_middleware(name, after_model=after)

    nothing = create_middleware("nothing", after_model=lambda completion, ctx: None)
    _, run = await outcome(["x"], marked("A"), nothing, marked("B"))
    assert [message.text for message in run.state.transcript] == ["go", "xBA"]


async def test_a_tool_that_a_hook_advertises_and_nobody_registered_does_not_run() -> None:
    """AC-22."""

    def advertise(request: ModelRequest, ctx: HookContext) -> ModelRequest:
        return request.replace(tools=(*request.tools, ToolSpec(name="ghost")))

    model = ScriptedModel([call("ghost"), "done"])
    texts, run = await outcome([], create_middleware("x", before_model=advertise), model=model)
    assert [spec.name for spec in model.requests[0].tools] == ["add", "double", "ghost"]
    assert "there is no tool named 'ghost'" in texts[0]
    assert not any("tool" in command for command in run.commands)


async def test_half_a_pair_that_a_hook_leaves_is_made_whole_before_it_is_sent() -> None:
    """Section 2, rule 5, and D11: an orphan result goes, a call without result gets one that says so."""

    def newest(request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        if ctx.step == 2:
            return request.replace(messages=(user("go"), *request.messages[-1:]))
        return request.replace(messages=request.messages[:-1]) if ctx.step == 3 else None

    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4), "done"])
    _, run = await outcome([], create_middleware("x", before_model=newest), model=model)
    assert [message.role for message in model.requests[1].messages] == ["user"]
    [orphan] = model.requests[2].messages[-1].tool_results
    assert (orphan.call_id, orphan.is_error) == ("call_2_1", True)
    assert run.state.transcript[4].tool_results[0].text == "7"


async def test_a_mutated_argument_dict_leaks_nowhere() -> None:
    """AC-19."""

    def mutate(call: ToolCall, ctx: HookContext) -> None:
        call.args["a"] = 100

    texts, run = await outcome([call("add", a=1, b=2), "done"], create_middleware("x", before_tool=mutate))
    assert texts == ["3"]
    assert run.state.transcript[1].tool_calls[0].parse_args()[0] == {"a": 1, "b": 2}


@pytest.mark.parametrize("point", ["before_model", "wrap_model"])
async def test_what_a_hook_does_to_the_dicts_of_a_request_reaches_neither_the_next_step_nor_another_run(
    point: str,
) -> None:
    """AC-19: schemas and settings belong to the agent, which all runs of a worker share."""

    def spoil(request: ModelRequest) -> None:
        request.tools[0].parameters["spoilt"] = True
        request.settings.extra["spoilt"] = True
        assert request.response_format is not None
        request.response_format.json_schema["spoilt"] = True

    async def wrap(request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        if ctx.step == 1:
            spoil(request)
        return await call_next(request)

    def before(request: ModelRequest, ctx: HookContext) -> None:
        if ctx.step == 1:
            spoil(request)

    model = ScriptedModel([call("add", a=1, b=2), '{"n": 1}'] * 2)
    hook: Any = wrap if point == "wrap_model" else before
    spoiling = agent([], create_middleware("x", **{point: hook}), model=model, response_format=dict[str, int])
    for _ in range(2):
        await MemoryRuntime(spoiling, "go").result()
    assert ["spoilt" in request.model_dump_json() for request in model.requests] == [True, False] * 2
    assert "spoilt" not in spoiling.request(RunState(agent="a")).model_dump_json()


async def test_the_state_is_one_dict_for_every_hook_and_step_and_no_model_sees_it() -> None:
    """AC-14, AC-15, AC-16."""
    seen: list[int] = []
    model = ScriptedModel([call("add", a=1, b=2), "done"])

    def note(request: ModelRequest, ctx: HookContext) -> None:
        seen.append(id(ctx.invocation_state))
        ctx.invocation_state["steps"] = ctx.step

    def note_tool(call: ToolCall, ctx: HookContext) -> None:
        seen.append(id(ctx.invocation_state))

    watcher = create_middleware("x", before_model=note, before_tool=note_tool)
    run = MemoryRuntime(agent([], watcher, model=model), "go", invocation_state={"tenant": "canary-7"})
    result = await run.result()
    assert len(set(seen)) == 1
    assert result.invocation_state == {"tenant": "canary-7", "steps": 2}
    assert not any("canary-7" in request.model_dump_json() for request in model.requests)


async def test_all_six_hooks_get_the_step_and_the_same_dict_also_after_a_restart() -> None:
    """AC-14, AC-15: one object within a run of the code; the same content after it, whichever process goes on."""
    seen: dict[str, list[tuple[int, int]]] = {}

    def noted(hook: str, ctx: HookContext) -> None:
        seen.setdefault(hook, []).append((ctx.step, id(ctx.invocation_state)))
        ctx.invocation_state.setdefault("hooks", []).append(hook)

    async def wrap(name: str, value: Any, call_next: Any, ctx: HookContext) -> Any:
        noted(name, ctx)
        return await call_next(value)

    hooks: dict[str, Any] = {
        name: (lambda value, ctx, name=name: noted(name, ctx))
        for name in ("before_model", "after_model", "before_tool", "after_tool")
    }
    hooks["wrap_model"] = lambda value, call_next, ctx: wrap("wrap_model", value, call_next, ctx)
    hooks["around_tool"] = lambda value, call_next, ctx: wrap("around_tool", value, call_next, ctx)
    stack = [create_middleware("all", **hooks), human_in_the_loop({"add": True})]
    run = MemoryRuntime(agent([call("add", a=1, b=2), "done"], *stack), "go")
    with pytest.raises(RunSuspended):
        await run.result()
    assert len({found for pairs in seen.values() for _, found in pairs}) == 1
    before = list(run.state.invocation_state["hooks"])
    run.restart()
    run.decide("add", "approve")
    result = await run.result()
    assert set(seen) == set(HOOKS)
    assert [step for step, _ in seen["before_model"]] == [1, 2]
    assert {step for name in ("before_tool", "around_tool", "after_tool") for step, _ in seen[name]} == {1}
    assert result.invocation_state["hooks"][: len(before)] == before


async def test_a_value_that_is_not_json_fails_at_the_write_and_names_the_key() -> None:
    """AC-15."""

    def write(request: ModelRequest, ctx: HookContext) -> None:
        ctx.invocation_state["when"] = {"a": {1, 2}}

    with pytest.raises(AgentRunPaused, match=r"invocation_state\['when'\]\['a'\].*set is not a JSON value"):
        await outcome(["done"], create_middleware("x", before_model=write))


async def test_contributed_tools_come_first_and_the_first_of_a_name_wins(caplog: pytest.LogCaptureFixture) -> None:
    """AC-21."""

    @tool(name="double")
    def mine(a: int) -> int:
        """Another."""
        return 3 * a

    made = agent([call("double", a=2), "done"], create_middleware("x", tools=[mine]))
    assert list(made.tools) == ["double", "add"]
    assert "double" in caplog.text
    run = MemoryRuntime(made, "go")
    assert (await run.result()).messages[2].tool_results[0].text == "6"


async def test_the_step_is_one_based_and_counts_turns_not_retries() -> None:
    """AC-23, AC-24, and the seed's own example."""
    steps: list[int] = []
    model = ScriptedModel([ValueError("once"), call("add", a=1, b=2), call("add", a=1, b=2), "done"])

    async def retry(request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        steps.append(ctx.step)
        try:
            return await call_next(request)
        except ValueError:
            return await call_next(request)

    def late_tools_off(request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        return request.replace(tools=()) if ctx.step > 2 else None

    stack = (create_middleware("retry", wrap_model=retry), create_middleware("late", before_model=late_tools_off))
    _, run = await outcome([], *stack, model=model)
    assert steps == [1, 2, 3]
    assert [len(request.tools) for request in model.requests] == [2, 2, 2, 0]
    assert run.commands[:2] == ["s0001.model", "s0001.model.2"]


@pytest.mark.parametrize("point", ["before_model", "wrap_model", "after_model", "before_tool", "after_tool"])
async def test_what_a_hook_wrote_before_it_failed_is_taken_back_since_it_runs_again(point: str) -> None:
    failing = [True]

    def count(value: Any, ctx: HookContext) -> None:
        ctx.invocation_state["count"] = ctx.invocation_state.get("count", 0) + 1
        ctx.invocation_state.setdefault("list", []).append(ctx.step)
        if failing:
            failing.clear()
            raise RuntimeError("once")

    async def wrap(value: Any, call_next: Any, ctx: HookContext) -> Any:
        count(value, ctx)
        return await call_next(value)

    hook: Any = wrap if point == "wrap_model" else count
    run = MemoryRuntime(agent([call("add", a=1, b=2), "done"], create_middleware("x", **{point: hook})), "go")
    with pytest.raises(AgentRunPaused, match="RuntimeError: once"):
        await run.result()
    assert run.state.invocation_state == {}
    run.restart()
    run.resume()
    result = await run.result()
    assert result.invocation_state["count"] == len(result.invocation_state["list"]) == (1 if "tool" in point else 2)


async def test_a_frozen_error_is_told_as_it_is() -> None:
    """Frozen errors refuse what contextlib does to an exception on its way out."""

    @dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    def fail(request: ModelRequest, ctx: HookContext) -> None:
        raise Frozen(7)

    with pytest.raises(AgentRunPaused, match=r"before_model of 'x'.*Frozen"):
        await outcome(["done"], create_middleware("x", before_model=fail))


async def test_a_hook_that_returns_the_wrong_thing_is_named() -> None:
    wrong = create_middleware("oops", before_model=lambda request, ctx: "text")  # type: ignore[arg-type, return-value]
    with pytest.raises(AgentRunPaused, match=r"before_model of 'oops'.*must return ModelRequest or None, not str"):
        await outcome(["done"], wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agent([], object()), "has no `name`"),
        (lambda: agent([], Tracer), "not the class Tracer"),
        (lambda: agent([], Tracer("A", []), Tracer("A", [])), "two middlewares named 'A'"),
        (lambda: create_middleware("x", before_tool=lambda call: None), r"must take before_tool\(call, ctx\)"),  # type: ignore[arg-type, misc]
        (lambda: create_middleware("x"), "none of the hooks"),
        (lambda: create_middleware("", tools=[add]), "1 to 100 characters"),
        (lambda: agent([], tools=[add, add]), "two tools named 'add'"),
        (lambda: agent([], tools=["add"]), "a tool must be a function"),
        (lambda: Agent(AgentOptions(name="", model="openai:x")), "1 to 100 printable"),
        (lambda: Agent(AgentOptions(name="a", model=3)), "model must be a text"),  # type: ignore[arg-type]
        (lambda: agent([], max_steps=0), "max_steps must be more than 0"),
        (lambda: agent([], on_error="explode"), "'pause' or 'fail'"),
        (lambda: Agent({"name": "a"}), "Agent takes AgentOptions"),  # type: ignore[arg-type]
    ],
)
def test_bad_definitions_are_refused_with_a_sentence(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()

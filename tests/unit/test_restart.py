"""A run may be cut at any point: only its state survives, the outcome is the same, and no body runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import (
    Agent,
    AgentError,
    AgentOptions,
    AgentRunFailed,
    AgentRunPaused,
    HitlInterrupt,
    HookContext,
    create_middleware,
    side_effect,
    tool,
)
from outlast.errors import AuthenticationFailed, ToolError
from outlast.messages import sequence_fault
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, ModelRequest
from outlast.runtime import EffectCall, ModelCall, ToolExecution
from outlast.state import RunResult
from outlast.testing import MemoryRuntime, RunSuspended, ScriptedModel, call, calls
from outlast.tools import ToolCall, ToolResult


class Fragile:
    """Fails each hook as often as it is told to, and counts in the run's state."""

    name = "fragile"

    def __init__(self, plan: dict[str, int]) -> None:
        self._left = dict(plan)

    def _maybe(self, where: str) -> None:
        if self._left.get(where, 0) > 0:
            self._left[where] -= 1
            raise RuntimeError(f"not yet at {where}")

    def before_model(self, request: ModelRequest, ctx: HookContext) -> None:
        ctx.invocation_state["turns"] = ctx.invocation_state.get("turns", 0) + 1
        self._maybe("before_model")

    async def wrap_model(self, request: ModelRequest, call_next: Any, ctx: HookContext) -> Completion:
        self._maybe("wrap_model")
        completion: Completion = await call_next(request)
        return completion

    def after_model(self, completion: Completion, ctx: HookContext) -> None:
        self._maybe("after_model")

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        self._maybe("before_tool")

    async def around_tool(self, call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        self._maybe("enter_tool")
        result: ToolResult = await call_next(call)
        self._maybe("leave_tool")
        return result

    def after_tool(self, result: ToolResult, ctx: HookContext) -> None:
        self._maybe("after_tool")


HOOKS = ["before_model", "wrap_model", "after_model", "before_tool", "enter_tool", "leave_tool", "after_tool"]


async def to_the_end(run: MemoryRuntime, restart: bool) -> RunResult:
    """Resume and approve until the run ends; between any two tries only its state may survive."""
    for _ in range(60):
        try:
            return await run.result()
        except AgentRunPaused as paused:
            if "fragile" not in paused.where:
                raise
            run.resume()
        except RunSuspended as waiting:
            for item in waiting.pending:
                run.decide(item.tool_call_id, "approve")
        if restart:
            run.restart()
    raise AssertionError("the run does not end")


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(HOOKS), st.integers(1, 3), max_size=4), st.booleans())
def test_a_run_that_parks_anywhere_ends_as_one_that_never_parked(plan: dict[str, int], restart: bool) -> None:
    bodies: list[str] = []

    @tool
    async def act(x: str) -> str:
        """Act."""
        bodies.append(x)
        return f"did {x}"

    model = ScriptedModel([calls(call("act", x="a"), call("act", x="b")), call("act", x="c"), "done"] * 3)
    gate = human_in_the_loop({"act": True})
    options = AgentOptions(name="a", model=model, tools=[act], middleware=[Fragile(plan), gate])
    run = MemoryRuntime(Agent(options), "go")
    result = asyncio.run(to_the_end(run, restart))
    assert sorted(bodies) == ["a", "b", "c"]
    assert [r.text for m in result.messages for r in m.tool_results] == ["did a", "did b", "did c"]
    assert result.invocation_state["turns"] == 3
    assert result.steps == 3
    assert sequence_fault(result.messages) is None


class Crash(BaseException):
    """The process is gone."""


class Crashing(MemoryRuntime):
    """Dies when it is about to ask the world for the n-th time; what it was told before is in the state."""

    dies_at = 0

    @property
    def control_errors(self) -> tuple[type[BaseException], ...]:
        return (*super().control_errors, Crash)

    def _count(self) -> None:
        self.dies_at -= 1
        if self.dies_at == 0:
            raise Crash

    async def call_model(self, call: ModelCall) -> Completion:
        self._count()
        return await super().call_model(call)

    async def call_tool(self, execution: ToolExecution) -> ToolResult:
        self._count()
        return await super().call_tool(execution)

    async def run_effect(self, call: EffectCall) -> Any:
        self._count()
        return await super().run_effect(call)

    async def sleep(self, seconds: float, command_id: str) -> None:
        self._count()
        await super().sleep(seconds, command_id)


@side_effect
async def note(line: str) -> str:
    """Write a line."""
    return line


async def _through_crashes(run: MemoryRuntime) -> RunResult:
    died = 0
    while died < 2:
        try:
            return await run.result()
        except Crash:
            died += 1
        except RunSuspended:
            run.restart()
            run.decide("careful", "approve")
        run.restart()
    raise AssertionError("it dies more than once")


def branching(request: ModelRequest) -> Any:
    """Three calls at once, one that asks, the end: by what the conversation holds, not by how often it was asked."""
    turns = sum(message.role == "assistant" for message in request.messages)
    return [calls(*(call("act", x=x) for x in "abc")), call("careful", x="d"), "done"][turns]


@pytest.mark.parametrize("dies_at", range(1, 17))
async def test_a_run_that_dies_between_any_two_results_ends_as_one_that_never_died(dies_at: int) -> None:
    bodies: list[str] = []

    @tool
    async def act(x: str) -> str:
        """Act."""
        bodies.append(x)
        return f"did {x}"

    @tool
    async def careful(x: str) -> str:
        """Act after a question."""
        bodies.append(x)
        return f"did {x}"

    async def gate(call: ToolCall, ctx: HookContext) -> None:
        await note(call.args["x"])
        await ctx.sleep(1)

    async def around(call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        result: ToolResult = await call_next(call)
        await note("after")
        return result

    noting = create_middleware("noting", before_tool=gate, around_tool=around)
    options = AgentOptions(
        name="a", model=ScriptedModel([branching] * 99), tools=[act, careful],
        middleware=[noting, human_in_the_loop({"careful": True})],
    )  # fmt: skip
    run = Crashing(Agent(options), "go")
    run.dies_at = dies_at
    result = await _through_crashes(run)
    assert run.dies_at < 0
    assert sorted(bodies) == ["a", "b", "c", "d"]
    assert [r.text for m in result.messages for r in m.tool_results] == ["did a", "did b", "did c", "did d"]
    assert (result.steps, result.output) == (3, "done")
    assert sequence_fault(result.messages) is None


async def test_an_expired_key_costs_a_resume_that_repeats_the_failed_call_alone() -> None:
    """D45."""
    bodies: list[str] = []

    @tool
    def act(x: str) -> str:
        """Act."""
        bodies.append(x)
        return x

    model = ScriptedModel([call("act", x="a"), AuthenticationFailed("key expired", provider="acme"), "done"])
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, tools=[act])), "go")
    with pytest.raises(AgentRunPaused) as caught:
        await run.result()
    assert caught.value.where == "model call of step 2"
    run.restart()
    run.resume()
    assert (await run.result()).output == "done"
    assert bodies == ["a"]
    assert len(model.requests) == 3


async def test_with_on_error_fail_the_run_ends_and_brings_what_it_had() -> None:
    model = ScriptedModel([AuthenticationFailed("key expired")])
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, on_error="fail")), "go")
    with pytest.raises(AgentRunFailed, match=r"MODEL_ERROR.*key expired") as caught:
        await run.result()
    assert caught.value.result is not None
    assert caught.value.result.messages[0].text == "go"


async def test_cancelling_answers_the_open_calls() -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        started.set()
        await asyncio.sleep(60)
        return "never"

    model = ScriptedModel([calls(call("slow"), call("slow"))])
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, tools=[slow])), "go")
    waiting = asyncio.create_task(run.result())
    await started.wait()
    await run.cancel()
    with pytest.raises(AgentRunFailed, match="CANCELLED"):
        await waiting
    assert sequence_fault(run.state.transcript) is None
    assert [m.tool_results[0].status for m in run.state.transcript[2:]] == ["cancelled", "cancelled"]
    assert all("may have taken effect" in m.tool_results[0].text for m in run.state.transcript[2:])


async def test_a_body_that_ran_is_never_called_not_run() -> None:
    """The hook around it fails, and the run is ended there: the result is the body's own."""

    @tool
    def act(x: str) -> str:
        """Act."""
        return f"did {x}"

    async def fail(call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        await call_next(call)
        raise AgentError("ENOUGH", "stop here")

    model = ScriptedModel([call("act", x="a")])
    hook = create_middleware("x", around_tool=fail)
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, tools=[act], middleware=[hook])), "go")
    with pytest.raises(AgentRunFailed, match="ENOUGH") as caught:
        await run.result()
    assert caught.value.result is not None
    assert caught.value.result.messages[2].tool_results[0].text == "did a"


@pytest.mark.parametrize("swallow", ["model", "tool"])
async def test_a_cancelled_run_starts_nothing_more_though_a_hook_swallows_the_cancellation(swallow: str) -> None:
    started = asyncio.Event()
    bodies: list[str] = []

    @tool
    async def act(x: str) -> str:
        """Act."""
        bodies.append(x)
        started.set()
        await asyncio.sleep(60 if swallow == "tool" else 0)
        return x

    async def model(request: ModelRequest) -> Completion:
        started.set()
        await asyncio.sleep(60)
        raise AssertionError

    class Slow:
        name = "slow"

        async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
            return await model(request)

    async def deaf_model(request: ModelRequest, call_next: Any, ctx: HookContext) -> Completion:
        try:
            found: Completion = await call_next(request)
        except BaseException:
            return call("act", x="after")
        return found

    async def deaf_tool(call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        try:
            found: ToolResult = await call_next(call)
        except BaseException:
            return ToolResult(call_id=call.id, name=call.name, content="swallowed")
        return found

    chosen: Any = Slow() if swallow == "model" else ScriptedModel([call("act", x="a"), call("act", x="b"), "done"])
    deaf = create_middleware("deaf", wrap_model=deaf_model, around_tool=deaf_tool)
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=chosen, tools=[act], middleware=[deaf])), "go")
    waiting = asyncio.create_task(run.result())
    await started.wait()
    await run.cancel()
    with pytest.raises(AgentRunFailed, match="CANCELLED"):
        await waiting
    assert bodies == ([] if swallow == "model" else ["a"])
    assert sequence_fault(run.state.transcript) is None


async def test_an_unknown_outcome_is_not_run_again_by_a_hook_unless_a_person_says_so() -> None:
    bodies: list[str] = []

    @tool(idempotent=False)
    async def pay() -> str:
        """Pay."""
        bodies.append("paid")
        if len(bodies) == 1:
            raise ToolError("it may or may not have happened", tool="pay", outcome_unknown=True)
        return "paid"

    asks: list[bool] = []

    async def stubborn(call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        for _ in range(3):
            try:
                found: ToolResult = await call_next(call)
            except ToolError:
                continue
            return found
        if asks and ctx.decision(call) is None:
            raise HitlInterrupt(call.name, call.args)
        raise RuntimeError("it stays unknown")

    model = ScriptedModel([call("pay"), "done"])
    hook = create_middleware("stubborn", around_tool=stubborn)
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, tools=[pay], middleware=[hook])), "go")
    with pytest.raises(AgentRunPaused, match="it stays unknown"):
        await run.result()
    asks.append(True)
    run.restart()
    run.resume()
    with pytest.raises(RunSuspended):
        await run.result()
    assert bodies == ["paid"]
    run.decide("pay", "approve")
    assert (await run.result()).output == "done"
    assert bodies == ["paid", "paid"]


async def test_a_run_without_end_is_ended_by_its_step_bound() -> None:
    @tool
    def act(x: str) -> str:
        """Act."""
        return x

    options = AgentOptions(name="a", model=ScriptedModel([call("act", x="a")] * 9), tools=[act], max_steps=3)
    with pytest.raises(AgentRunFailed, match=r"MAX_STEPS.*used its 3 steps"):
        await MemoryRuntime(Agent(options), "go").result()


async def test_a_message_that_arrives_before_the_end_is_answered_before_the_end() -> None:
    steer = create_middleware("steer", after_model=lambda completion, ctx: run.send("wait") if ctx.step == 1 else None)
    model = ScriptedModel(["first answer", "second answer"])
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, middleware=[steer])), "go")
    result = await run.result()
    assert [message.text for message in result.messages] == ["go", "first answer", "wait", "second answer"]


async def test_a_final_answer_that_does_not_fit_the_format_is_asked_for_again_and_then_refused() -> None:
    schema = {"type": "object"}
    model = ScriptedModel(["not json", '{"a": 1}'])
    options = AgentOptions(name="a", model=model, response_format=dict[str, int])
    assert (await MemoryRuntime(Agent(options), "go").result()).output == {"a": 1}
    assert "does not fit" in model.requests[1].messages[-1].text
    unwritable = AgentOptions(
        name="a", model=ScriptedModel(['["\\ud800"]', "[NaN]", '{"ok": true}']), response_format=schema
    )
    assert (await MemoryRuntime(Agent(unwritable), "go").result()).output == {"ok": True}
    hopeless = AgentOptions(name="a", model=ScriptedModel(["no"] * 3), response_format=schema)
    with pytest.raises(AgentRunFailed, match="OUTPUT_INVALID"):
        await MemoryRuntime(Agent(hopeless), "go").result()


async def test_a_providers_paused_turn_goes_back_as_it_is_in_the_same_step() -> None:
    paused = ScriptedModel(
        [Completion(message=(await ScriptedModel(["part"]).complete(_any())).message, finish="pause"), "done"]
    )
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=paused)), "go")
    result = await run.result()
    assert (result.output, result.steps) == ("done", 1)
    assert paused.requests[1].messages[-1].text == "part"


def _any() -> ModelRequest:
    return ModelRequest(messages=())

"""Cancel and abort at every await: open calls answered, a sound transcript, nothing begun afterwards (T15)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from outlast import Agent, AgentOptions, AgentRunFailed, HookContext, ToolContext, create_middleware, side_effect, tool
from outlast.errors import AuthenticationFailed
from outlast.messages import sequence_fault
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, ModelRequest
from outlast.run import Run
from outlast.state import RunResult
from outlast.testing import LocalEnv, ScriptedModel, call, calls, local_env
from outlast.testing.scripted import Reply
from outlast.tools import ToolCall, ToolResult

pytestmark = pytest.mark.usefixtures("replay_every_run")


@dataclass
class Place:
    """Where a run is when it is stopped: something there says that it has come, and waits until it is let go."""

    came: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    async def stay(self) -> None:
        self.came.set()
        while not self.left.is_set():
            await asyncio.sleep(0.01)

    async def reached(self) -> None:
        while not self.came.is_set():
            await asyncio.sleep(0.01)


PLACES: dict[str, Place] = {}


@side_effect
async def stay(place: str) -> None:
    """Wait in a side effect."""
    await PLACES[place].stay()


@side_effect
def note(place: str, line: str) -> None:
    """A clean-up."""
    NOTES.append((place, line))


NOTES: list[tuple[str, str]] = []


class SlowModel:
    """Answers after it was let go."""

    name = "slow"

    def __init__(self, place: Place) -> None:
        self._place = place

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
        await self._place.stay()
        return call("quick", x="late")


@tool
async def quick(x: str) -> str:
    """Quick."""
    return f"quick {x}"


def tools_at(place: Place) -> list[Any]:
    @tool
    async def slow() -> str:
        """Slow."""
        await place.stay()
        return "slow"

    @tool
    def threaded(context: ToolContext) -> str:
        """Slow in a thread; looks now and then whether it should stop."""
        place.came.set()
        while not place.left.wait(0.02):
            if context.cancelled:
                return "stopped early"
        return "threaded"

    @tool(local=True)
    async def near() -> str:
        """A slow local tool."""
        await place.stay()
        return "near"

    return [quick, slow, threaded, near]


def agent_at(name: str, place: Place) -> Agent:
    """An agent whose run comes to the place of this name and stays there."""
    scripts: dict[str, list[Reply]] = {
        "tool": [calls(call("slow"), call("quick", x="a"))],
        "thread": [calls(call("threaded"), call("quick", x="a"))],
        "local tool": [calls(call("near"), call("quick", x="a"))],
        "question": [calls(call("quick", x="gated"), call("slow"))],
        "pause": [AuthenticationFailed("expired")],
    }
    replies = scripts.get(name, [calls(call("quick", x="a"), call("quick", x="b"))])

    async def effect(value: Any, ctx: HookContext) -> None:
        await stay(name)

    async def around(value: Any, call_next: Any, ctx: HookContext) -> Any:
        result = await call_next(value)
        await stay(name)
        return result

    async def asleep(value: Any, ctx: HookContext) -> None:
        place.came.set()
        await ctx.sleep(3600)

    stack: dict[str, object] = {
        "before_model": create_middleware("x", before_model=effect),
        "wrap_model": create_middleware("x", wrap_model=around),
        "after_model": create_middleware("x", after_model=effect),
        "before_tool": create_middleware("x", before_tool=effect),
        "around_tool": create_middleware("x", around_tool=around),
        "after_tool": create_middleware("x", after_tool=effect),
        "sleep": create_middleware("x", before_tool=asleep),
        "question": human_in_the_loop({"quick": True}),
    }
    model = SlowModel(place) if name == "model" else ScriptedModel([*replies, *replies])
    middleware = [stack[name]] if name in stack else []
    return Agent(AgentOptions(name=name, model=model, tools=tools_at(place), middleware=middleware))


WHERE = ["model", "tool", "thread", "local tool", "before_model", "wrap_model", "after_model", "before_tool"]
WHERE += ["around_tool", "after_tool", "sleep", "question", "pause"]


async def arrive(name: str, place: Place, run: Run) -> None:
    if name in ("question", "pause"):
        wanted = "suspended" if name == "question" else "paused"
        while (await run.info()).status != wanted:
            await asyncio.sleep(0.02)
    else:
        await place.reached()


async def stopped(how: str, run: Run, place: Place) -> RunResult:
    """Stop the run where it is, and what it said."""
    await (run.cancel() if how == "cancel" else run.abort("enough"))
    try:
        with pytest.raises(AgentRunFailed) as caught:
            await asyncio.wait_for(run.result(), 30)
    finally:
        place.left.set()
    assert str(caught.value).startswith("CANCELLED" if how == "cancel" else "ABORTED: enough"), caught.value
    assert caught.value.result is not None
    return caught.value.result


@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_a_run_is_stopped_at_every_await_with_its_open_calls_answered(how: str) -> None:
    places = {name: Place() for name in WHERE}
    PLACES.update(places)
    async with local_env([agent_at(name, place) for name, place in places.items()]) as env:
        runs = {name: await env.client.start(name, "go") for name in WHERE}
        await asyncio.gather(*(arrive(name, places[name], run) for name, run in runs.items()))
        results = await asyncio.gather(*(stopped(how, run, places[name]) for name, run in runs.items()))
        for (name, run), result in zip(runs.items(), results, strict=True):
            assert sequence_fault(result.messages) is None, name
            assert len({m.id for m in result.messages}) == len(result.messages), name
            info = await run.info()
            assert (info.status, info.error[:9]) == (
                ("cancelled", "CANCELLED") if how == "cancel" else ("failed", "ABORTED: ")
            ), name
            assert info.pending_count == 0
            assert await run.messages() == list(result.messages), name
        await check_texts(dict(zip(WHERE, results, strict=True)))
        await check_histories(env, runs)


async def check_texts(results: dict[str, RunResult]) -> None:
    """What ran keeps its result; what was begun is said to be; what was not is said not to be."""
    texts = {name: [r.text for m in result.messages for r in m.tool_results] for name, result in results.items()}
    assert texts["model"] == texts["pause"] == texts["before_model"] == texts["wrap_model"] == []
    for name in ("tool", "local tool"):
        assert "may have taken effect" in texts[name][0], name
        assert texts[name][1] == "quick a"
    assert texts["thread"][0] == "stopped early" or "may have taken effect" in texts["thread"][0]
    assert texts["around_tool"] == ["quick a", "quick b"]
    assert texts["after_tool"] == ["quick a", "quick b"]
    assert all("was not run" in text for text in (*texts["before_tool"], *texts["question"], *texts["sleep"]))


async def check_histories(env: LocalEnv, runs: dict[str, Run]) -> None:
    """No workflow task failed, and nothing was scheduled after the cancellation."""
    for name, run in runs.items():
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        kinds = [event.event_type for event in history.events]
        assert EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED not in kinds, name
        if EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED in kinds:
            rest = kinds[kinds.index(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED) :]
            assert EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED not in rest, name


def swallowing(point: str, then: Callable[[], Awaitable[None]]) -> object:
    """A hook that takes a cancellation for a failure, and goes on."""

    async def wrap_model(request: ModelRequest, call_next: Any, ctx: HookContext) -> Completion:
        try:
            found: Completion = await call_next(request)
        except BaseException:
            await then()
            return call("quick", x="after the end")
        return found

    async def around_tool(call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        try:
            found: ToolResult = await call_next(call)
        except BaseException:
            await then()
            found = await call_next(call)
        return found

    chosen: Any = wrap_model if point == "model" else around_tool
    return create_middleware("deaf", **{"wrap_model" if point == "model" else "around_tool": chosen})


@pytest.mark.parametrize("point", ["model", "tool"])
async def test_a_hook_that_swallows_the_cancellation_may_clean_up_and_no_more(point: str) -> None:
    place = Place()

    async def clean_up() -> None:
        await note(point, "cleaned up")

    model: Any = SlowModel(place) if point == "model" else ScriptedModel([call("slow"), "done"])
    options = AgentOptions(name="a", model=model, tools=tools_at(place), middleware=[swallowing(point, clean_up)])
    async with local_env([Agent(options)]) as env:
        run = await env.client.start("a", "go")
        await place.reached()
        result = await stopped("cancel", run, place)
        assert (point, "cleaned up") in NOTES
        assert sequence_fault(result.messages) is None
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        ids = [
            event.activity_task_scheduled_event_attributes.activity_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        assert len([item for item in ids if not item.endswith(".note")]) == (1 if point == "model" else 2)


async def test_a_hook_that_fails_while_it_is_cancelled_does_not_park_the_run() -> None:
    place = Place()

    async def wrap(request: ModelRequest, call_next: Any, ctx: HookContext) -> Completion:
        try:
            found: Completion = await call_next(request)
        except BaseException:
            raise RuntimeError("while leaving") from None
        return found

    hook = create_middleware("x", wrap_model=wrap)
    agent = Agent(AgentOptions(name="a", model=SlowModel(place), tools=[quick], middleware=[hook]))
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        await place.reached()
        await stopped("cancel", run, place)
        assert (await run.info()).status == "cancelled"


async def test_an_unknown_agents_run_can_be_ended_both_ways() -> None:
    async with local_env([Agent(AgentOptions(name="a", model=ScriptedModel([])))]) as env:
        for how in ("cancel", "abort"):
            run = await env.client.start("nobody", "go")
            while (await run.info()).status != "paused":
                await asyncio.sleep(0.02)
            await stopped(how, run, Place())
            assert (await run.info()).status == ("cancelled" if how == "cancel" else "failed")


async def test_an_answer_that_is_ready_when_the_cancellation_comes_is_an_answer_or_a_cancellation() -> None:
    """Never both, never stuck; whichever came first."""
    async with local_env([Agent(AgentOptions(name="a", model=ScriptedModel(["done"] * 20)))]) as env:
        for _ in range(20):
            run = await env.client.start("a", "go")
            await run.cancel()
            [outcome] = await asyncio.gather(run.result(), return_exceptions=True)
            ended = getattr(outcome, "code", "") == "CANCELLED" or getattr(outcome, "output", "") == "done"
            assert ended, outcome

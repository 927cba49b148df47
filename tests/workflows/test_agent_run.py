"""The run on a real server: what it loses over continue-as-new (nothing), how it is stopped, steered and watched."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType

from outlast import (
    Agent,
    AgentOptions,
    AgentRunFailed,
    AgentRunPaused,
    HitlInterrupt,
    HookContext,
    ToolContext,
    create_middleware,
    side_effect,
    tool,
)
from outlast.errors import AuthenticationFailed, NoAnswer, OutlastError, RunExists, RunNotFound, ServerFault
from outlast.events import Event
from outlast.messages import sequence_fault, user
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, Delta, ModelRequest
from outlast.run import Run
from outlast.testing import ScriptedModel, call, calls, local_env, text
from outlast.testing.scripted import Reply
from outlast.watch import TextDelta

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def adding(steps: int) -> list[Reply]:
    return [call("add", a=n, b=1) for n in range(steps)]


def made(name: str, replies: list[Reply], *middleware: object, **options: Any) -> Agent:
    tools = options.pop("tools", [add, publish])
    model = options.pop("model", None) or ScriptedModel(replies)
    return Agent(AgentOptions(name=name, model=model, tools=tools, middleware=list(middleware), **options))


async def pending(run: Run, count: int = 1) -> None:
    while len(await run.pending()) < count:
        assert not (info := await run.info()).error, info
        await asyncio.sleep(0.02)


async def test_nothing_is_lost_over_many_continue_as_news() -> None:
    """Counters, state, usage, events, standing decisions, steering, pending interrupts: as without any."""

    def count(call: Any, ctx: HookContext) -> None:
        ctx.invocation_state["calls"] = ctx.invocation_state.get("calls", 0) + 1

    script = [*adding(15), call("publish", title="x"), *adding(10), "done"]
    agent = made("long", script, create_middleware("counter", before_tool=count), human_in_the_loop({"publish": True}))
    async with local_env([agent], continue_as_new_events=25) as env:
        run = await env.client.start("long", "go", invocation_state={"tenant": "acme"})
        sent = [run.send(f"note {n}") for n in range(40)]
        await asyncio.gather(*sent)
        await pending(run)
        await run.decide("publish", "approve", by="alice")
        result = await run.result()
        executions = [found async for found in env.temporal.list_workflows(f"WorkflowId = '{run.id}'")]
        assert len(executions) > 3
        assert (result.output, result.steps) == ("done", 27)
        assert result.invocation_state == {"tenant": "acme", "calls": 26}
        assert result.usage.model_calls == 27
        notes = [m.text for m in result.messages if m.role == "user"]
        assert sorted(notes) == sorted(["go", *(f"note {n}" for n in range(40))])
        assert sequence_fault(result.messages) is None
        assert [record.decision.by for record in result.audit] == ["alice"]
        seqs = [event.seq async for event in run.events() if isinstance(event, Event)]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert await run.messages() == list(result.messages)


async def test_a_waiting_run_continues_as_new_and_keeps_its_question() -> None:
    agent = made("waits", [call("publish", title="x"), "done", "done"], human_in_the_loop({"publish": True}))
    async with local_env([agent], continue_as_new_events=30) as env:
        run = await env.client.start("waits", "go")
        await pending(run)
        handle = env.temporal.get_workflow_handle(run.id)
        for _ in range(40):
            await handle.signal("decide", {"interrupt": "nobody", "decision": "approve"})
        await pending(run)
        executions = [found async for found in env.temporal.list_workflows(f"WorkflowId = '{run.id}'")]
        assert len(executions) > 1
        await run.decide("publish", "approve")
        assert (await run.result()).output == "done"


async def test_cancelling_tells_the_tool_answers_open_calls_and_leaves_a_sound_transcript() -> None:
    told = threading.Event()
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        started.set()
        try:
            await asyncio.sleep(120)
        finally:
            told.set()
        return "never"

    agent = made("slow", [calls(call("slow"), call("add", a=1, b=2))], tools=[slow, add])
    async with local_env([agent]) as env:
        run = await env.client.start("slow", "go")
        await started.wait()
        await run.cancel()
        with pytest.raises(AgentRunFailed, match="CANCELLED") as caught:
            await run.result()
        assert told.is_set()
        assert caught.value.result is not None
        assert sequence_fault(caught.value.result.messages) is None
        assert (await run.info()).status == "cancelled"


@pytest.mark.parametrize("how", ["cancel", "abort"])
@pytest.mark.parametrize("where", ["waiting", "paused"])
async def test_a_waiting_or_paused_run_can_be_ended(how: str, where: str) -> None:
    replies: list[Reply] = [call("publish", title="x")] if where == "waiting" else [AuthenticationFailed("expired")]
    agent = made("end", replies, human_in_the_loop({"publish": True}))
    async with local_env([agent]) as env:
        run = await env.client.start("end", "go")
        if where == "waiting":
            await pending(run)
        else:
            with pytest.raises(AgentRunPaused, match="expired"):
                await run.result()
        await (run.cancel() if how == "cancel" else run.abort("enough"))
        with pytest.raises(AgentRunFailed, match="CANCELLED" if how == "cancel" else "ABORTED: enough"):
            await run.result()


async def test_a_parked_run_says_where_and_a_resume_repeats_only_the_failed_call() -> None:
    model = ScriptedModel([call("add", a=1, b=2), AuthenticationFailed("key expired", provider="acme"), "done"])
    async with local_env([made("keys", [], model=model)]) as env:
        run = await env.client.start("keys", "go")
        with pytest.raises(AgentRunPaused) as caught:
            await run.result()
        assert caught.value.where == "model call of step 2"
        assert (await run.info()).status == "paused"
        assert [info.id for info in await env.client.runs() if info.status == "paused" and info.id == run.id]
        await run.resume(by="alice")
        assert (await run.result()).output == "done"
        assert len(model.requests) == 3


async def test_a_paused_run_ends_by_itself_where_a_time_is_set() -> None:
    agent = made("brief", [AuthenticationFailed("expired")], pause_timeout_seconds=3600.0)
    async with local_env([agent], time_skipping=True) as env:
        run = await env.client.start("brief", "go")
        error: Exception = AgentRunPaused(run.id, "", "")
        while isinstance(error, AgentRunPaused):
            with pytest.raises((AgentRunPaused, AgentRunFailed)) as caught:
                await run.result()
            error = caught.value
        assert "PAUSE_TIMEOUT: nobody resumed the run within 3600 seconds" in str(error)


async def test_a_tool_that_may_run_once_is_not_repeated_and_its_outcome_is_called_unknown() -> None:
    ran: list[int] = []

    @tool(idempotent=False, timeout_seconds=0.5)
    async def pay(euros: int) -> str:
        """Pay."""
        ran.append(euros)
        await asyncio.sleep(30)
        return "paid"

    async with local_env([made("pays", [call("pay", euros=5), "done"], tools=[pay])]) as env:
        result = await (await env.client.start("pays", "go")).result()
        [found] = result.messages[2].tool_results
        assert (found.status, found.is_error) == ("unknown", True)
        assert "may or may not have happened" in found.text
        assert ran == [5]


async def test_a_tool_sees_one_key_on_every_attempt() -> None:
    seen: list[tuple[str, int]] = []

    @tool(timeout_seconds=1.0, max_attempts=3)
    async def flaky(x: str, context: ToolContext) -> str:
        """Flaky."""
        seen.append((context.idempotency_key, context.attempt))
        if len(seen) < 2:
            await asyncio.sleep(30)
        return "ok"

    async with local_env([made("flaky", [call("flaky", x="a"), "done"], tools=[flaky])]) as env:
        run = await env.client.start("flaky", "go")
        assert (await run.result()).messages[2].tool_results[0].text == "ok"
        assert seen == [(f"{run.id}/s0001.tool.1", 1), (f"{run.id}/s0001.tool.1", 2)]


EFFECTS: list[str] = []


@side_effect
def note(line: str) -> int:
    """Writes a line down."""
    EFFECTS.append(line)
    return len(EFFECTS)


@side_effect
async def fails() -> None:
    """Fails."""
    raise ConnectionError("down")


async def test_a_side_effect_runs_as_an_activity_with_an_id_that_tells_where() -> None:
    EFFECTS.clear()

    async def before(request: ModelRequest, ctx: HookContext) -> None:
        assert await note("model") == 1

    async def around(call: Any, call_next: Any, ctx: HookContext) -> Any:
        await note(f"tool {call.args['a']}")
        return await call_next(call)

    agent = made("effects", [*adding(1), "done"], create_middleware("fx", around_tool=around))
    once = made("once", ["done"], create_middleware("fx", before_model=before))
    async with local_env([agent, once]) as env:
        assert (await (await env.client.start("once", "go")).result()).output == "done"
        run = await env.client.start("effects", "go")
        await run.result()
        assert EFFECTS == ["model", "tool 0"]
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        ids = [
            event.activity_task_scheduled_event_attributes.activity_id
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        assert ids == ["s0001.model", "s0001.tool.1.around_tool.fx.note", "s0001.tool.1", "s0002.model"]


async def test_a_side_effect_that_fails_parks_the_run_and_names_the_hook() -> None:
    async def before(request: ModelRequest, ctx: HookContext) -> None:
        await fails()

    async with local_env([made("fx", ["done"], create_middleware("notifier", before_model=before))]) as env:
        with pytest.raises(AgentRunPaused, match="ConnectionError: down"):
            await (await env.client.start("fx", "go")).result()


async def test_a_local_tool_is_no_scheduled_activity() -> None:
    @tool(local=True)
    def half(n: int) -> float:
        """Half."""
        return n / 2

    async with local_env([made("local", [call("half", n=3), "done"], tools=[half])]) as env:
        run = await env.client.start("local", "go")
        assert (await run.result()).messages[2].tool_results[0].text == "1.5"
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        scheduled = [e for e in history.events if e.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
        assert len(scheduled) == 2


async def test_a_tools_own_interrupt_suspends_and_the_decision_reaches_its_body() -> None:
    @tool
    def risky(n: int, context: ToolContext) -> str:
        """Risky."""
        if context.decision is None:
            raise HitlInterrupt("risky", {"n": n}, allowed_decisions=["approve", "reject"], description="sure?")
        return f"did {n} ({context.decision})"

    async with local_env([made("risk", [call("risky", n=3), "done"], tools=[risky])]) as env:
        run = await env.client.start("risk", "go")
        await pending(run)
        [asked] = await run.pending()
        assert (asked.description, asked.allowed_decisions) == ("sure?", ("approve", "reject"))
        await run.decide("risky", "approve")
        assert (await run.result()).messages[2].tool_results[0].text == "did 3 (approve)"


class Weather(BaseModel):
    city: str
    degrees: int


async def test_structured_output_comes_back_parsed() -> None:
    agent = made(
        "weather", ['{"city": "Bonn", "degrees": "warm"}', '{"city": "Bonn", "degrees": 21}'], response_format=Weather
    )
    async with local_env([agent]) as env:
        result = await (await env.client.start("weather", "go")).result()
        assert result.output == {"city": "Bonn", "degrees": 21}


class SlowWriter:
    """Writes a text word by word."""

    name = "slow-writer"

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
        words = [f"word{n} " for n in range(12)]
        for word in words:
            if on_delta is not None:
                on_delta(Delta(text=word))
            await asyncio.sleep(0.1)
        return text("".join(words))


async def test_tokens_are_watched_live_and_leave_no_trace_in_the_history() -> None:
    async with local_env([made("writer", [], model=SlowWriter())]) as env:
        run = await env.client.start("writer", "go")
        seen: list[str] = []
        first_delta = 0.0
        async for event in run.events():
            if isinstance(event, TextDelta):
                first_delta = first_delta or time.monotonic()
                seen.append(event.text)
        assert time.monotonic() - first_delta > 0.3
        assert len(seen) > 3
        whole = (await run.result()).output
        assert whole.startswith("".join(seen))
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        assert len(history.events) < 16


class BrokenOnce(SlowWriter):
    """Breaks off in the middle the first time, and says something else the second time."""

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
        self.calls += 1
        if self.calls > 1:
            return await super().complete(request, on_delta)
        for word in ("This ", "was ", "never ", "finished, ", "and ", "is ", "long ", "enough ") * 2:
            if on_delta is not None:
                on_delta(Delta(text=word))
            await asyncio.sleep(0.1)
        raise ServerFault("the stream broke off")


async def test_what_was_shown_of_an_answer_that_broke_off_is_taken_back() -> None:
    """D35, and section 3: watchers are told to reset, also where the call is made again after a resume."""
    async with local_env([made("broken", [], model=BrokenOnce())]) as env:
        run = await env.client.start("broken", "go")
        shown, resets = "", 0
        async for event in run.events():
            if isinstance(event, TextDelta):
                resets += event.reset
                shown = event.text if event.reset else shown + event.text
            elif event.kind == "run.paused":
                await run.resume()
        assert resets == 1
        assert shown
        assert (await run.result()).output.startswith(shown)


async def test_with_a_wrap_model_hook_no_token_is_shown_before_the_call_has_succeeded() -> None:
    """AC-42."""

    async def wrap(request: ModelRequest, call_next: Any, ctx: HookContext) -> Any:
        return await call_next(request)

    async with local_env([made("held", [], create_middleware("w", wrap_model=wrap), model=SlowWriter())]) as env:
        run = await env.client.start("held", "go")
        events = [event async for event in run.events()]
        assert not any(isinstance(event, TextDelta) for event in events)
        assert any(isinstance(event, Event) and event.kind == "text" for event in events)


async def test_a_run_steers_and_goes_on_with_an_earlier_conversation() -> None:
    agent = made("talk", [], model=ScriptedModel([lambda request: f"{len(request.messages)} messages"] * 3))
    async with local_env([agent]) as env:
        first = await (await env.client.start("talk", "hi")).result()
        assert first.output == "1 messages"
        second = await (await env.client.start("talk", "and more", messages=first.messages)).result()
        assert second.output == "3 messages"
        third = await (await env.client.start("talk", messages=[user("only this")])).result()
        assert third.output == "1 messages"


async def test_large_values_go_to_storage_and_without_it_the_model_is_told(tmp_path: Path) -> None:
    """D46."""

    @tool
    def large() -> str:
        """Large."""
        return "x" * 4_000_000

    replies: list[Reply] = [call("large"), lambda request: f"saw {len(request.messages[-1].tool_results[0].text)}"]
    async with local_env([made("stored", replies, tools=[large])], storage=tmp_path) as env:
        run = await env.client.start("stored", "go")
        result = await run.result()
        assert result.output == "saw 4000000"
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
        assert history.events
        assert sum(event.ByteSize() for event in history.events) < 30_000
    async with local_env([made("inline", list(replies), tools=[large])]) as env:
        result = await (await env.client.start("inline", "go")).result()
        assert result.messages[2].tool_results[0].is_error
        assert "configure storage" in result.messages[2].tool_results[0].text


async def test_what_is_asked_wrongly_is_answered_with_a_sentence() -> None:
    async with local_env([made("a", ["done"] * 3)]) as env:
        with pytest.raises(ValueError, match="give the agent something to do"):
            await env.client.start("a")
        with pytest.raises(TypeError, match=r"invocation_state\['when'\]"):
            await env.client.start("a", "go", invocation_state={"when": {1}})
        run = await env.client.start("a", "go", id="started-twice")
        await run.result()
        with pytest.raises(RunExists, match="'started-twice' was started before"):
            await env.client.start("a", "go", id="started-twice")
        with pytest.raises(RunNotFound, match="'nobody'"):
            await env.client.get("nobody").result()
        with pytest.raises(OutlastError, match=r"twice|over|completed"):
            await run.send("too late")
        with pytest.raises((OutlastError, NoAnswer)):
            await run.resume()
        unknown = await env.client.start("b", "go")
        with pytest.raises(AgentRunPaused, match="no agent is named 'b' on this worker; known: a"):
            await unknown.result()

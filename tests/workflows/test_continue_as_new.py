"""A run is one run, however many executions it continues as: nothing lost, nothing twice, the same words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import Agent, AgentOptions, AgentRunFailed, HookContext, create_middleware, tool
from outlast.events import Event
from outlast.messages import Message, sequence_fault
from outlast.middleware import human_in_the_loop, tool_call_limit
from outlast.model import Completion, ModelRequest
from outlast.run import Run
from outlast.state import HistoryLimits, RunResult
from outlast.testing import LocalEnv, ScriptedModel, call, calls, local_env
from outlast.testing.scripted import Reply
from outlast.tools import ToolCall

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def count(call: ToolCall, ctx: HookContext) -> None:
    ctx.invocation_state["seen"] = [*ctx.invocation_state.get("seen", []), call.name]


def by_turn(request: ModelRequest) -> Reply:
    """Twenty steps by what the conversation holds: parallel calls, an invalid one, questions, then the end."""
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn >= 20:
        return f"done after {turn} turns"
    if turn % 7 == 3:
        return call("publish", title=f"page {turn}")
    if turn % 5 == 2:
        return calls(call("add", a=turn, b=1), call("add", a="x", b=2), call("nothing"))
    return call("add", a=turn, b=turn)


def until_the_last(request: ModelRequest) -> Reply:
    """Goes on until it has read the last message."""
    texts = [message.text for message in request.messages if message.role == "user"]
    return "done" if "the last" in texts else call("add", a=len(texts), b=1)


def made(name: str = "long") -> Agent:
    stack = [
        create_middleware("counter", before_tool=count),
        tool_call_limit(None, 1000),
        human_in_the_loop({"publish": True}),
    ]
    options = AgentOptions(name=name, model=ScriptedModel([by_turn] * 200), tools=[add, publish], middleware=stack)
    return Agent(options)


async def approve_all(run: Run, times: int) -> None:
    """Answer that many questions, the second with an edit."""
    for number in range(times):
        async with asyncio.timeout(30):
            while not (pending := await run.pending()):
                await asyncio.sleep(0.02)
        edit: dict[str, Any] = {"edit": {"title": "edited"}}
        await run.decide(pending[0].tool_call_id, edit if number == 1 else "approve", by="alice")


def plain(message: Message) -> dict[str, Any]:
    return message.model_dump(exclude={"created_at"})


async def executions(env: LocalEnv, run: Run) -> int:
    return len([found async for found in env.temporal.list_workflows(f"WorkflowId = '{run.id}'")])


async def outcome(bound: int, cached: int = 1000) -> tuple[RunResult, int, list[int]]:
    async with local_env([made()], continue_as_new_events=bound, max_cached_runs=cached) as env:
        run = await env.client.start("long", "go", invocation_state={"tenant": "acme"})
        await approve_all(run, 3)
        result = await run.result()
        seqs = [event.seq async for event in run.events() if isinstance(event, Event)]
        return result, await executions(env, run), seqs


@pytest.mark.parametrize("cached", [1000, 0])
async def test_the_words_are_those_of_a_run_that_never_continued_as_new(cached: int) -> None:
    whole, one, _ = await outcome(100_000)
    parts, many, seqs = await outcome(30, cached)
    assert (one, many > 4) == (1, True), many
    assert [plain(message) for message in parts.messages] == [plain(message) for message in whole.messages]
    assert (parts.output, parts.steps, parts.usage) == (whole.output, whole.steps, whole.usage)
    limits = [result.invocation_state.pop("tool_call_limit") for result in (parts, whole)]
    assert [limit["done"] for limit in limits] == [20, 20]
    assert parts.invocation_state == whole.invocation_state
    assert [(record.tool_call_id, record.decision) for record in parts.audit] == [
        (record.tool_call_id, record.decision) for record in whole.audit
    ]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert sequence_fault(parts.messages) is None


async def test_hundreds_of_messages_sent_while_it_continues_arrive_once_each() -> None:
    """Raw signals, half of them sent twice under one id."""
    agent = Agent(AgentOptions(name="a", model=ScriptedModel([until_the_last] * 900), tools=[add], max_steps=1000))
    async with local_env([agent], continue_as_new_events=30) as env:
        run = await env.client.start("a", "go")
        handle = env.temporal.get_workflow_handle(run.id)
        sent = [f"note {number}" for number in range(300)]

        async def send(text: str) -> None:
            for _ in range(2 if text.endswith("7") else 1):
                await handle.signal("send", {"text": text, "id": text})

        for start in range(0, len(sent), 30):
            await asyncio.gather(*map(send, sent[start : start + 30]))
            async with asyncio.timeout(30):  # an inbox is bounded: let the run read
                while len(await run.messages()) < start:
                    await asyncio.sleep(0.02)
        await handle.signal("send", {"text": "the last", "id": "last"})
        result = await run.result()
        assert await executions(env, run) > 3
        texts = [message.text for message in result.messages if message.role == "user"]
        assert sorted(texts) == sorted(["go", *sent, "the last"])
        assert sequence_fault(result.messages) is None


async def test_updates_that_meet_a_handover_are_obeyed_once() -> None:
    agent = Agent(AgentOptions(name="a", model=ScriptedModel([until_the_last] * 900), tools=[add], max_steps=1000))
    async with local_env([agent], continue_as_new_events=20) as env:
        run = await env.client.start("a", "go")
        await asyncio.gather(*(run.send(f"note {number}") for number in range(60)))
        await run.send("the last")
        result = await run.result()
        assert await executions(env, run) > 3
        texts = [message.text for message in result.messages if message.role == "user"]
        assert sorted(texts) == sorted(["go", *(f"note {number}" for number in range(60)), "the last"])


class Gate:
    """A model whose next answer waits until the test lets it go."""

    name = "gate"

    def __init__(self, replies: list[Completion]) -> None:
        self._replies = replies
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == len(self._replies) - 1:
            self.asked.set()
            await self.let.wait()
        return self._replies[turn]


@pytest.mark.parametrize("repeat", range(3))
async def test_an_abort_that_meets_a_handover_is_obeyed(repeat: int) -> None:
    """The abort and the answer after which the run would hand over come in one workflow task."""
    model = Gate([call("add", a=1, b=1)] * 8)
    agent = Agent(AgentOptions(name="a", model=model, tools=[add], max_steps=100))
    async with local_env([agent], continue_as_new_events=30, max_cached_runs=0 if repeat else 1000) as env:
        run = await env.client.start("a", "go")
        await model.asked.wait()
        model.let.set()
        abort = asyncio.create_task(run.abort("enough"))
        with pytest.raises(AgentRunFailed, match="ABORTED: enough") as caught:
            await run.result()
        await asyncio.gather(abort, return_exceptions=True)
        assert caught.value.result is not None
        assert sequence_fault(caught.value.result.messages) is None


async def test_a_run_that_grew_by_size_or_by_age_hands_over_too() -> None:
    @tool
    def large(n: int) -> str:
        """Large."""
        return str(n) * 20_000

    replies: list[Reply] = [call("large", n=n) for n in range(6)]
    agent = Agent(AgentOptions(name="a", model=ScriptedModel([*replies, "done"] * 2), tools=[large]))
    for limits in (HistoryLimits(size=60_000), HistoryLimits(seconds=0.01)):
        async with local_env([agent]) as env:
            env.client.history_limits = limits
            run = await env.client.start("a", "go")
            result = await run.result()
            assert [found.text for m in result.messages for found in m.tool_results] == [
                str(n) * 20_000 for n in range(6)
            ]
            assert await executions(env, run) > 1


async def test_one_megabyte_in_each_of_six_calls_is_sent_in_more_than_one_request() -> None:
    """Together they would be refused by the server, which would terminate the run."""

    def enlarge(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        return call.replace(args={"title": "x" * 1_000_000}) if len(call.args["title"]) < 10 else None

    @tool
    def measure(title: str) -> int:
        """Measure."""
        return len(title)

    batch = calls(*(call("measure", title=str(number)) for number in range(6)))
    enlarging = create_middleware("enlarge", before_tool=enlarge)
    options = AgentOptions(name="a", model=ScriptedModel([batch]), tools=[measure], middleware=[enlarging])
    async with local_env([Agent(options)]) as env:
        run = await env.client.start("a", "go")
        async with asyncio.timeout(30):
            while (info := await run.info()).status == "running" and info.temporal_status == "RUNNING":
                await asyncio.sleep(0.05)
        assert info.temporal_status == "RUNNING", info  # what it has become is too large to hand over: it waits
        kinds = [event.kind for event in await seen_by_watchers(run)]
        assert kinds.count("tool.finished") == 6


async def seen_by_watchers(run: Run) -> list[Event]:
    """What a watcher is told until the run is parked."""
    found: list[Event] = []
    async for event in run.events():
        if isinstance(event, Event):
            found.append(event)
            if event.kind == "run.paused":
                break
    return found


async def test_an_answer_that_fits_once_and_not_twice_comes_back_without_its_messages() -> None:
    """Without storage a result is one payload; the transcript is read in pages."""
    agent = Agent(AgentOptions(name="a", model=ScriptedModel(["x" * 1_200_000])))
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        result = await run.result()
        assert (len(result.output), result.messages, result.messages_omitted) == (1_200_000, (), True)
        assert len((await run.messages())[-1].text) == 1_200_000

"""What the server counts and bounds, on a server whose bounds are low: handed over in time, or refused in words.

limit (the server's default)       what becomes of a run here
events (51,200), bytes (50 MB)     goes on in a fresh execution when the server suggests it, or sooner
signals (10,000), updates (2,000)  the same while it waits; while a call is under way the sender is told
updates at once (10)               answered at once, so that thirty at a time get through
activities pending (2,000)         500 calls of a step and 100 side effects at a time; the model is told of the rest
sub-agents pending (2,000)         they are calls of a step
events buffered for a task (100)   test_continue_as_new: hundreds of messages arrive once each
memo (2 MB)                        replaced, never added to, and bounded
search attributes (2 KB)           none are used
ids (1,000 bytes)                  a run's is refused when it is started; all others are bounded
an activity's id twice             ids are numbered: the same side effect a thousand times at once
failure of a retried activity      failures are never Temporal's to retry (test_middleware_calls)
retention (1 day)                  a run that is forgotten is "no open run"; what it kept is in its own state
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory
from temporalio.service import RPCError
from temporalio.worker import Worker

from outlast import Agent, AgentOptions, HookContext, create_middleware, side_effect, tool
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.errors import OutlastError
from outlast.middleware import create_sub_agent_middleware, human_in_the_loop, model_retry
from outlast.model import ModelRequest
from outlast.plugin import AgentPlugin
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.state import HistoryLimits
from outlast.testing import call, calls, local_env, replay, text
from outlast.testing.histories import fetch_histories
from outlast.tools import ToolCall
from tests.workflows.limits_agents import Always, done, gated, large, made, measure, waiting

LOW = {
    "limit.historyCount.error": 800,
    "limit.historyCount.suggestContinueAsNew": 150,
    "limit.historySize.error": 1_000_000,
    "limit.historySize.suggestContinueAsNew": 100_000,
    "history.maximumSignalsPerExecution": 60,
    "history.maxTotalUpdates": 40,
    "limit.numPendingActivities.error": 110,
    "limit.memoSize.error": 60_000,
}
"""As the server names them; its defaults are some fifty times as high."""

UNHANDLED_COMMAND = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
"""A message came while the run was handing over: the task is done again with it."""


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    async with DevServer(dynamic_config=LOW) as server:
        yield server


@pytest.fixture(autouse=True)
def _forget() -> None:
    done.clear()


@asynccontextmanager
async def served(server: DevServer, agent: Agent, **limits: Any) -> AsyncIterator[Client]:
    """A client and a worker on this server."""
    temporal = await connect(Settings.load(address=server.address, environ={}))
    async with Worker(temporal, task_queue=agent.name, plugins=[AgentPlugin([agent])]):
        yield Client(temporal, task_queue=agent.name, history_limits=HistoryLimits(**limits))


async def ends(agent: Agent, run: Run) -> list[WorkflowHistory]:
    """The run ends well, no workflow task of it ever failed of itself, and all of it replays; its histories."""
    result = await asyncio.wait_for(run.result(), 60)
    assert result.output == "done"
    histories = await fetch_histories(run.temporal, [(run.id, None)])
    events = [event for history in histories for event in history.events]
    failed = [event for event in events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    assert {event.workflow_task_failed_event_attributes.cause for event in failed} <= {UNHANDLED_COMMAND}
    await replay([agent], *histories)
    return histories


def named(name: str, *answers: Any, tools: Any = (), middleware: Any = (), **more: Any) -> Agent:
    model = Always(*answers)
    return Agent(AgentOptions(name=name, model=model, tools=tools, middleware=middleware, **more))


async def test_a_run_goes_on_past_the_events_that_one_history_may_have(server: DevServer) -> None:
    step = calls(*(call("measure", title="x") for _ in range(6)))
    agent = named("events", *[step] * 34, tools=[measure])
    async with served(server, agent) as client:
        histories = await ends(agent, await client.start("events", "go"))
    lengths = [len(history.events) for history in histories]
    assert sum(lengths) > LOW["limit.historyCount.error"]
    assert max(lengths) < 300  # it follows the server's suggestion, at 150; its own limit would be 1,000


async def test_a_run_goes_on_past_the_bytes_that_one_history_may_have(server: DevServer) -> None:
    agent = named("bytes", *[call("large", size=10_000)] * 20, tools=[large])
    async with served(server, agent) as client:
        histories = await ends(agent, await client.start("bytes", "go"))
    sizes = [sum(event.ByteSize() for event in history.events) for history in histories]
    assert sum(sizes) > 2 * LOW["limit.historySize.error"] > 2 * max(sizes)


async def test_a_waiting_run_takes_more_signals_and_updates_than_one_execution_may(server: DevServer) -> None:
    """It goes on in a fresh execution in time; thirty updates at once get through the ten that the server lets in."""
    agent = gated()
    keep = {"interrupt": "measure", "decision": "suspend"}
    async with served(server, agent, events=60) as client:
        run = await waiting(await client.start("a", "go"))
        handle = client.temporal.get_workflow_handle(run.id)
        sent = 0
        while sent < 90:
            try:
                await handle.signal("decide", keep)
                sent += 1
            except RPCError as error:
                if "limit for signal events" not in error.message:
                    raise
                await asyncio.sleep(0.02)  # it has had its sixty, and is about to go on in a fresh execution
        await asyncio.gather(*(run.decide("measure", "suspend", by="many") for _ in range(30)))
        for _ in range(45):
            await run.decide("measure", "suspend", by="one")
        await run.decide("measure", "approve")
        assert len(await ends(agent, run)) >= 4
        assert len((await run.result()).audit) == 90 + 30 + 45 + 1


async def test_a_sender_is_told_when_a_busy_run_can_take_no_more_updates(server: DevServer) -> None:
    release = asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        await release.wait()
        return "held"

    agent = named("busy", call("hold"), tools=[hold])
    async with served(server, agent) as client:
        run = await client.start("busy", "go")
        while (await run.info()).step == 0 and not (await run.messages())[1:]:
            await asyncio.sleep(0.02)
        for number in range(40):
            await run.send(f"message {number}")
        with pytest.raises(OutlastError, match=r"can be told nothing more for now: .* once the call that is under way"):
            await run.send("one too many")
        release.set()
        await ends(agent, run)
        told = [message.text for message in (await run.result()).messages if message.text.startswith("message")]
        assert told == [f"message {number}" for number in range(40)]


@side_effect
async def note(number: int) -> int:
    """Note."""
    return number


async def test_a_hook_may_ask_for_more_side_effects_at_once_than_may_be_pending(server: DevServer) -> None:
    """The same one, with the same name: every activity has its own id nevertheless."""

    async def many(request: ModelRequest, ctx: HookContext) -> None:
        ctx.invocation_state["sum"] = sum(await asyncio.gather(*(note(number) for number in range(130))))

    agent = named("effects", middleware=[create_middleware("many", before_model=many)])
    async with served(server, agent) as client:
        run = await client.start("effects", "go")
        await ends(agent, run)
        assert (await run.result()).invocation_state["sum"] == sum(range(130))


async def test_of_two_thousand_calls_in_one_answer_five_hundred_run_and_the_model_is_told_of_the_rest() -> None:
    agent = made(calls(*(call("large", size=1) for _ in range(2001))), tools=[large])
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        await ends(agent, run)
        results = [found for message in (await run.result()).messages for found in message.tool_results]
        assert [found.is_error for found in results] == [False] * 500 + [True] * 1501
        assert "one answer may ask for 500 calls; ask for the rest in the next" in results[-1].text
        assert done["large"] == 500


def test_what_would_fill_one_history_is_refused_when_it_is_configured() -> None:
    with pytest.raises(ValueError, match="max_parallel_tools must be at most 500"):
        named("a", max_parallel_tools=501)
    with pytest.raises(ValueError, match="max_retries must be at most 1,000"):
        model_retry(max_retries=1001)


async def test_a_memo_is_bounded_and_replaced_however_much_waits_and_however_often_it_changes(
    server: DevServer,
) -> None:
    batch = calls(*(call("measure", title="\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 300 + str(n)) for n in range(12)))
    agent = named("memo", batch, tools=[measure], middleware=[human_in_the_loop({"measure": True})])
    async with served(server, agent) as client:
        run = await waiting(await client.start("memo", "go"))
        for question in await run.pending():
            await run.decide(question.tool_call_id, "approve")
        histories = await ends(agent, run)
        memos = [
            event.workflow_properties_modified_event_attributes.upserted_memo.ByteSize()
            for history in histories
            for event in history.events
        ]
        assert sum(memos) > 2 * LOW["limit.memoSize.error"] > 2 * max(memos)


async def test_five_hundred_questions_at_once_are_asked_and_one_answer_may_be_for_all_of_them() -> None:
    """Published one by one they would be five hundred memos in one request, which would terminate the run."""
    batch = calls(*(call("measure", title="the same" * 20) for _ in range(500)))
    agent = named("many", batch, tools=[measure], middleware=[human_in_the_loop({"measure": True})])
    async with local_env([agent]) as env:
        run = await waiting(await env.client.start("many", "go"))
        assert (await run.info()).pending_count == 500
        await run.decide("measure", {"reject": "not now"})
        while (await run.info()).status == "suspended":  # what is published may lag behind, and catches up
            await asyncio.sleep(0.02)
        await ends(agent, run)
        assert (await run.info()).pending_count == 0


@pytest.mark.parametrize("id", ["x" * 901, "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 301, ""])
async def test_a_run_id_that_is_too_long_is_refused_when_the_run_is_started(server: DevServer, id: str) -> None:
    async with served(server, gated()) as client:
        with pytest.raises(ValueError, match="a run's id has 1 to 900 bytes"):
            await client.start("a", "go", id=id)


async def test_the_command_line_says_so_in_one_sentence(server: DevServer) -> None:
    words = ["-m", "outlast.cli", "run", "a", "go", "--id", "x" * 901, "--address", server.address]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=PIPE)
    said = (await process.communicate())[1].decode()
    assert process.returncode == 2
    assert "a run's id has 1 to 900 bytes, not 901" in " ".join(said.split())
    assert "Traceback" not in said


async def test_the_longest_names_there_can_be_make_no_id_that_is_too_long(server: DevServer) -> None:
    """A stranger starts a run with an id that leaves no room for those of sub-agents, timers and side effects."""
    longest = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 100

    async def busy(asked: ToolCall, ctx: HookContext) -> None:
        await ctx.sleep(0.001)
        await note(1)

    clerk = {"name": longest, "description": "c", "model": Always(text("written"))}
    middleware = [create_middleware(longest, before_tool=busy), create_sub_agent_middleware("openai:none", [clerk])]
    agent = named(longest, call("task", description="go", subagent_type=longest), middleware=middleware)
    async with served(server, agent) as client:
        handle = await client.temporal.start_workflow(
            "AgentRun", {"agent": longest, "input": "go"}, id="y" * 995, task_queue=agent.name
        )
        run = client.get(handle.id)
        await ends(agent, run)
        assert (await run.result()).messages[2].tool_results[0].text == "written"


@pytest.mark.parametrize("name", ["x" * 1001, "act" * 5_000, "rm -rf", "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 700])
async def test_a_tools_name_that_a_model_made_up_is_no_activity(server: DevServer, name: str) -> None:
    agent = named("names", call(name, x=1), tools=[measure])
    async with served(server, agent) as client:
        run = await client.start("names", "go")
        [history] = await ends(agent, run)
        scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
        assert {found for found in scheduled if found} == {"call_model"}
        assert "there is no tool named" in (await run.result()).messages[2].tool_results[0].text


async def test_a_run_puts_nothing_into_search_attributes(server: DevServer) -> None:
    agent = gated()
    async with served(server, agent) as client:
        run = await waiting(await client.start("a", "x" * 100_000))
        described = await client.temporal.get_workflow_handle(run.id).describe()
        assert described.status is WorkflowExecutionStatus.RUNNING
        assert [pair.key.name for pair in described.typed_search_attributes] in ([], ["BuildIds"])
        await run.abort()

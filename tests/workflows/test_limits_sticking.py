"""What makes a Temporal workflow stick, fail, or lose something in silence; here the run goes on, waits or parks.

cause                                                 here, and where it is tested
an exception, exit, group or recursion in a hook      parks by the hook's name: test_hostile_hooks (T4)
a result or argument that no JSON holds               parks, or the model is told: test_hostile_hooks
a state that cannot be continued as new               refused where it is written: test_hostile_hooks
a task of a hook's own that raises                    test_hostile_hooks: the worker lives, a deploy heals the run
a hook that never ends                                test_hostile_hooks: interrupted, tried again
signals of wrong type, arity, name, encoding          noted: test_malformed_input (T3)
updates of the same kinds                             refused, nothing recorded: test_malformed_input
a start with malformed input                          fails at once, and says why: test_malformed_input
an agent that no worker knows                         parks until one does: test_agent_run
a forged reference to storage                         test_storage_on_server, test_malformed_input
a tool's name that a model made up                    the model is told: test_limits_counts
values too large, counts too high                     test_limits_payloads, test_limits_messages, test_limits_counts
JSON nested 3,000 deep, numbers of 20,000 digits      the model is told, or the run parks: here
a lone surrogate in an error of a tool                the tool is run once: here
an activity that its worker does not have             parks: here
a queue that no worker serves                         found by the doctor: here, test_worker
an update of 3 MB on a server that lets it in         found by the doctor, who knows the way out: here
"""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue
from temporalio.worker import Worker

from outlast import AgentRunFailed, AgentRunPaused, side_effect, tool
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, connect
from outlast.testing import call, calls, local_env, replay
from tests.workflows.limits_agents import LARGE, before, done, gated, made, results, waiting
from tests.workflows.test_limits_messages import payload

DEEP = json.loads("[" * 900 + "]" * 900)
for _ in range(2_100):
    DEEP = [DEEP]


@pytest.fixture(autouse=True)
def _forget() -> None:
    done.clear()


async def doctor(client: Client) -> list[dict[str, Any]]:
    """What ``outlast doctor`` complains about, in a process of its own."""
    address = client.temporal.service_client.config.target_host
    words = ["-m", "outlast.cli", "doctor", "--json", "--address", address, "--task-queue", client.task_queue]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    complaints: list[dict[str, Any]] = json.loads(said)["complaints"]
    return complaints


@tool
async def gives_depth() -> Any:
    """Give what is nested 3,000 deep."""
    return DEEP


@tool
async def gives_digits() -> Any:
    """Give a number of 20,000 digits."""
    return 10**20_000


@tool(idempotent=False)
async def fails_oddly() -> str:
    """Fail with half a character, which Temporal would take for a reason to try again."""
    done["odd"] += 1
    raise ValueError("half \ud800")


@side_effect
async def depth() -> Any:
    """Give what is nested 3,000 deep."""
    return DEEP


@side_effect
async def digits() -> Any:
    """Give a number of 20,000 digits."""
    return 10**20_000


@pytest.mark.usefixtures("replay_every_run")
async def test_what_a_tool_gives_may_be_nested_however_deep_and_as_long_as_it_likes() -> None:
    agent = made(
        calls(call("gives_depth"), call("gives_digits"), call("fails_oddly")),
        tools=[gives_depth, gives_digits, fails_oddly],
    )
    async with local_env([agent]) as env:
        deep, long, odd = await results(await env.client.start("a", "go"))
        assert deep.startswith(("gives_depth failed", "[" * 3000)), deep[:200]
        assert long.startswith(("gives_digits failed", "1000")), long[:200]
        assert odd == "fails_oddly failed: ValueError: half ?"
        assert done["odd"] == 1


@pytest.mark.usefixtures("replay_every_run")
@pytest.mark.parametrize("effect", [depth, digits])
async def test_what_a_side_effect_gives_that_no_reader_takes_parks_the_run_by_the_hooks_name(effect: Any) -> None:
    async with local_env([made(middleware=[before(effect)])]) as env:
        run = await env.client.start("a", "go")
        with pytest.raises(AgentRunPaused, match="before_model of 'effect'"):
            await asyncio.wait_for(run.result(), 20)
        await run.abort()


async def test_a_start_that_is_nested_3000_deep_fails_at_once() -> None:
    async with local_env([made()]) as env:
        start = b'{"agent": "a", "input": "go", "invocation_state": {"x": ' + b"[" * 3000 + b"]" * 3000 + b"}}"
        value = payload(0)
        value.data = start
        handle: WorkflowHandle[Any, Any] = await env.temporal.start_workflow(
            "AgentRun", RawValue(value), id="deep-start", task_queue=env.task_queue
        )
        with pytest.raises(AgentRunFailed, match="INVALID_INPUT"):
            await asyncio.wait_for(env.client.get(handle.id).result(), 10)


@tool(task_queue="limits-elsewhere", idempotent=False)
async def far(title: str) -> str:
    """Run on workers of its own."""
    done["far"] += 1
    return f"far {title}"


@activity.defn
async def something_else() -> None:
    """What another version of the code has."""


@pytest.mark.usefixtures("replay_every_run")
async def test_a_tool_that_no_worker_serves_is_found_and_one_that_its_worker_lacks_parks_the_run() -> None:
    """First there is no worker, then one of another version, then the right one."""
    agent = made(call("far", title="x"), tools=[far])
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        while not (await run.messages())[1:]:
            await asyncio.sleep(0.05)
        [complaint] = [found for found in await doctor(env.client) if found["subject"] == run.id]
        assert complaint["kind"] == "no worker"
        assert "no worker serves the task queue 'limits-elsewhere', where its far waits" in complaint["problem"]
        async with Worker(env.temporal, task_queue="limits-elsewhere", activities=[something_else]):
            with pytest.raises(AgentRunPaused, match=r"activity 'far'.*does not have it.*another version of the code"):
                await asyncio.wait_for(run.result(), 20)
        async with Worker(env.temporal, task_queue="limits-elsewhere", plugins=[AgentPlugin([agent])]):
            await run.resume()
            assert await results(run) == ["far x"]
        assert done["far"] == 1


async def test_on_a_server_that_lets_it_in_an_update_of_3_mb_sticks_a_run_until_a_reset_and_the_doctor_knows() -> None:
    """Temporal's own default: its worker sends an update back as it is, refused or not, and may not."""
    agent = gated()
    async with DevServer(dynamic_config={"history.maxInFlightUpdatePayloads": 20_000_000}) as server:
        temporal = await connect(Settings.load(address=server.address, environ={}))
        async with Worker(temporal, task_queue="stuck", plugins=[AgentPlugin([agent])]):
            client = Client(temporal, task_queue="stuck")
            run = await waiting(await client.start("a", "go", id="stuck"))
            handle = temporal.get_workflow_handle(run.id)
            sending = asyncio.create_task(handle.execute_update("send", RawValue(payload(LARGE))))
            async with asyncio.timeout(60):
                while not (complaints := await doctor(client)):  # the server is this test's own
                    await asyncio.sleep(0.5)
            assert complaints[0]["kind"] == "stuck"
            assert "larger than a worker can answer" in complaints[0]["problem"]
            assert "temporal workflow reset --type LastWorkflowTask --workflow-id stuck" in complaints[0]["next_step"]
            assert "history.maxInFlightUpdatePayloads=1900000" in complaints[0]["next_step"]
            sending.cancel()
            await reset(server, run.id)
            await run.decide("measure", "approve")
            assert (await run.result()).output == "done"
            history = await handle.fetch_history()
            assert EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED in [event.event_type for event in history.events]
            await replay([agent], history)


async def reset(server: DevServer, run_id: str) -> None:
    """With Temporal's own command line, as the doctor says."""
    words = ["workflow", "reset", "--type", "LastWorkflowTask", "--workflow-id", run_id, "--reason", "too large"]
    binary = str(Path(sysconfig.get_path("scripts")) / "temporal")
    process = await asyncio.create_subprocess_exec(
        binary, *words, "--address", server.address, stdout=DEVNULL, stderr=DEVNULL
    )
    assert await process.wait() == 0

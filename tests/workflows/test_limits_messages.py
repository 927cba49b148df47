"""What is sent to runs and is larger than Temporal carries: starts, messages, decisions, and what strangers send."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.update.v1 import Input, Meta, Request
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, UpdateWorkflowExecutionRequest
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from outlast import AgentRunPaused, tool
from outlast.errors import DecisionRefused, OutlastError
from outlast.messages import user
from outlast.testing import call, local_env
from tests.workflows.limits_agents import LARGE, assert_unharmed, gated, given_storage, made, waiting

pytestmark = pytest.mark.usefixtures("replay_every_run")


@pytest.mark.parametrize("size", [LARGE, 5_000_000])
async def test_a_start_that_is_too_large_is_refused_before_it_is_sent(size: int) -> None:
    async with local_env([made()]) as env:
        starts: list[dict[str, Any]] = [
            {"input": "x" * size},
            {"input": "go", "invocation_state": {"document": "x" * size}},
            {"messages": [user("x" * size)]},
        ]
        for start in starts:
            with pytest.raises(OutlastError, match=r"000,\d+ bytes; without storage 1,900,000 .*OUTLAST_STORAGE"):
                await env.client.start("a", **start)
        assert env.started == []


async def test_a_start_of_5_mb_passes_with_storage(tmp_path: Path) -> None:
    async with local_env([made()], storage=tmp_path) as env:
        run = await env.client.start("a", "x" * 5_000_000, invocation_state={"document": "x" * 5_000_000})
        assert (await run.result()).output == "done"


async def test_a_message_or_a_decision_that_is_too_large_is_refused_before_it_is_sent() -> None:
    async with local_env([gated()]) as env:
        run = await waiting(await env.client.start("a", "go"))
        for size in (500_000, LARGE, 5_000_000):
            with pytest.raises(OutlastError, match=r"`send` to run .* without storage 400,000 .*OUTLAST_STORAGE"):
                await run.send("x" * size)
            with pytest.raises(OutlastError, match="`decide` to run"):
                await run.decide("measure", {"edit": {"title": "x" * size}})
        await assert_unharmed(env, run)


async def test_a_message_and_a_decision_of_3_mb_pass_with_storage(tmp_path: Path) -> None:
    async with local_env([gated()], storage=tmp_path) as env:
        run = await waiting(await env.client.start("a", "go"))
        await run.send("y" * LARGE)
        await run.decide("measure", {"edit": {"title": "x" * LARGE}})
        result = await run.result()
        assert result.messages[2].tool_results[0].text.endswith(str(LARGE))
        assert result.messages[3].text == "y" * LARGE


def payload(size: int) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps({"text": "x" * size}).encode())


async def test_no_strangers_update_however_large_or_many_harms_a_run() -> None:
    """On a server as ``outlast dev`` starts it. Elsewhere the doctor names it: test_limits_sticking."""
    async with local_env([gated()]) as env:
        run = await waiting(await env.client.start("a", "go"))

        async def update(number: int, name: str, size: int) -> RPCStatusCode | None:
            request = UpdateWorkflowExecutionRequest(
                namespace=env.temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run.id),
                request=Request(
                    meta=Meta(update_id=f"u{number}"), input=Input(name=name, args=Payloads(payloads=[payload(size)]))
                ),
            )
            try:
                await env.temporal.workflow_service.update_workflow_execution(request)
            except RPCError as error:
                return error.status
            return None

        for number, size in enumerate((LARGE, 4_190_000, 5_000_000)):
            assert await update(number, "send", size) is RPCStatusCode.RESOURCE_EXHAUSTED
        answers = await asyncio.gather(*(update(number, "nonsense", 1_500_000) for number in range(10, 20)))
        assert answers.count(RPCStatusCode.RESOURCE_EXHAUSTED) >= 1
        await assert_unharmed(env, run)


async def test_a_strangers_signal_or_query_that_is_too_large_is_refused_by_the_server() -> None:
    async with local_env([gated()]) as env:
        run = await waiting(await env.client.start("a", "go"))
        handle = env.temporal.get_workflow_handle(run.id)
        for size, status in (
            (LARGE, RPCStatusCode.INVALID_ARGUMENT),
            (5_000_000, RPCStatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(RPCError) as caught:
                await env.temporal.workflow_service.signal_workflow_execution(
                    SignalWorkflowExecutionRequest(
                        namespace=env.temporal.namespace,
                        workflow_execution=WorkflowExecution(workflow_id=run.id),
                        signal_name="send",
                        input=Payloads(payloads=[payload(size)]),
                    )
                )
            assert caught.value.status is status
            with pytest.raises(Exception, match=r"exceeds limit|larger than max"):
                await handle.query("status", RawValue(payload(size)))
        await assert_unharmed(env, run)


async def test_messages_that_nobody_reads_are_taken_up_to_8_mb_and_none_of_them_is_lost(tmp_path: Path) -> None:
    """The run has no storage for so much: it parks with them once its call has ended, until it has some."""
    release = asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        await release.wait()
        return "held"

    async with local_env([made(call("hold"), tools=[hold])]) as env:
        run = await env.client.start("a", "go")
        while not (await run.messages())[1:]:
            await asyncio.sleep(0.02)
        for number in range(21):
            await run.send(f"{number} " + "x" * 390_000)
        with pytest.raises(DecisionRefused, match="21 messages wait already; let the run read them first"):
            await run.send("one more " + "x" * 390_000)
        release.set()
        with pytest.raises(AgentRunPaused, match="configure storage"):
            await asyncio.wait_for(run.result(), 20)
        async with given_storage(env, tmp_path) as client:
            run = client.get(run.id)
            await run.resume()
            told = [message.text.split()[0] for message in (await run.result()).messages[3:-1]]
            assert told == [str(number) for number in range(21)]

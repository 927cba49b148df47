"""Retry, fallback and emulation on a real server: durable waits, exact counts, errors that cross the boundary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from outlast import Agent, AgentOptions, AgentRunFailed, AgentRunPaused, HitlInterrupt, ToolContext, tool
from outlast import models as provider_models
from outlast.errors import RateLimited, ServerFault
from outlast.middleware import model_retry, pii_redact, tool_retry
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.models import OpenAIChat
from outlast.run import Run
from outlast.testing import LocalEnv, ScriptedModel, call, local_env
from outlast.testing.scripted import text
from outlast.usage import Usage
from tests.providers.fake_server import FakeServer, json_reply, running
from tests.workflows.judged_agents import Moody, Printer, actor, fallen, player, printer

pytestmark = pytest.mark.usefixtures("replay_every_run")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    async with running() as fake:
        yield fake
        await provider_models.close()


async def events(env: LocalEnv, run: Run) -> list[Any]:
    return list((await env.temporal.get_workflow_handle(run.id).fetch_history()).events)


async def until_timer(env: LocalEnv, run: Run) -> None:
    while not any(event.event_type == EventType.EVENT_TYPE_TIMER_STARTED for event in await events(env, run)):
        await asyncio.sleep(0.02)


def activities(found: list[Any]) -> list[str]:
    scheduled = [event for event in found if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
    return [event.activity_task_scheduled_event_attributes.activity_type.name for event in scheduled]


async def test_a_retry_wait_survives_a_worker_restart_in_its_middle() -> None:
    """AC-30: the wait is a timer of the server; nothing is called twice and nothing waits twice."""
    model = ScriptedModel([RateLimited("slow down", wait_seconds=2), "done"])
    agent = Agent(AgentOptions(name="patient", model=model, middleware=[model_retry(1, 10)]))
    async with local_env([agent]) as env:
        run = await env.client.start("patient", "go")
        await until_timer(env, run)
        await env.stop_worker()
        assert len(model.requests) == 1
        await env.start_worker()
        assert (await run.result()).output == "done"
        found = await events(env, run)
        timers = [event for event in found if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
        assert len(timers) == 1
        assert timers[0].timer_started_event_attributes.start_to_fire_timeout.ToMilliseconds() == 2000
        assert len(model.requests) == 2


async def test_an_hour_of_backoff_takes_a_moment_where_time_is_skipped() -> None:
    model = ScriptedModel([*[ServerFault("x")] * 4, "done"])
    agent = Agent(AgentOptions(name="hours", model=model, middleware=[model_retry(4, 3_600_000, 1, 3_600_000)]))
    async with local_env([agent], time_skipping=True) as env:
        assert (await (await env.client.start("hours", "go")).result()).output == "done"


@pytest.mark.parametrize(("retries", "requests"), [(None, 1), (0, 1), (1, 2), (3, 4)])
async def test_a_provider_that_always_fails_gets_exactly_as_many_requests_as_the_policy_says(
    server: FakeServer, retries: int | None, requests: int
) -> None:
    """D44: neither the client nor Temporal retries by itself."""
    server.answer(json_reply({"error": {"message": "down", "type": "server_error"}}, 500))
    hooks = [] if retries is None else [model_retry(retries, 10)]
    gpt = OpenAIChat("gpt-5.2", api_key="k", base_url=f"{server.url}/v1")
    agent = Agent(AgentOptions(name="unlucky", model=gpt, middleware=hooks))
    async with local_env([agent]) as env:
        run = await env.client.start("unlucky", "go")
        with pytest.raises(AgentRunPaused, match="ServerFault"):
            await run.result()
        assert len(server.received) == requests
        await run.abort("enough")


async def test_a_model_that_fails_after_a_tool_has_run_does_not_run_the_tool_again() -> None:
    """D26, D36, D45."""
    keys: list[str] = []

    @tool
    def charge(context: ToolContext) -> str:
        """Charge."""
        keys.append(context.idempotency_key)
        return "charged"

    model = ScriptedModel([call("charge"), ServerFault("500"), ServerFault("500"), "done"])
    agent = Agent(AgentOptions(name="once", model=model, tools=[charge], middleware=[model_retry(1, 10), tool_retry()]))
    async with local_env([agent]) as env:
        run = await env.client.start("once", "go")
        with pytest.raises(AgentRunPaused):
            await run.result()
        await run.resume()
        assert (await run.result()).output == "done"
        assert len(keys) == 1


async def test_the_users_own_error_classes_are_known_again_on_the_workflows_side() -> None:
    """AC-27, AC-31: of a model and of a tool, by class and by base class, from a module that is imported anew."""
    Printer.attempts = Moody.calls = 0
    async with local_env([printer]) as env:
        result = await (await env.client.start("printer", "go")).result()
        assert result.output == "done"
        assert (Printer.attempts, Moody.calls) == (2, 4)


async def test_what_a_failed_model_call_has_used_up_crosses_the_boundary() -> None:
    """AC-41: of a call that was retried, and of an answer that was withheld inside its activity."""
    spent = Usage(input_tokens=70, output_tokens=2)
    model = ScriptedModel([ServerFault("broke off", usage=spent), text("to bob@x.com", usage=spent)])
    hooks = [model_retry(1, 10), pii_redact("email", "block")]
    agent = Agent(AgentOptions(name="spender", model=model, middleware=hooks))
    async with local_env([agent]) as env:
        run = await env.client.start("spender", "go")
        with pytest.raises(AgentRunFailed, match="REJECTED") as failed:
            await run.result()
    assert failed.value.result is not None
    assert failed.value.result.usage == Usage(input_tokens=140, output_tokens=4, model_calls=2)


async def test_model_objects_of_an_agents_module_are_found_from_the_sandbox() -> None:
    async with local_env([fallen]) as env:
        result = await (await env.client.start("fallen", "go")).result()
        assert result.output == "spare"
        assert result.usage.model_calls == 1


async def test_an_interrupt_in_a_tools_body_suspends_once_with_one_attempt() -> None:
    """AC-35, D31."""
    attempts: list[int] = []

    @tool
    def publish(context: ToolContext) -> str:
        """Publish."""
        attempts.append(context.attempt)
        if context.decision is None:
            raise HitlInterrupt("publish", {})
        return "published"

    model = ScriptedModel([call("publish"), "done"])
    agent = Agent(
        AgentOptions(
            name="careful", model=model, tools=[publish], middleware=[tool_retry(5, 10, on_failure="continue")]
        )
    )
    async with local_env([agent]) as env:
        run = await env.client.start("careful", "go")
        while not await run.pending():
            await asyncio.sleep(0.02)
        assert len(attempts) == 1
        await run.decide("publish", "approve")
        assert (await run.result()).messages[2].tool_results[0].text == "published"
        assert len(attempts) == 2


async def test_a_tool_that_was_lost_is_temporals_to_retry_and_not_the_middlewares() -> None:
    started: list[int] = []

    @tool(timeout_seconds=1, max_attempts=1)
    async def hang() -> str:
        """Hang."""
        started.append(1)
        await asyncio.sleep(60)
        return "never"

    model = ScriptedModel([call("hang"), "done"])
    agent = Agent(AgentOptions(name="lost", model=model, tools=[hang], middleware=[tool_retry(5, 10)]))
    async with local_env([agent]) as env:
        result = await (await env.client.start("lost", "go")).result()
        assert result.messages[2].tool_results[0].text.startswith("hang did not finish")
        assert len(started) == 1


class Slow:
    """Answers after a minute."""

    name = "slow"
    calls = 0

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        self.calls += 1
        await asyncio.sleep(60)
        raise ServerFault("too late")


async def test_cancelling_a_run_in_a_model_call_or_a_wait_is_no_failure_to_retry() -> None:
    """AC-36."""
    slow, failing = Slow(), ScriptedModel([ServerFault("x")] * 9)
    retry = model_retry(5, 60_000, on_failure="continue")
    calling = Agent(AgentOptions(name="calling", model=slow, middleware=[retry]))
    waiting = Agent(AgentOptions(name="waiting", model=failing, middleware=[retry]))
    async with local_env([calling, waiting]) as env:
        in_call, in_wait = await env.client.start("calling", "go"), await env.client.start("waiting", "go")
        await until_timer(env, in_wait)
        while not slow.calls:
            await asyncio.sleep(0.02)
        for run in (in_call, in_wait):
            await run.cancel()
            with pytest.raises(AgentRunFailed, match="CANCELLED"):
                await run.result()
        assert (slow.calls, len(failing.requests)) == (1, 1)


async def test_an_emulated_tool_is_never_scheduled_also_not_after_a_restart() -> None:
    """AC-116."""
    Printer.attempts = 0
    async with local_env([actor]) as env:
        run = await env.client.start("actor", "go")
        while not player.requests:
            await asyncio.sleep(0.01)
        await env.stop_worker()
        await env.start_worker()
        result = await run.result()
        assert result.messages[2].tool_results[0].status == "emulated"
        assert activities(await events(env, run)) == ["call_model"] * 3
        assert Printer.attempts == 0

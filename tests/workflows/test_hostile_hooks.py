"""T4: whatever a hook, a tool or a model raises, the run parks or ends as documented, and the worker lives."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory

from outlast import Agent, AgentOptions, AgentRunFailed, AgentRunPaused, HookContext, create_middleware, tool
from outlast.model import ModelRequest
from outlast.run import Run
from outlast.testing import LocalEnv, ScriptedModel, call, local_env
from tests.unit.misdeeds import argument_cases, effect_cases, hook_cases, model_cases, tool_cases
from tests.workflows.hostile import HOSTILE, POINTS, Hostile, act, answer, hostile_agents, raiser, stall


async def paused(run: Run) -> tuple[AgentRunPaused, float]:
    """How the run parked, and how long that took."""
    began = time.monotonic()
    with pytest.raises(AgentRunPaused) as caught:
        await asyncio.wait_for(run.result(), 60)
    return caught.value, time.monotonic() - began


async def assert_sound(env: LocalEnv, run_id: str) -> None:
    """No workflow task ever failed, and the run's own task is there: neither stuck nor a zombie."""
    handle = env.temporal.get_workflow_handle(run_id)
    description = await handle.describe()
    if description.status == WorkflowExecutionStatus.RUNNING:
        assert "in run" in await handle.query("__stack_trace")
    assert not hurt(await handle.fetch_history())


@pytest.mark.parametrize("point", POINTS)
async def test_a_hostile_hook_parks_the_run_by_name_and_a_resume_repeats_only_what_failed(point: str) -> None:
    """Every class at this hook point, in calls that run beside others; 0 stuck, 0 zombies, the worker lives."""
    agents = {name: pair for name, pair in hostile_agents().items() if name.startswith(point)}
    assert len(agents) == len(HOSTILE)
    good = Agent(AgentOptions(name="good", model=ScriptedModel([answer] * 9), tools=[act]))
    async with local_env([good, *(agent for agent, _ in agents.values())]) as env:
        runs = {name: await env.client.start(name, "go") for name in agents}
        for name, (error, _) in zip(runs, await asyncio.gather(*map(paused, runs.values())), strict=True):
            assert error.where == f"{point} of 'hostile'", (name, error.error)
            assert len(error.error) <= 2100
        await asyncio.gather(*(assert_sound(env, run.id) for run in runs.values()))
        fine = await env.client.start("good", "go")
        assert (await fine.result()).output == "done"
        for _, hostile in agents.values():
            hostile.calm = True
        await asyncio.gather(*(run.resume(by="test") for run in runs.values()))
        for result in await asyncio.gather(*(run.result() for run in runs.values())):
            assert result.output == "done"
            assert [r.text for m in result.messages for r in m.tool_results] == ["did a", "did b", "did c", "did d"]


async def test_a_hostile_hook_alone_parks_within_five_seconds() -> None:
    hostile = Hostile("before_tool", raiser(KeyboardInterrupt))
    agent = Agent(AgentOptions(name="a", model=ScriptedModel([answer] * 3), tools=[act], middleware=[hostile]))
    async with local_env([agent]) as env:
        error, seconds = await paused(await env.client.start("a", "go"))
        assert "KeyboardInterrupt" in error.error
        assert seconds < 5


@pytest.mark.parametrize("way", [way for way in HOSTILE if way not in ("wrong return", "CancelledError")])
async def test_a_hostile_tool_is_an_error_result_and_the_run_goes_on(way: str) -> None:
    misdeed = HOSTILE[way]

    @tool
    async def later() -> str:
        """Fail."""
        misdeed()
        return "no"

    @tool
    def now() -> str:
        """Fail."""
        misdeed()
        return "no"

    model = ScriptedModel([call("later"), call("now"), "done"])
    async with local_env([Agent(AgentOptions(name="a", model=model, tools=[later, now]))]) as env:
        result = await (await env.client.start("a", "go")).result()
        found = [r for m in result.messages for r in m.tool_results]
        assert [(r.status, r.is_error) for r in found] == [("failed", True)] * 2
        assert all(len(r.text) <= 4100 for r in found)


async def test_a_hostile_model_parks_the_run_and_names_the_call() -> None:
    ways = {way: misdeed for way, misdeed in HOSTILE.items() if way not in ("wrong return", "CancelledError")}

    class HostileModel:
        name = "hostile"

        def __init__(self, misdeed: Any) -> None:
            self._misdeed = misdeed

        async def complete(self, request: Any, on_delta: Any = None) -> Any:
            return self._misdeed()

    agents = [Agent(AgentOptions(name=way, model=HostileModel(misdeed))) for way, misdeed in ways.items()]
    async with local_env(agents) as env:
        runs = [await env.client.start(way, "go") for way in ways]
        for error, _ in await asyncio.gather(*map(paused, runs)):
            assert error.where == "model call of step 1"
        await asyncio.gather(*(assert_sound(env, run.id) for run in runs))


async def test_what_no_json_holds_and_errors_that_cannot_be_told_never_stick_a_run() -> None:
    """Two hundred misdeeds beside each other: each as documented, no workflow task ever fails, no zombie (T4, T6)."""
    kinds = (hook_cases(), argument_cases(), tool_cases(), effect_cases(), model_cases())
    cases = [case for kind in kinds for case in kind.values()]
    async with local_env([case.agent for case in cases]) as env:
        runs = [await env.client.start(case.agent.name, "go") for case in cases]
        for case, outcome in zip(cases, await asyncio.gather(*map(outcome_of, runs)), strict=True):
            said = case.outcome if case.outcome.startswith(("paused", "failed")) else f".*({case.outcome})"
            assert re.match(f"(?s){said}", outcome), (case, outcome)
        await asyncio.gather(*(assert_sound(env, run.id) for run in runs))


async def outcome_of(run: Run) -> str:
    try:
        result = await asyncio.wait_for(run.result(), 90)
    except AgentRunPaused as error:
        return f"paused {error.where}: {error.error}"
    except AgentRunFailed as error:
        return f"failed {error.code}: {error.message}"
    return " ".join(found.text for message in result.messages for found in message.tool_results)


async def test_a_task_that_a_hook_starts_cannot_end_the_worker() -> None:
    """Temporal's own task fails and is tried again, so that a deploy heals it; the runs beside it go on."""
    hostile: list[bool] = [True]

    def starter(kind: type[BaseException]) -> Agent:
        async def fail() -> None:
            raise kind

        async def wrap(request: ModelRequest, call_next: Any, ctx: HookContext) -> Any:
            if hostile:
                await asyncio.gather(fail(), call_next(request))
            return await call_next(request)

        starting = create_middleware("x", wrap_model=wrap)
        options = AgentOptions(name=kind.__name__, model=ScriptedModel(["done"] * 9), middleware=[starting])
        return Agent(options)

    bad = [starter(kind) for kind in (SystemExit, KeyboardInterrupt, GeneratorExit)]
    good = Agent(AgentOptions(name="good", model=ScriptedModel([answer] * 9), tools=[act]))
    async with local_env([*bad, good]) as env:
        runs = [await env.client.start(agent.name, "go") for agent in bad]
        for run in runs:
            handle = env.temporal.get_workflow_handle(run.id)
            while not hurt(await handle.fetch_history()) and not (await run.info()).error:
                await asyncio.sleep(0.05)
        assert (await (await env.client.start("good", "go")).result()).output == "done"
        hostile.clear()
        assert [(await run.info()).status for run in runs] == ["running", "running", "paused"]
        await runs[2].resume()  # GeneratorExit reached the hook
        assert [(await run.result()).output for run in runs] == ["done"] * 3


def hurt(history: WorkflowHistory) -> bool:
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED for event in history.events)


async def test_a_hook_that_stalls_is_interrupted_by_temporal_and_the_run_goes_on_once_it_does_not() -> None:
    """The one case that cannot park: Temporal takes the task away after two seconds and tries again."""
    hostile = Hostile("before_model", stall)
    model = ScriptedModel([answer] * 5)
    async with local_env([Agent(AgentOptions(name="a", model=model, tools=[act], middleware=[hostile]))]) as env:
        run = await env.client.start("a", "go")
        handle = env.temporal.get_workflow_handle(run.id)
        failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        async with asyncio.timeout(30):
            while failed not in [event.event_type for event in (await handle.fetch_history()).events]:
                await asyncio.sleep(0.1)
        hostile.calm = True
        assert (await run.result()).output == "done"

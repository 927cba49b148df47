"""What is larger than Temporal carries, at every place where a run has a value, without storage and with it.

place                      without storage                                  with storage
start input, state         refused by the client, nothing sent              passes
message, decision          refused by the client, the run unharmed          passes
stranger's update, signal  kept out by the server, the run unharmed         the same
query argument             refused, the run unharmed                        the same
arguments of a tool        parks, goes on once there is storage             passes
conversation, state        parks, goes on once there is storage             passes
model's answer             parks, asked once, paid once                     passes
result of a tool           the model is told (test_agent_run)               passes, up to 30 MB
result of a side effect    parks, run once                                  passes, up to 30 MB
heartbeat, question        the model is told, the tool is run once          a question passes
error message              cut (test_hostile_hooks, "5 MB")                 cut
sub-agent's answer         the parent's model is told where it is           passes
sub-agent's question       asked at the sub-agent                           asked at the parent
local tools                results of 100 KB, spread over several tasks     30 MB
six calls of 1 MB          spread (test_continue_as_new)                    passes
60 results of 1 MB         the model is told                                passes
result of the run          without its messages (test_continue_as_new)      passes
memo                       holds a bounded preview                          the same
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from outlast import Agent, AgentOptions, AgentRunPaused, HitlInterrupt, HookContext, create_middleware, side_effect
from outlast.middleware import create_sub_agent_middleware
from outlast.model import ModelRequest
from outlast.run import Run
from outlast.state import RunResult
from outlast.testing import LocalEnv, ScriptedModel, call, calls, local_env, text
from outlast.tools import ToolCall
from tests.workflows.limits_agents import (
    LARGE,
    Always,
    asks,
    beats,
    before,
    done,
    given_storage,
    large,
    made,
    measure,
    near,
    results,
    waiting,
)

pytestmark = pytest.mark.usefixtures("replay_every_run")


@pytest.fixture(autouse=True)
def _forget() -> None:
    done.clear()


@pytest.fixture(params=[False, True], ids=["without", "with"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param else None


@side_effect
async def fetch(size: int) -> str:
    """Fetch so much."""
    done["fetch"] += 1
    return "x" * size


@side_effect
async def send(content: str) -> int:
    """Send it."""
    return len(content)


async def parks_then_goes_on_with_storage(agent: Agent, path: Path, match: str, input: str = "go") -> RunResult:
    """Without storage the run parks and says so; it goes on where it was once its worker has storage."""
    async with local_env([agent]) as env:
        run = await env.client.start("a", input)
        with pytest.raises(AgentRunPaused, match=f"{match}.*configure storage"):
            await asyncio.wait_for(run.result(), 30)
        async with given_storage(env, path) as client:
            run = client.get(run.id)
            await run.resume()
            return await asyncio.wait_for(run.result(), 30)


async def test_a_conversation_that_outgrew_a_request_goes_on_where_it_parked_once_there_is_storage(
    tmp_path: Path,
) -> None:
    agent = made(*(call("large", size=400_000) for _ in range(6)), tools=[large])
    result = await parks_then_goes_on_with_storage(agent, tmp_path, "storage:")
    assert result.output == "done"
    assert done["large"] == 6


async def test_the_same_where_old_messages_would_have_been_archived_had_there_been_storage(tmp_path: Path) -> None:
    """The worker that has storage replays what the other one did without."""

    def old(request: ModelRequest, ctx: HookContext) -> None:
        ctx.archive(request.messages[-1].id)

    archiving = create_middleware("archiving", before_model=old)
    model = ScriptedModel([*(call("large", size=200_000) for _ in range(12)), "done"])
    agent = Agent(AgentOptions(name="a", model=model, tools=[large], middleware=[archiving]))
    result = await parks_then_goes_on_with_storage(agent, tmp_path, "storage:")
    assert result.output == "done"
    assert done["large"] == 12


async def test_arguments_that_a_hook_made_too_large_park_the_run_and_pass_once_there_is_storage(tmp_path: Path) -> None:
    def enlarge(asked: ToolCall, ctx: HookContext) -> ToolCall | None:
        return asked.replace(args={"title": "x" * LARGE}) if len(asked.args["title"]) < 10 else None

    agent = made(
        call("measure", title="x"), tools=[measure], middleware=[create_middleware("enlarge", before_tool=enlarge)]
    )
    result = await parks_then_goes_on_with_storage(agent, tmp_path, "the arguments of measure")
    assert result.messages[2].tool_results[0].text.endswith(str(LARGE))


async def test_a_side_effects_arguments_park_the_run_and_pass_once_there_is_storage(tmp_path: Path) -> None:
    agent = made(middleware=[before(lambda: send("x" * LARGE))])
    assert (await parks_then_goes_on_with_storage(agent, tmp_path, "the arguments of .*send")).output == "done"


async def test_a_side_effects_result_parks_the_run_and_is_not_fetched_again_and_again(tmp_path: Path) -> None:
    agent = made(middleware=[before(lambda: fetch(LARGE))])
    assert (await parks_then_goes_on_with_storage(agent, tmp_path, "fetch: its result has 3,000,002")).output == "done"
    assert done["fetch"] == 2  # once without storage, and once with it


async def test_a_models_answer_parks_the_run_and_is_not_paid_for_again_and_again(tmp_path: Path) -> None:
    agent = made(text("x" * LARGE))
    result = await parks_then_goes_on_with_storage(agent, tmp_path, "the model's answer has 3,000")
    assert len(str(result.output)) == LARGE
    assert (done["model"], result.usage.model_calls) == (2, 2)


async def test_progress_and_questions_that_are_too_large_are_told_to_the_model_and_the_tool_runs_once() -> None:
    async with local_env([made(calls(call("beats"), call("asks")), tools=[beats, asks])]) as env:
        told = await results(await env.client.start("a", "go"))
        assert "heartbeat: 3,000,004 bytes; report progress with at most 64,000" in told[0]
        assert "configure storage" in told[1]
        assert (done["beats"], done["asks"]) == (1, 1)


async def test_a_question_of_3_mb_is_asked_with_storage(tmp_path: Path) -> None:
    async with local_env([made(call("asks"), tools=[asks])], storage=tmp_path) as env:
        run = await waiting(await env.client.start("a", "go"))
        [question] = await run.pending()
        assert len(question.description) == LARGE
        [listed] = await env.client.pending()
        assert len(listed.description) == 300  # what the memo holds of it
        await run.decide("asks", "approve")
        assert await results(run) == ["asked"]


async def test_with_storage_a_result_may_have_30_mb_and_a_larger_one_is_told_to_the_model(tmp_path: Path) -> None:
    answers = calls(call("large", size=12_000_000), call("large", size=50_000_000))
    async with local_env([made(answers, tools=[large])], storage=tmp_path) as env:
        fits, too_large = await results(await env.client.start("a", "go"))
        assert len(fits) == 12_000_000
        assert re.fullmatch(
            r"large ran, but its result of 50,000,\d+ bytes is more than the 30,000,000 .* Ask for less\.", too_large
        )
        assert done["large"] == 2


async def test_sixty_results_of_a_megabyte_do_not_fill_the_history() -> None:
    """Together they are more than the 50 MB that a history may have, which would terminate the run."""
    batch = calls(*(call("large", size=990_000) for _ in range(60)))
    async with local_env([made(batch, tools=[large])]) as env:
        found = await results(await env.client.start("a", "go"))
        assert {"more than the 500,000 that can be kept" in item for item in found} == {True}
        assert done["large"] == 60


async def test_with_storage_eight_megabytes_of_results_at_once_pass(tmp_path: Path) -> None:
    batch = calls(*(call("large", size=990_000) for _ in range(8)))
    async with local_env([made(batch, tools=[large])], storage=tmp_path) as env:
        assert {len(item) for item in await results(await env.client.start("a", "go"))} == {990_000}


async def test_results_of_local_tools_go_to_the_server_in_requests_that_it_takes(storage: Path | None) -> None:
    """All those of one task are in one request; over 4 MB it would terminate the run."""
    batch = calls(*(call("near", size=60_000) for _ in range(80)), *(call("near", size=900_000) for _ in range(6)))
    async with local_env([made(batch, tools=[near])], storage=storage) as env:
        run = await env.client.start("a", "go")
        if storage is None:  # it has come to all results; what they are together waits for storage
            with pytest.raises(AgentRunPaused, match="configure storage"):
                await asyncio.wait_for(run.result(), 30)
            told = [found.text for message in await run.messages() for found in message.tool_results]
            assert [len(item) for item in told[:80]] == [60_000] * 80
            assert {"more than the 100,000 that can be kept" in item for item in told[80:]} == {True}
        else:
            assert [len(item) for item in await results(run)] == [60_000] * 80 + [900_000] * 6


async def test_a_sub_agents_answer_that_is_too_large_is_told_as_where_it_is(storage: Path | None) -> None:
    specialist = {"name": "clerk", "description": "c", "model": Always(text("x" * 1_800_000))}
    middleware = create_sub_agent_middleware("openai:none", [specialist])
    agent = made(call("task", description="go", subagent_type="clerk"), middleware=[middleware])
    async with local_env([agent], storage=storage) as env:
        run = await env.client.start("a", "go")
        [answer] = await results(run)
        if storage is not None:
            assert len(answer) == 1_800_000
        else:
            assert f"its answer is in its own run, {run.id}/call_1_1" in answer
            assert "configure storage" in answer


async def test_a_sub_agents_question_that_is_too_large_for_its_parent_is_asked_at_the_sub_agent() -> None:
    def ask(asked: ToolCall, ctx: HookContext) -> None:
        if ctx.decision(asked) is None:
            raise HitlInterrupt("measure", {"title": "x" * 600_000})

    clerk = {
        "name": "clerk", "description": "c", "model": Always(call("measure", title="x")), "tools": [measure],
        "middleware": [create_middleware("asks", before_tool=ask)],
    }  # fmt: skip
    middleware = create_sub_agent_middleware("openai:none", [clerk])
    agent = made(call("task", description="go", subagent_type="clerk"), middleware=[middleware])
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        child = await waiting(env.client.get(f"{run.id}/call_1_1")) if await began(env, run) else run
        assert (await run.info()).pending == ()
        await child.decide("measure", "approve")
        assert await results(run) == ["done"]


async def began(env: LocalEnv, run: Run) -> bool:
    """Once the run has its sub-agent."""
    while not [found async for found in env.temporal.list_workflows(f"WorkflowId = '{run.id}/call_1_1'")]:
        await asyncio.sleep(0.05)
    return True

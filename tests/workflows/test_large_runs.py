"""Runs whose conversation outgrows what Temporal carries: with storage they go on, without it they park and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast import Agent, AgentOptions, AgentRunPaused, tool
from outlast.messages import user
from outlast.state import HistoryLimits
from outlast.testing import ScriptedModel, call, local_env
from outlast.testing.scripted import Reply

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
def fetch(size: int) -> str:
    """Fetch a page of so many characters."""
    return "x" * size


def fetcher(pages: int, size: int) -> Agent:
    script: list[Reply] = [*(call("fetch", size=size) for _ in range(pages)), "done"]
    return Agent(AgentOptions(name="fetcher", model=ScriptedModel(script), tools=[fetch]))


async def test_without_storage_a_run_that_grew_too_large_parks_and_names_the_way_out() -> None:
    async with local_env([fetcher(12, 300_000)]) as env:
        run = await env.client.start("fetcher", "go")
        with pytest.raises(AgentRunPaused, match="configure storage"):
            await run.result()
        assert (await run.info()).step >= 5


async def test_with_storage_the_same_run_ends(tmp_path: Path) -> None:
    async with local_env([fetcher(12, 300_000)], storage=tmp_path) as env:
        result = await (await env.client.start("fetcher", "go")).result()
        assert result.steps == 13
        assert sum(len(item.text) for message in result.messages for item in message.tool_results) == 12 * 300_000


async def test_a_state_larger_than_the_limit_does_not_hand_over_for_ever() -> None:
    async with local_env([fetcher(4, 1_000)]) as env:
        env.client.history_limits = HistoryLimits(size=50_000)
        run = await env.client.start("fetcher", messages=[user("y" * 100_000)])
        assert (await run.result()).steps == 5
        assert len(await env.histories()) <= 6

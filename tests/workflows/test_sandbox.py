"""The sandbox guards hooks: a clock, luck, the environment or a file in a hook parks the run and names the hook."""

from __future__ import annotations

import pytest

from outlast import AgentRunPaused
from outlast.testing import local_env
from tests.workflows.naughty_agents import NAUGHTY, a0, a1, a2, a3, a4, a5

AGENTS = [a0, a1, a2, a3, a4, a5]


@pytest.mark.parametrize("number", range(len(NAUGHTY)), ids=list(NAUGHTY))
async def test_what_would_not_replay_parks_the_run_and_names_the_hook(number: int) -> None:
    async with local_env(AGENTS) as env:
        run = await env.client.start(f"agent{number}", "go")
        with pytest.raises(AgentRunPaused) as caught:
            await run.result()
        assert caught.value.where == f"before_model of 'naughty{number}'"
        assert "RestrictedWorkflowAccessError" in caught.value.error

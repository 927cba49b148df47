"""pytest fixtures for tests of agents; active wherever outlast is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from outlast.testing.env import LocalEnv


@pytest_asyncio.fixture
async def replay_every_run() -> AsyncIterator[list[LocalEnv]]:
    """After the test, every run of its :func:`outlast.testing.local_env` environments is replayed.

    Use it for a whole module with ``pytestmark = pytest.mark.usefixtures("replay_every_run")``.
    """
    from outlast.testing.env import open_envs
    from outlast.testing.replay import replay

    open_envs.clear()
    yield open_envs
    for env in open_envs:
        await replay(env.agents, await env.histories(), storage=env.storage)
    open_envs.clear()

"""pytest fixtures for tests of agents, idle until they are asked for.

``local_server``: the session's own Temporal server. ``replay_every_run``: replays every run of a test at its end; for a
whole project put this into ``conftest.py``::

    @pytest.fixture(autouse=True)
    def replayed(replay_every_run): ...

A test that means to run something that does not replay is marked ``@pytest.mark.no_replay``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from outlast.devserver import DevServer
    from outlast.testing.env import LocalEnv


@pytest_asyncio.fixture
async def local_server() -> DevServer:
    """A real Temporal server on this machine, the one that :func:`outlast.testing.local_env` uses too."""
    from outlast.testing.env import local_server

    return await local_server()


@pytest_asyncio.fixture
async def replay_every_run(request: pytest.FixtureRequest) -> AsyncIterator[list[LocalEnv]]:
    """After the test, every run of its :func:`outlast.testing.local_env` environments is replayed."""
    from outlast.testing.env import open_envs

    __tracebackhide__ = True
    open_envs.clear()
    yield open_envs
    envs = [] if request.node.get_closest_marker("no_replay") else list(open_envs)
    open_envs.clear()
    for env in envs:
        await env.replay()

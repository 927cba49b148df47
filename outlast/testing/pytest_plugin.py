"""For pytest, active wherever outlast is installed: the fixtures of :mod:`outlast.testing.fixtures`, and a marker."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker and the fixtures known; without pytest-asyncio, which they need, there are none."""
    config.addinivalue_line("markers", "no_replay: the runs of this test are not replayed by replay_every_run")
    if importlib.util.find_spec("pytest_asyncio") is not None:
        config.pluginmanager.import_plugin("outlast.testing.fixtures")

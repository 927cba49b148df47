"""Fixtures: a fake provider on loopback, and no key of the machine that runs the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast import models

from .fake_server import FakeServer, running

_VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL",
    "LLAMACPP_API_KEY", "LLAMACPP_BASE_URL", "OLLAMA_API_KEY", "OLLAMA_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL",
    "VLLM_API_KEY", "VLLM_BASE_URL",
)  # fmt: skip


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider is configured, and no proxy stands between us and loopback."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """A fake provider; connections are closed afterwards."""
    async with running() as fake:
        yield fake
        await models.close()

"""What an import loads: nobody pays for what he does not use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HTTP = {"httpx", "httpx_sse", "httpcore", "h11", "requests", "aiohttp", "urllib3"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules and our own ones that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    names = json.loads(output)
    return {name.partition(".")[0] for name in names} | {name for name in names if name.startswith("outlast.")}


@pytest.mark.parametrize(
    "statement",
    [
        "import outlast",
        "from outlast import *",
        "import outlast.middleware",
        "from outlast.testing import *",
        "from outlast import Client, AgentPlugin",
    ],
)
def test_no_import_of_ours_loads_an_http_client(statement: str) -> None:
    assert not loaded_by(statement) & HTTP


def test_agents_are_made_without_loading_temporal() -> None:
    loaded = loaded_by("from outlast import Agent, AgentOptions, tool, create_middleware, side_effect, RunResult")
    assert "temporalio" not in loaded
    assert "outlast.models" not in loaded


def test_a_scripted_model_is_made_without_loading_temporal() -> None:
    loaded = loaded_by("from outlast.testing import ScriptedModel, call, calls, text")
    assert "temporalio" not in loaded
    assert "outlast.testing.env" not in loaded


def test_a_prebuilt_middleware_is_loaded_when_it_is_asked_for() -> None:
    assert "outlast.middleware.human_in_the_loop" not in loaded_by("import outlast.middleware")
    assert "outlast.middleware.human_in_the_loop" in loaded_by("from outlast.middleware import human_in_the_loop")


def test_every_public_name_is_there_and_sorted() -> None:
    import outlast

    assert outlast.__all__ == sorted(outlast.__all__)
    assert all(getattr(outlast, name) is not None for name in outlast.__all__)

"""What the README and docs/ show, run on a real server as a reader would."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path

import pytest

from outlast.model import ModelRequest
from outlast.testing import ScriptedModel, call, local_env
from outlast.testing.scripted import Reply
from tests.snippets import ROOT, Snippet, snippet, snippets

ON_SERVER = [found for found in snippets() if "local_env" in found.code]


@pytest.mark.parametrize("found", ON_SERVER, ids=lambda found: f"{found.page}:{found.name}")
async def test_the_server_tests_of_the_docs_pass(found: Snippet, tmp_path: Path) -> None:
    tests = [f for name, f in vars(found.load(tmp_path)).items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert inspect.iscoroutinefunction(test)
        await test()


def turn(request: ModelRequest) -> Reply:
    turns: list[Reply] = [
        call("search_notes", query="changes"),
        call("publish", title="1.2", text="Exports."),
        "Published.",
    ]
    return turns[sum(message.role == "tool" for message in request.messages)]


async def test_the_readmes_agent_waits_for_the_readmes_signal(tmp_path: Path) -> None:
    module = snippet("README.md", "agents.py").load(tmp_path)
    readme = (ROOT / "README.md").read_text()
    [shown] = re.findall(r"--name decide \\\n\s+--input '(\{.*\})'", readme)
    async with local_env([module.editor], resolve=lambda name: ScriptedModel([turn] * 9, name=name)) as env:
        run = await env.client.start("editor", "Write the release note")
        while not await run.pending():
            await asyncio.sleep(0.02)
        await env.temporal.get_workflow_handle(run.id).signal("decide", json.loads(shown))
        result = await run.result()
        assert result.output == "Published."
        assert result.audit[0].decision.by == "alice"


async def test_the_readmes_start_in_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = snippet("README.md", "agents.py").load(tmp_path)
    start = snippet("README.md", "start.py").load(tmp_path)
    resolve = {"openai:gpt-5": ScriptedModel(["No changes."])}
    async with local_env([module.editor], resolve=resolve.__getitem__) as env:
        monkeypatch.setenv("TEMPORAL_ADDRESS", env.address)
        monkeypatch.setenv("OUTLAST_TASK_QUEUE", env.task_queue)
        await start.main()
    assert "No changes. 15" in capsys.readouterr().out

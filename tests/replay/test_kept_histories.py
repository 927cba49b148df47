"""Histories of every released version replay with the code of today: its open runs go on after an upgrade, for ever."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from outlast.agent import Agent
from outlast.testing import ReplayFailed, replay

HISTORIES = Path(__file__).parent / "histories"
VERSIONS = sorted(folder.name for folder in HISTORIES.iterdir())


def kept(version: str) -> list[WorkflowHistory]:
    found = []
    for file in sorted((HISTORIES / version).glob("*.json")):
        text = file.read_text()
        attributes = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
        found.append(WorkflowHistory.from_json(attributes["workflowId"], text))
    return found


def agents_of(version: str) -> list[Agent]:
    agents: list[Agent] = importlib.import_module(f"tests.replay.agents_{version}").AGENTS
    return agents


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_kept_history_replays(version: str) -> None:
    histories = kept(version)
    await replay(agents_of(version), *histories, exact=False)


def test_the_first_version_kept_a_run_of_every_kind() -> None:
    ids = {history.workflow_id for history in kept("v0_1")}
    names = {agent.name for agent in agents_of("v0_1")}
    assert {f"kept-v0_1-{name}" for name in names} <= ids
    assert any("/" in workflow_id for workflow_id in ids)  # a sub-agent's
    executions = [history.workflow_id for history in kept("v0_1")]
    assert executions.count("kept-v0_1-long") > 1
    assert executions.count("kept-v0_1-paused") > 1


async def test_a_kept_history_does_not_replay_with_another_agents_code() -> None:
    [plain, parallel, *_] = agents_of("v0_1")
    history = next(item for item in kept("v0_1") if item.workflow_id.endswith("-plain"))
    text = history.to_json().replace("s0001.tool.1", "s0001.tool.9")
    with pytest.raises(ReplayFailed, match=r"kept-v0_1-plain.*s0001\.tool\.9"):
        await replay([plain, parallel], WorkflowHistory.from_json(history.workflow_id, text), exact=False)


def test_kept_histories_name_no_machine() -> None:
    for history in (item for version in VERSIONS for item in kept(version)):
        for event in history.events:
            data = event.SerializeToString()
            assert not re.search(rb"\d@(?!worker)[a-z]", data), event
            assert not re.search(rb'File \\?"/(?!outlast|\.venv|lib)', data), event

"""AC-117 on a real server: each operation is an activity of its own, and nothing a path says ends a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType

from outlast import Agent, AgentOptions
from outlast.middleware import filesystem_middleware
from outlast.testing import ScriptedModel, call, calls, local_env
from outlast.testing.scripted import Reply

pytestmark = pytest.mark.usefixtures("replay_every_run")


async def test_a_run_works_in_its_folder_and_survives_its_own_mistakes(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("../secret")
    script: list[Reply] = [
        calls(call("write_file", path="/docs/plan.md", content="one\ntwo\n"), call("read_file", path="link")),
        calls(
            call("edit_file", path="docs/plan.md", old_string="one", new_string="1"),
            call("edit_file", path="docs/plan.md", old_string="two", new_string="2"),
            call("write_file", path="../secret", content="mine"),
        ),
        calls(call("ls", path="docs"), call("read_file", path="docs/plan.md")),
        "done",
    ]
    agent = Agent(
        AgentOptions(name="clerk", model=ScriptedModel(script), middleware=[filesystem_middleware(tmp_path / "root")])
    )
    async with local_env([agent]) as env:
        run = await env.client.start("clerk", "write a plan")
        result = await run.result()
        history = await env.temporal.get_workflow_handle(run.id).fetch_history()
    answers = [found.text for message in result.messages for found in message.tool_results]
    assert answers[0] == "Created /docs/plan.md (8 bytes)."
    assert answers[1].startswith("Error: 'link' leads out of the workspace")
    assert answers[2:4] == ["Edited docs/plan.md: 1 place."] * 2
    assert answers[4].startswith("Error: '../secret' leads out of the workspace")
    assert answers[5:] == ["plan.md (4 bytes)", "1\n2\n"]
    assert (tmp_path / "secret").read_text() == "outside"
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    assert sorted(set(scheduled)) == ["call_model", "edit_file", "ls", "read_file", "write_file"]
    assert len(scheduled) == 4 + 7

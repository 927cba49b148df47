"""AC-84, AC-88, AC-89: with ``at_edges`` nothing that a real server keeps, shows or logs holds the secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, AgentRunFailed, AgentRunPaused, Client, ToolRejection
from outlast.devserver import DevServer
from outlast.messages import assistant, user
from outlast.middleware import model_retry, pii_redact
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.testing import ScriptedModel, local_env, replay
from outlast.testing.histories import fetch_histories
from outlast.watch import TextDelta
from tests.workflows import staff_agent as staff
from tests.workflows.private_agents import CANARY, failing, got, shown, support

SECRET = b"canary.7f3a"
MARKERS = [
    b"KEEP-%s" % name
    for name in (b"earlier", b"input", b"send", b"args", b"result", b"exception", b"rejection", b"completion", b"edit",
                 b"reason", b"comment", b"description", b"failure", b"provider", b"abort")
]  # fmt: skip


@dataclass
class Seen:
    """Everything that was to be seen from outside while the runs went on."""

    texts: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def find(self, wanted: bytes) -> bool:
        return any(wanted in item for item in self.raw) or any(wanted.decode() in text for text in self.texts)


@asynccontextmanager
async def server_on_disk(folder: Path, agents: list[Agent]) -> AsyncIterator[Client]:
    """A server of its own, whose files can be searched after its end."""
    server = DevServer(db_filename=folder / "server.db", log_file=folder / "server.log", log_level="debug")
    async with server:
        temporal = await connect(Settings.load(address=server.address, environ={}))
        filters = [middleware for agent in agents for middleware in agent.middleware]
        async with Worker(temporal, task_queue="outlast", plugins=[AgentPlugin(agents)]):
            yield Client(temporal, filters=filters)


async def look(run: Run, seen: Seen) -> None:
    """Describe it again and again: memo, heartbeats, failures of attempts."""
    handle = run.temporal.get_workflow_handle(run.id)
    while True:
        seen.raw.append((await handle.describe()).raw_description.SerializeToString())
        await asyncio.sleep(0.03)


async def watch(run: Run, seen: Seen) -> None:
    async for event in run.events():
        seen.texts.append(event.model_dump_json())
        shown.extend([event.text] if isinstance(event, TextDelta) else [])


async def until_pending(run: Run, seen: Seen) -> None:
    while not (pending := await run.pending()):
        await asyncio.sleep(0.02)
    seen.texts += [item.model_dump_json() for item in pending]


async def converse(client: Client, seen: Seen) -> None:
    """A whole conversation: input, messages, arguments, results, exceptions, approvals, a sub-agent, steering."""
    earlier = [user(f"KEEP-earlier {CANARY}"), assistant(f"noted {CANARY}")]
    run = await client.start("support", f"KEEP-input {CANARY}", id="conversation", messages=earlier)
    watching = [asyncio.create_task(work(run, seen)) for work in (look, watch)]
    await until_pending(run, seen)
    seen.texts += [item.model_dump_json() for item in await client.pending()]
    await run.send(f"KEEP-send {CANARY}")
    await run.decide("mail", {"edit": {"to": f"KEEP-edit {CANARY}"}}, by="alice", comment=f"KEEP-comment {CANARY}")
    await until_pending(run, seen)
    await run.decide("mail", {"reject": f"KEEP-reason {CANARY}"}, by="alice")
    await until_pending(run, seen)
    await run.decide("ask", "approve", by="alice")
    seen.texts.append((await run.result()).model_dump_json())
    watching[0].cancel()
    await watching[1]


async def fail(client: Client, seen: Seen) -> None:
    """Runs that end with an error, that park and are aborted."""
    for name in ("unheard", "stopped"):
        with pytest.raises(AgentRunFailed) as failed:
            await (await client.start(name, CANARY, id=name)).result()
        seen.texts.append(str(failed.value))
    parked = await client.start("parked", CANARY, id="parked")
    with pytest.raises(AgentRunPaused) as paused:
        await parked.result()
    seen.texts += [str(paused.value), (await parked.info()).model_dump_json()]
    await parked.abort(f"KEEP-abort {CANARY}")


async def histories(client: Client, seen: Seen) -> None:
    listed = [execution async for execution in client.temporal.list_workflows("")]
    seen.raw += [execution.raw_info.SerializeToString() for execution in listed]
    found = await fetch_histories(client.temporal, [(item.id, item.run_id) for item in listed])
    seen.raw += [event.SerializeToString() for history in found for event in history.events]
    seen.texts += [str(history.workflow_id) for history in found]


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


async def run_everything(folder: Path, at_edges: bool) -> tuple[Seen, bytes]:
    """What was seen, and what the server left on its disk."""
    got.clear()
    shown.clear()
    agent, _ = support(at_edges)
    agents, seen = [agent, *failing(at_edges)], Seen()
    async with server_on_disk(folder, agents) as client:
        await converse(client, seen)
        await fail(client, seen)
        await histories(client, seen)
        found = await fetch_histories(
            client.temporal, [(name, None) for name in ("conversation", "stopped", "unheard")]
        )
        await replay(agents, found)
    return seen, on_disk(folder)


async def test_at_the_edges_no_payload_memo_failure_heartbeat_id_log_or_file_holds_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen, disk = await run_everything(tmp_path, at_edges=True)
    assert [marker for marker in MARKERS if marker not in disk] == []  # all of it went through the server
    assert SECRET not in disk
    assert b"@example.com" not in disk
    assert not seen.find(SECRET)
    assert SECRET.decode() not in caplog.text
    assert "KEEP-completion for [REDACTED_EMAIL]," in "".join(shown)
    assert [item for item in got if item != "asked"] == [
        "[REDACTED_EMAIL]",
        "KEEP-edit [REDACTED_EMAIL]",
        "[REDACTED_EMAIL]",
    ]


async def test_without_edges_the_history_holds_what_was_said_and_the_model_does_not_see_it(tmp_path: Path) -> None:
    """AC-88, AC-89: the transcript is the user's; answers, results, errors, deltas and events are redacted."""
    got.clear()
    shown.clear()
    agent, model = support(at_edges=False)
    seen = Seen()
    async with server_on_disk(tmp_path, [agent]) as client:
        await converse(client, seen)
        await histories(client, seen)
    assert b"KEEP-input canary" in on_disk(tmp_path)
    for brought_by_an_activity in (b"KEEP-completion for ", b"KEEP-exception ", b"KEEP-rejection "):
        assert seen.find(brought_by_an_activity + b"[REDACTED_EMAIL]")
        assert brought_by_an_activity + b"canary" not in on_disk(tmp_path)
    assert seen.find(b"KEEP-input canary")
    assert SECRET.decode() not in "".join(shown)
    assert "for [REDACTED_EMAIL]," in "".join(shown)
    for request in model.requests:
        texts = [message.text + "".join(r.text for r in message.tool_results) for message in request.messages]
        assert SECRET.decode() not in "".join(texts)


async def test_a_detector_of_ones_own_runs_in_activities_and_not_in_workflow_code() -> None:
    """AC-87: on input, answers and results; the one here refuses to work anywhere else."""
    staff.model.requests.clear()
    async with local_env([staff.agent]) as env:
        run = await env.client.start("staff", "I am EMP-123456")
        result = await run.result()
        history = str(await env.temporal.get_workflow_handle(run.id).fetch_history())
    assert staff.model.requests[0].messages[0].text == "I am [REDACTED_STAFF]"
    assert result.messages[0].text == "I am EMP-123456"
    assert [message.text for message in result.messages if message.role == "assistant"][-1] == "hello [REDACTED_STAFF]"
    assert result.messages[2].tool_results[0].text == "found [REDACTED_STAFF]"
    assert "EMP-654321" not in history


async def test_a_detector_that_takes_too_long_parks_the_run_and_no_retry_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AC-87."""
    monkeypatch.setattr("outlast.activities.filters.LIMIT_SECONDS", 0.05)
    agent = Agent(AgentOptions(name="slow", model=ScriptedModel(["x"]), middleware=[model_retry(3, 1), staff.slow]))
    async with local_env([agent]) as env:
        run = await env.client.start("slow", "hi")
        with pytest.raises(AgentRunPaused, match="a detector of pii_redact: it took longer"):
            await run.result()
        await run.abort("enough")


async def test_a_client_refuses_a_blocked_input_before_there_is_a_run() -> None:
    """AC-81."""
    blocking = pii_redact("email", "block", at_edges=True)
    agent = Agent(AgentOptions(name="strict", model=ScriptedModel([]), middleware=[blocking]))
    async with local_env([agent]) as env:
        with pytest.raises(ToolRejection, match=r"a message to the model held email \(1\)"):
            await env.client.start("strict", CANARY)
        assert env.started == []


async def test_a_client_refuses_a_run_id_that_holds_the_secret() -> None:
    agent, _ = support(at_edges=True)
    async with local_env([agent]) as env:
        with pytest.raises(ValueError, match="ids are seen everywhere"):
            await env.client.start("support", "hi", id=f"for-{CANARY}")

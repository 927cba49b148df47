"""Old messages leave a run's memory at a handover, and nothing of the conversation is lost."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path

import pytest

from outlast import Agent, AgentOptions, HookContext, create_middleware, tool
from outlast.errors import OutlastError
from outlast.messages import Message, sequence_fault, user
from outlast.middleware import summarization_middleware
from outlast.model import Completion, ModelRequest
from outlast.run import Run
from outlast.testing import LocalEnv, ScriptedModel, call, local_env, text
from outlast.testing.histories import fetch_histories

STEPS = 60


@tool
async def read(page: int) -> str:
    """Read a page."""
    await asyncio.sleep(0)
    return f"page {page}: " + "x" * 4000


def onwards(request: ModelRequest) -> Completion:
    """The page after the last one; a summary where there are no tools."""
    if not request.tools:
        return text("pages were read")
    pages = [block.parse_args()[0]["page"] for message in request.messages for block in message.tool_calls]
    page = int(str(pages[-1])) + 1 if pages else 1
    return call("read", page=page) if page <= STEPS else text("read them all")


def watch_requests(request: ModelRequest, ctx: HookContext) -> None:
    """What a hook in front of the summaries sees: counted, and checked for what must be there."""
    sizes = ctx.invocation_state.setdefault("sizes", [])
    assert isinstance(sizes, list)
    sizes.append(len(request.messages))
    texts = [message.text for message in request.messages if message.role == "user"]
    ctx.invocation_state["asked"] = list(texts)
    assert sequence_fault(request.messages) is None


def reader(name: str) -> Agent:
    model = ScriptedModel([onwards] * 10_000)
    summaries = summarization_middleware(model=model, trigger_tokens=8_000, keep_messages=6)
    stack = [create_middleware("watcher", before_model=watch_requests), summaries]
    return Agent(AgentOptions(name=name, model=model, tools=[read], middleware=stack))


async def executions(env: LocalEnv, run: Run) -> int:
    return len(await fetch_histories(env.client.temporal, [(run.id, None)]))


def pages(messages: list[Message] | tuple[Message, ...]) -> list[int]:
    return [int(block.text.split(":")[0].split()[1]) for message in messages for block in message.tool_results]


EARLIER = [user("Read the pages"), user("and mind the margins", pinned=True)]


@pytest.mark.usefixtures("replay_every_run")
async def test_a_long_run_keeps_little_in_memory_and_returns_all_of_its_transcript(tmp_path: Path) -> None:
    async with local_env([reader("reader")], storage=tmp_path, continue_as_new_events=240) as env:
        run = await env.client.start("reader", messages=EARLIER)
        result = await run.result()
        assert await executions(env, run) > 2
        assert pages(result.messages) == list(range(1, STEPS + 1))
        assert result.messages == tuple(await run.messages()) == (await run.snapshot()).messages
        assert sequence_fault(result.messages) is None
        ids = [message.id for message in result.messages]
        assert ids == [f"m{number}" for number in range(1, 2 * STEPS + 4)]
    sizes = result.invocation_state["sizes"]
    assert isinstance(sizes, list)
    assert max(sizes) < 80 < len(result.messages)
    assert result.invocation_state["asked"] == [message.text for message in EARLIER]


async def test_a_store_that_lost_old_messages_costs_those_and_not_the_run(tmp_path: Path) -> None:
    async with local_env([reader("loser")], storage=tmp_path, continue_as_new_events=240) as env:
        run = await env.client.start("loser", messages=EARLIER)
        result = await run.result()
        assert not result.messages_omitted
        [part, *_] = (await run.temporal.get_workflow_handle(run.id).query("messages"))["archived"]
        object_of(part, tmp_path).unlink()
        with pytest.raises(OutlastError, match=f"{part['messages']} of its older messages cannot be read here"):
            await run.messages()
        result = await run.result()
    assert result.output == "read them all"
    assert result.messages_omitted
    assert result.messages == ()


def object_of(part: dict[str, str], root: Path) -> Path:
    """The file in which a part of the transcript lies."""
    [digest] = re.findall(rb'"object": *"([0-9a-f]{64})"', base64.b64decode(part["payload"]))
    [path] = root.rglob(digest.decode())
    return path

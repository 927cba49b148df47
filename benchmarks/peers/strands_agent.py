"""Strands Agents with Temporal's plugin.

Source: https://github.com/temporalio/ai-integrations/tree/main/python/strands_agents (models by name,
``activity_as_tool``, "Hook-based interrupts" with a signal).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from strands.hooks import HookProvider, HookRegistry
from strands.hooks.events import BeforeToolCallEvent
from strands.models import Model
from temporalio import activity, workflow
from temporalio.strands_agents import StrandsPlugin, TemporalAgent
from temporalio.strands_agents.workflow import activity_as_tool

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call

LIMIT = timedelta(seconds=60)


class Scripted(Model):
    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        results = sum("toolResult" in block for message in messages for block in message["content"])
        call = next_call(messages[0]["content"][0]["text"], results)
        yield {"messageStart": {"role": "assistant"}}
        if call is None:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
        else:
            name, arguments = call
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{results}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if call is None else "tool_use"}}


@activity.defn
async def fetch(page: int, size: int, of: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
        of: How many pages there are.
    """
    return "x" * size


@activity.defn
async def publish(title: str) -> str:
    """Publish a report.

    Args:
        title: Its title.
    """
    return "published"


class Approval(HookProvider):
    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.gate)

    def gate(self, event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] == "publish" and event.interrupt("approval", reason="publish?") != "approve":
            event.cancel_tool = "denied"


@workflow.defn
class Bench:
    def __init__(self) -> None:
        self.approved = False
        self.agent = TemporalAgent(
            model="scripted",
            start_to_close_timeout=LIMIT,
            system_prompt=INSTRUCTIONS,
            tools=[activity_as_tool(tool, start_to_close_timeout=LIMIT) for tool in (fetch, publish)],
            hooks=[Approval()],
            callback_handler=None,
        )

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, prompt: str) -> str:
        result = await self.agent.invoke_async(prompt)
        while result.stop_reason == "interrupt":
            await workflow.wait_condition(lambda: self.approved)
            self.approved = False
            answers = [
                {"interruptResponse": {"interruptId": one.id, "response": "approve"}} for one in result.interrupts
            ]
            result = await self.agent.invoke_async(answers)
        return str(result)


def worker() -> Served:
    return Served(
        workflows=[Bench], activities=[fetch, publish], plugins=[StrandsPlugin(models={"scripted": Scripted})]
    )

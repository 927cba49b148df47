"""OpenAI Agents with Temporal's plugin.

Sources: https://github.com/temporalio/ai-integrations/tree/main/python/openai_agents (plugin, ``activity_as_tool``, a
model provider of one's own); https://openai.github.io/openai-agents-python/human_in_the_loop/ (``needs_approval``).
"""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from typing import Any

from agents import Agent, Model, ModelResponse, Runner
from temporalio import activity, workflow
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider
from temporalio.openai_agents.workflow import activity_as_tool

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call

LIMIT = timedelta(seconds=60)


class Scripted(Model):
    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        items = [{"content": input}] if isinstance(input, str) else input
        results = sum(item.get("type") == "function_call_output" for item in items)
        call = next_call(items[0]["content"], results)
        if call is None:
            return ResponseBuilders.output_message("done")
        name, arguments = call
        return ResponseBuilders.tool_call(json.dumps(arguments), name, call_id=f"call-{results}")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


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


@workflow.defn
class Bench:
    def __init__(self) -> None:
        self.approved = False

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, prompt: str) -> str:
        publishing = dataclasses.replace(activity_as_tool(publish, start_to_close_timeout=LIMIT), needs_approval=True)
        agent = Agent(
            name="bench",
            instructions=INSTRUCTIONS,
            tools=[activity_as_tool(fetch, start_to_close_timeout=LIMIT), publishing],
        )
        result = await Runner.run(agent, prompt, max_turns=100_000)
        while result.interruptions:
            await workflow.wait_condition(lambda: self.approved)
            self.approved = False
            state = result.to_state()
            for interruption in result.interruptions:
                state.approve(interruption)
            result = await Runner.run(agent, state, max_turns=100_000)
        return str(result.final_output)


def worker() -> Served:
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=LIMIT),
        model_provider=TestModelProvider(Scripted()),
    )
    return Served(workflows=[Bench], activities=[fetch, publish], plugins=[plugin])

"""A run that goes on with an earlier conversation gives its calls ids that are new in it."""

from __future__ import annotations

from outlast import Agent, AgentOptions, tool
from outlast.messages import Message, sequence_fault
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import Reply, ScriptedModel, call


@tool
def look() -> str:
    """Look."""
    return "seen"


async def test_three_runs_on_end_hold_no_call_id_twice() -> None:
    turns: list[Reply] = [call("look"), call("look"), "done"]
    agent = Agent(AgentOptions(name="a", model=ScriptedModel(turns * 3), tools=[look]))
    messages: tuple[Message, ...] = ()
    for _ in range(3):
        run = MemoryRuntime(agent, "go on", messages=messages)
        run.restart()
        messages = (await run.result()).messages
        assert sequence_fault(messages) is None
    assert len({made.id for message in messages for made in message.tool_calls}) == 6

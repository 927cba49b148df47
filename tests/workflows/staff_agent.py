"""An agent with a detector of its own, which refuses to work in workflow code."""

from __future__ import annotations

import re
import time

from temporalio import workflow

from outlast import Agent, AgentOptions, tool
from outlast.middleware import pii_redact
from outlast.testing import ScriptedModel, call


def staff_numbers(text: str) -> list[tuple[int, int]]:
    """Spans of staff numbers."""
    if workflow.in_workflow():
        raise RuntimeError("not here")
    return [match.span() for match in re.finditer(r"EMP-\d{6}", text)]


def sleepy(text: str) -> list[tuple[int, int]]:
    """Takes half a second."""
    time.sleep(0.5)
    return []


slow = pii_redact("slow", detector=sleepy)


@tool
def lookup() -> str:
    """Look somebody up."""
    return "found EMP-654321"


model = ScriptedModel([call("lookup"), "hello EMP-654321"])
agent = Agent(
    AgentOptions(name="staff", model=model, tools=[lookup], middleware=[pii_redact("staff", detector=staff_numbers)])
)

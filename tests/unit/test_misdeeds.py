"""Whatever hooks and tools give: the run parks, ends or tells the model, and its state can be written (T4, T6)."""

from __future__ import annotations

import re

import pytest

from outlast import AgentRunFailed, AgentRunPaused
from outlast.messages import dump_messages, load_messages, sequence_fault
from outlast.testing import MemoryRuntime
from tests.unit.misdeeds import (
    Case,
    argument_cases,
    effect_cases,
    hook_cases,
    tool_cases,
)

CASES = {**hook_cases(), **argument_cases(), **tool_cases(), **effect_cases()}
del CASES["heart"]  # without a server nothing beats


async def outcome_of(run: MemoryRuntime) -> str:
    try:
        result = await run.result()
    except AgentRunPaused as error:
        return f"paused {error.where}: {error.error}"
    except AgentRunFailed as error:
        return f"failed {error.code}: {error.message}"
    return " ".join(found.text for message in result.messages for found in message.tool_results)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_misdeed_becomes_what_is_documented_and_the_state_survives_a_restart(case: Case) -> None:
    run = MemoryRuntime(case.agent, "go")
    outcome = await outcome_of(run)
    said = case.outcome if case.outcome.startswith(("paused", "failed")) else f".*({case.outcome})"
    assert re.match(f"(?s){said}", outcome), outcome
    run.state.pack()
    before = run.state.model_dump_json()
    assert load_messages(dump_messages(run.state.transcript)) == tuple(run.state.transcript)
    run.restart()
    assert run.state.model_dump_json() == before
    if run.state.status != "paused":
        assert sequence_fault(run.state.transcript) is None

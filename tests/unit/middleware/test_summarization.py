"""AC-90 to AC-98, D1 to D5, D8, D9, D13: notes on the old part, the newest messages as they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import Agent, AgentOptions, tool
from outlast.errors import RateLimited
from outlast.messages import (
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    assistant,
    sequence_fault,
    tool_message,
    user,
)
from outlast.middleware import summarization_middleware
from outlast.middleware.summarization import find_cut
from outlast.model import Completion
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import Reply, ScriptedModel, call, text
from outlast.usage import Usage

NO_USAGE = Usage()


def calling(*ids: str, signed: bool = False) -> Message:
    blocks: list[Any] = [ReasoningBlock(text="hm", signature="sig")] if signed else []
    return Message(role="assistant", blocks=(*blocks, *(ToolCallBlock(id=call_id, name="look") for call_id in ids)))


def answered(call_id: str, words: int = 10) -> Message:
    content = (TextBlock(text="word " * words),)
    return tool_message(ToolResultBlock(call_id=call_id, name="look", content=content))


@tool
def look(n: int) -> str:
    """Look."""
    return f"fact {n} " + "word " * 60


def looking(steps: int) -> list[Reply]:
    asks = (call("look", n=n).message for n in range(steps))
    turns: list[Reply] = []
    turns += (Completion(message=message, usage=NO_USAGE, finish="tool_use") for message in asks)
    return [*turns, text("done", usage=NO_USAGE)]


def agent(model: ScriptedModel, summarizer: ScriptedModel, *, trigger: int, keep: int = 4, **options: Any) -> Agent:
    summarization = summarization_middleware(summarizer, trigger, keep, **options)
    return Agent(
        AgentOptions(name="a", model=model, instructions="Be brief.", tools=[look], middleware=[summarization])
    )


async def test_past_the_trigger_the_model_sees_one_summary_and_the_newest_messages() -> None:
    """AC-91, AC-93, AC-97, D5: called once per crossing, old notes folded in, one summary in each request."""
    model, summarizer = ScriptedModel(looking(20)), ScriptedModel(["first notes", "second notes", "third notes"])
    run = MemoryRuntime(agent(model, summarizer, trigger=700), "find the facts")
    result = await run.result()
    assert 2 <= len(summarizer.requests) <= 3
    assert "first notes" in summarizer.requests[1].messages[0].text
    for request in model.requests:
        assert sequence_fault(request.messages) is None
        assert sum(message.text.startswith("Notes on the earlier part") for message in request.messages) <= 1
    last = model.requests[-1].messages
    assert [message.role for message in last[:2]] == ["system", "user"]
    assert len(last) < 20
    assert len(result.messages) == 42
    assert result.steps == 21
    assert result.usage.model_calls == 21 + len(summarizer.requests)


async def test_the_summary_survives_a_restart() -> None:
    model, summarizer = ScriptedModel(looking(8)), ScriptedModel(["notes"] * 3)
    run = MemoryRuntime(agent(model, summarizer, trigger=700), "find the facts")
    await run.result()
    run.restart()
    assert run.state.invocation_state["summarization"]["summary"] == "notes"


async def test_the_summarizer_gets_plain_text_and_no_tools() -> None:
    """D8, D13."""
    summarizer = ScriptedModel(["notes"] * 3)
    await MemoryRuntime(agent(ScriptedModel(looking(8)), summarizer, trigger=500), "find the facts").result()
    [message] = summarizer.requests[0].messages
    assert summarizer.requests[0].tools == ()
    assert "look answered: fact 0" in message.text
    assert "ToolCallBlock" not in message.text


@pytest.mark.parametrize("failure", [RateLimited("slow down"), call("look", n=1), text("  ")])
async def test_when_the_summarizer_fails_the_run_goes_on_with_the_whole_conversation(failure: Reply) -> None:
    """AC-94, D9: no error text and no foreign call in the conversation; watchers are told."""
    model, summarizer = ScriptedModel(looking(6)), ScriptedModel([failure] * 9)
    run = MemoryRuntime(agent(model, summarizer, trigger=500), "find the facts")
    result = await run.result()
    assert result.output == "done"
    assert len(model.requests[-1].messages) == 14
    assert len(summarizer.requests) <= 2
    assert any(event.kind == "custom" and "summarization failed" in str(event.data) for event in run.events)


async def test_a_tail_that_is_too_large_by_itself_does_not_call_the_summarizer_at_every_step() -> None:
    """D4."""
    model, summarizer = ScriptedModel(looking(8)), ScriptedModel(["notes"] * 8)
    await MemoryRuntime(agent(model, summarizer, trigger=60, keep=2), "find the facts").result()
    assert len(summarizer.requests) <= 8
    for request in model.requests:
        assert sequence_fault(request.messages) is None


async def test_pinned_messages_stay() -> None:
    """AC-96."""
    model = ScriptedModel(looking(8))
    earlier = [user("never delete anything", pinned=True), assistant("understood"), user("find the facts")]
    await MemoryRuntime(agent(model, ScriptedModel(["notes"] * 3), trigger=500), messages=earlier).result()
    assert "never delete anything" in [message.text for message in model.requests[-1].messages]


async def test_a_large_old_part_is_read_in_pieces_and_nothing_is_skipped() -> None:
    summarizer = ScriptedModel([f"notes {n}" for n in range(40)])
    earlier = [user("start"), *(m for n in range(20) for m in (assistant(f"fact {n} " + "w " * 200), user("go on")))]
    run = MemoryRuntime(
        agent(ScriptedModel(["done"]), summarizer, trigger=800, summary_input_tokens=300), messages=earlier
    )
    await run.result()
    seen = " ".join(request.messages[0].text for request in summarizer.requests)
    assert all(f"fact {n} " in seen for n in range(17))


async def test_the_estimate_is_corrected_by_what_the_provider_reported() -> None:
    """AC-90."""
    replies = [
        Completion(message=call("look", n=n).message, usage=Usage(input_tokens=5000), finish="tool_use")
        for n in range(6)
    ]
    summarizer = ScriptedModel(["notes"] * 6)
    await MemoryRuntime(agent(ScriptedModel([*replies, "done"]), summarizer, trigger=900), "go").result()
    assert summarizer.requests


async def test_the_summarizers_call_is_not_a_step() -> None:
    """AC-97."""
    run = MemoryRuntime(agent(ScriptedModel(looking(8)), ScriptedModel(["n"] * 4), trigger=500), "go")
    assert (await run.result()).steps == 9


def test_a_cut_keeps_all_results_of_a_parallel_group() -> None:
    """D1, AC-92: ten calls, ten results, six to keep: the whole group stays."""
    ids = [f"c{n}" for n in range(10)]
    messages = [user("go"), calling(*ids), *(answered(call_id) for call_id in ids)]
    assert find_cut(messages, 6, 10_000) == 1


def test_a_cut_never_falls_inside_an_unfinished_turn_with_signed_reasoning() -> None:
    """D2, AC-95."""
    turn = [m for n in range(3) for m in (calling(f"c{n}", signed=True), answered(f"c{n}"))]
    messages = [user("old"), assistant("old answer"), user("go"), *turn]
    assert find_cut(messages, 2, 10_000) == 2
    assert find_cut(messages[2:], 2, 1) == 0


def test_a_conversation_of_pairs_after_one_user_message_can_be_cut() -> None:
    """D10."""
    messages = [user("go"), *(m for n in range(10) for m in (calling(f"c{n}"), answered(f"c{n}")))]
    assert find_cut(messages, 4, 10_000) == 17


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages = [user("start")]
    for turn in range(draw(st.integers(1, 8))):
        ids = [f"t{turn}.{n}" for n in range(draw(st.integers(0, 3)))]
        if ids:
            messages.append(calling(*ids, signed=draw(st.booleans())))
            messages += [answered(call_id, draw(st.integers(0, 50))) for call_id in ids]
        else:
            messages.append(assistant("answer"))
            if draw(st.booleans()):
                messages.append(user("next"))
    return messages


@given(conversations(), st.integers(1, 30), st.integers(1, 400))
def test_every_cut_of_every_conversation_leaves_a_sound_rest(messages: list[Message], keep: int, trigger: int) -> None:
    """AC-92, AC-98: what is kept begins with a user turn, after the notes."""
    cut = find_cut(messages, keep, trigger)
    assert sequence_fault([user("notes"), *messages[cut:]]) is None
    assert 0 <= cut < max(1, len(messages))


@pytest.mark.parametrize("options", [{"trigger_tokens": 0}, {"trigger_tokens": 10, "keep_messages": 0}])
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        summarization_middleware(model="openai:gpt-5", **options)  # type: ignore[arg-type] # what a user may give

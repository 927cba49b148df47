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
    system,
    tool_message,
    user,
)
from outlast.middleware import summarization_middleware
from outlast.middleware.summarization import find_cut
from outlast.model import Completion, ModelRequest
from outlast.models import Gemini
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import Reply, ScriptedModel, call, text
from outlast.tokens import estimate_messages, estimate_request
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


async def test_the_notes_of_one_run_are_not_shown_in_the_next() -> None:
    """AC-93: also where somebody hands on the whole invocation_state."""
    first = MemoryRuntime(agent(ScriptedModel(looking(8)), ScriptedModel(["notes"] * 3), trigger=700), "go", id="one")
    state = (await first.result()).invocation_state
    model = ScriptedModel(looking(3))
    handed = MemoryRuntime(agent(model, ScriptedModel([]), trigger=10**6), "new", id="two", invocation_state=state)
    await handed.result()
    assert [message.text for request in model.requests for message in request.messages[1:2]] == ["new"] * 4


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
            messages[-1] = messages[-1].replace(pinned=draw(st.booleans()))
        else:
            messages.append(assistant("answer").replace(pinned=draw(st.booleans())))
            if draw(st.booleans()):
                messages.append(user("next"))
    return messages


@given(conversations(), st.integers(1, 6), st.integers(30, 400))
async def test_whatever_is_pinned_is_shown_and_every_pair_is_whole(
    messages: list[Message], keep: int, trigger: int
) -> None:
    """AC-92, AC-96, AC-98."""
    kept = await shown([*messages, user("now")], ScriptedModel(["notes"] * 40), trigger=trigger, keep=keep)
    assert sequence_fault(kept) is None
    assert kept[0].role == "user"
    left = [block for message in kept for block in message.blocks]
    assert all(block in left for message in messages if message.pinned for block in message.blocks)


@given(conversations(), st.integers(1, 30), st.integers(1, 400))
def test_every_cut_of_every_conversation_leaves_a_sound_rest(messages: list[Message], keep: int, trigger: int) -> None:
    """AC-92, AC-98: what is kept begins with a user turn, after the notes."""
    cut = find_cut(messages, keep, trigger)
    assert sequence_fault([user("notes"), *messages[cut:]]) is None
    assert 0 <= cut < max(1, len(messages))


async def test_a_tail_over_the_trigger_is_not_summarized_piece_by_piece_at_every_step() -> None:
    """D4, AC-93: twenty messages are kept and are over the trigger by themselves; every step adds two small ones."""
    model, summarizer = ScriptedModel(looking(24)), ScriptedModel(["notes"] * 24)
    earlier = [m for n in range(12) for m in (user("question " * 10), assistant("answer " * 10))]
    await MemoryRuntime(agent(model, summarizer, trigger=900, keep=20), messages=[*earlier, user("go")]).result()
    assert 1 <= len(summarizer.requests) <= 8
    assert len(model.requests) == 25


async def test_one_huge_message_that_must_stay_does_not_call_the_summarizer_again_and_again() -> None:
    """D4: nothing else is left to compress."""
    model = ScriptedModel([call("look", n=n) for n in range(6)] + [text("done")])
    summarizer = ScriptedModel(["notes"] * 6)
    earlier = [*(m for _ in range(4) for m in (user("q"), assistant("a"))), user("word " * 4000)]
    await MemoryRuntime(agent(model, summarizer, trigger=3000, keep=20), messages=earlier).result()
    assert len(summarizer.requests) <= 1


def test_a_kept_part_over_the_trigger_is_cut_at_the_first_place_that_leaves_less() -> None:
    """AC-92."""
    large = [user("go"), calling("a"), answered("a", 2000), *(m for n in range(4) for m in _pair(f"c{n}"))]
    assert find_cut(large, 30, 1000) == 3
    assert find_cut([user("old"), assistant("x"), user("go"), calling("a"), answered("a", 9000)], 2, 1000) == 3


def _pair(call_id: str) -> tuple[Message, Message]:
    return calling(call_id), answered(call_id)


async def shown(messages: list[Message], summarizer: ScriptedModel, **options: Any) -> tuple[Message, ...]:
    """What the model is shown of a conversation, without the instructions."""
    model = ScriptedModel(["done"])
    await MemoryRuntime(agent(model, summarizer, **options), messages=messages).result()
    return model.requests[0].messages[1:]


async def test_a_pinned_answer_and_a_pinned_pair_stay_whole_and_are_not_summarized() -> None:
    """AC-96: whoever wrote them; a pinned result keeps its call, and that the other results of its turn."""
    pinned = [
        assistant("I promise").replace(pinned=True),
        calling("a", "b", signed=True),
        answered("a").replace(pinned=True),
        answered("b"),
    ]
    filler = [m for n in range(6) for m in (user(f"question {n} " * 30), assistant("answer " * 30))]
    summarizer = ScriptedModel(["notes"])
    kept = await shown([user("go"), *pinned, *filler, user("now")], summarizer, trigger=500, keep=2)
    assert [message.role for message in kept[:5]] == ["user", "assistant", "assistant", "tool", "tool"]
    assert kept[0].text.startswith("Notes on the earlier part")
    assert kept[1].text == "I promise"
    assert [block.kind for block in kept[2].blocks] == ["tool_call", "tool_call"]  # reasoning older than the notes goes
    assert "promise" not in summarizer.requests[0].messages[0].text
    assert sequence_fault(kept) is None


async def test_at_exactly_the_trigger_it_summarizes_and_below_it_does_not() -> None:
    """AC-90: messages, system message and tool schemas together; at this or more."""
    messages = [m for n in range(4) for m in (user(f"question {n}"), assistant("answer"))] + [user("now")]
    model = ScriptedModel(["done"])
    await MemoryRuntime(agent(model, ScriptedModel([]), trigger=10**6), messages=messages).result()
    size = estimate_request(model.requests[0])
    assert size > estimate_messages(messages) + estimate_messages([system("Be brief.")])
    at, above = ScriptedModel(["notes"]), ScriptedModel([])
    await shown(messages, at, trigger=size, keep=2)
    await shown(messages, above, trigger=size + 1, keep=2)
    assert (len(at.requests), len(above.requests)) == (1, 0)


async def test_notes_in_several_blocks_are_joined_and_hold_no_reasoning() -> None:
    """D13."""
    blocks = (ReasoningBlock(text="hm", signature="s"), TextBlock(text="first, "), TextBlock(text="second"))
    summarizer = ScriptedModel([assistant(blocks)])
    messages = [m for n in range(4) for m in (user("word " * 50), assistant("answer"))] + [user("now")]
    notes, *_ = await shown(messages, summarizer, trigger=100, keep=2)
    assert notes.text == "Notes on the earlier part of this conversation:\nfirst, second"


async def test_after_the_notes_the_first_kept_message_may_be_a_call() -> None:
    """D3, AC-98: Gemini takes a function call only after a turn of the user, which the notes are."""
    turn = [m for n in range(8) for m in _pair(f"c{n}")]
    kept = await shown([user("go"), *turn], ScriptedModel(["notes"]), trigger=150, keep=4)
    assert [message.role for message in kept[:3]] == ["user", "assistant", "tool"]
    assert kept[1].tool_calls
    body: Any = Gemini("gemini-3-pro", api_key="k").render(ModelRequest(messages=kept))
    assert [content["role"] for content in body["contents"][:3]] == ["user", "model", "user"]


async def test_signed_reasoning_of_the_unfinished_turn_is_sent_to_the_byte() -> None:
    """D2, AC-95."""
    turn = [m for n in range(3) for m in (calling(f"c{n}", signed=True), answered(f"c{n}", 60))]
    old = [user("old " * 50), assistant("old answer " * 50), user("go")]
    kept = await shown([*old, *turn], ScriptedModel(["notes"]), trigger=100, keep=2)
    assert kept[0].text.startswith("Notes")
    assert [message.blocks for message in kept[2:]] == [message.blocks for message in turn]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"trigger_tokens": 0}, "trigger_tokens must be a whole number from 1 up, not 0"),
        ({"trigger_tokens": True}, "trigger_tokens"),
        ({"trigger_tokens": 10, "keep_messages": 0}, "keep_messages must be a whole number from 1 up"),
        ({"trigger_tokens": 10, "prompt": ""}, "prompt must be a text"),
        ({"model": "", "trigger_tokens": 10}, "model is empty"),
        ({"model": 3, "trigger_tokens": 10}, "model must be a text like"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        summarization_middleware(**{"model": "openai:gpt-5", **options})

"""AC-99 to AC-106, D6, D7, D10, D14, D15: old pairs go whole, and what went stays gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import HookContext, tool
from outlast.messages import (
    MediaBlock,
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
from outlast.middleware import ClearToolUsesEdit, context_editing_middleware
from outlast.model import ModelRequest
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import ScriptedModel, call
from outlast.tokens import estimate_messages, estimate_text
from tests.unit.middleware.agents import agent


@tool
def look(q: str) -> str:
    """Look."""
    return "seen"


def call_message(*ids: str, text: str = "", signed: bool = False, pinned: bool = False) -> Message:
    blocks: list[Any] = [ReasoningBlock(text="hm", signature="sig")] if signed else []
    blocks += [TextBlock(text=text)] if text else []
    blocks += [ToolCallBlock(id=call_id, name="look", raw_args='{"q": "' + "x" * 40 + '"}') for call_id in ids]
    return Message(role="assistant", blocks=tuple(blocks), pinned=pinned)


def result(call_id: str, *, size: int = 40, pinned: bool = False) -> Message:
    block = ToolResultBlock(call_id=call_id, name="look", content=(TextBlock(text="r" * size),))
    return tool_message(block).replace(pinned=pinned)


def pairs(count: int, size: int = 40) -> list[Message]:
    return [user("go"), *(m for n in range(count) for m in (call_message(f"c{n}"), result(f"c{n}", size=size)))]


def strip(
    messages: list[Message], edit: ClearToolUsesEdit, memory: dict[str, Any] | None = None
) -> tuple[Message, ...]:
    return edit.apply(ModelRequest(messages=tuple(messages)), memory or {})[0].messages


def ids(messages: tuple[Message, ...]) -> list[str]:
    return [call.id for message in messages for call in message.tool_calls]


def test_old_pairs_go_and_the_newest_stay_and_no_half_pair_is_left() -> None:
    """AC-100, AC-102, D6."""
    left = strip(pairs(6), ClearToolUsesEdit(trigger_tokens=10, keep_recent=2))
    assert ids(left) == ["c4", "c5"]
    assert sequence_fault(left) is None


def test_keeping_none_strips_all_pairs_and_a_call_without_result_stays() -> None:
    """AC-102, AC-105."""
    messages = [*pairs(3), call_message("open")]
    assert ids(strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=0))) == ["open"]


def test_the_trigger_is_strictly_more() -> None:
    """AC-102."""
    messages = pairs(5)
    size = estimate_messages(messages)
    assert len(ids(strip(messages, ClearToolUsesEdit(trigger_tokens=size)))) == 5
    assert len(ids(strip(messages, ClearToolUsesEdit(trigger_tokens=size - 1)))) == 3


@pytest.mark.parametrize("side", ["call", "result"])
def test_a_pair_is_protected_if_either_side_is_pinned(side: str) -> None:
    """AC-101."""
    pinned = [call_message("p", pinned=side == "call"), result("p", pinned=side == "result")]
    left = strip([user("go"), *pinned, *pairs(5)[1:]], ClearToolUsesEdit(trigger_tokens=0, keep_recent=1))
    assert ids(left) == ["p", "c4"]


def test_text_and_the_other_call_of_a_message_stay() -> None:
    """AC-103."""
    messages = [user("go"), call_message("a", "b", text="I look"), result("a"), result("b")]
    left = strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=1))
    assert [message.role for message in left] == ["user", "assistant", "tool"]
    assert left[1].text == "I look"
    assert ids(left) == ["b"]


def test_the_newest_pair_is_the_one_whose_call_stands_last_whenever_its_result_came() -> None:
    """AC-104: by the place of the call, then by call order inside its message; results stand in another order here."""
    messages = [user("go"), call_message("a", "b", "c"), result("c"), result("a"), result("b")]
    assert ids(strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=1))) == ["c"]
    assert ids(strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=2))) == ["b", "c"]
    assert ids(strip([*messages, *pairs(1)[1:]], ClearToolUsesEdit(trigger_tokens=0, keep_recent=2))) == ["c", "c0"]


def test_pairs_of_excluded_tools_stay() -> None:
    assert len(ids(strip(pairs(4), ClearToolUsesEdit(trigger_tokens=0, keep_recent=1, exclude_tools=["look"])))) == 4


async def test_what_one_run_stripped_is_not_stripped_from_the_next() -> None:
    """AC-99: call ids are the same in every run; the memory is the run's own, whoever hands it on."""
    edits = context_editing_middleware([ClearToolUsesEdit(trigger_tokens=0, keep_recent=0)])
    first = await MemoryRuntime(agent([call("look", q="x"), "done"], edits, tools=[look]), "go", id="one").result()
    assert first.invocation_state["context_editing"]["0.ClearToolUsesEdit"] == {"stripped": ["call_1_1"]}
    model = ScriptedModel([call("look", q="x"), "done"])
    calm = context_editing_middleware()
    state = first.invocation_state
    await MemoryRuntime(agent(model, calm, tools=[look]), "go", id="two", invocation_state=state).result()
    assert len(model.requests[1].messages) == 3


def test_signed_reasoning_loses_all_of_its_calls_or_none() -> None:
    """AC-103."""
    messages = [user("go"), call_message("a", "b", signed=True), result("a"), result("b")]
    assert strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=1)) == tuple(messages)
    assert [m.role for m in strip(messages, ClearToolUsesEdit(trigger_tokens=0, keep_recent=0))] == ["user"]


def test_what_was_stripped_stays_stripped_and_nothing_more_goes_before_the_next_crossing() -> None:
    """AC-106, D7: the earlier request is a stable beginning of the next."""
    edit = ClearToolUsesEdit(trigger_tokens=150, keep_recent=2)
    first, memory = edit.apply(ModelRequest(messages=tuple(pairs(6))), {})
    grown = pairs(7)
    second, again = edit.apply(ModelRequest(messages=tuple(grown)), memory)
    assert second.messages[: len(first.messages)] == first.messages
    assert again == memory


def test_only_the_calls_copy_is_edited_and_the_memory_is_the_runs() -> None:
    """AC-99."""
    middleware = context_editing_middleware([ClearToolUsesEdit(trigger_tokens=10, keep_recent=1)])
    request = ModelRequest(messages=tuple(pairs(4)))
    ctx = HookContext(step=1, invocation_state={})
    edited = middleware.before_model(request, ctx)
    assert ids(edited.messages) == ["c3"]
    assert len(ids(request.messages)) == 4
    assert json.loads(json.dumps(ctx.invocation_state)) == ctx.invocation_state


def test_cjk_text_counts_about_a_token_a_character_and_images_have_a_fixed_price() -> None:
    """D14, D15."""
    assert 240 <= estimate_text("漢" * 400) <= 500
    pages = user([MediaBlock(media="image", data="A" * 500_000)] * 20)
    assert estimate_messages([pages]) < 25_000
    document = user([MediaBlock(media="file", data="A" * 500_000)])
    assert estimate_messages([document]) < 5_000


def test_the_default_edit_and_bad_edits() -> None:
    """AC-99, AC-102."""
    assert context_editing_middleware().edits == (ClearToolUsesEdit(trigger_tokens=100_000, keep_recent=3),)
    with pytest.raises(TypeError, match="not an edit"):
        context_editing_middleware(["clear"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="keep_recent"):
        ClearToolUsesEdit(keep_recent=-1)
    with pytest.raises(ValueError, match="trigger_tokens must be a whole number"):
        ClearToolUsesEdit(trigger_tokens="many")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="exclude_tools must be a list of tool names, not 'look'"):
        ClearToolUsesEdit(exclude_tools="look")


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages = [user("go")]
    for turn in range(draw(st.integers(0, 6))):
        calls = [f"t{turn}.{n}" for n in range(draw(st.integers(0, 3)))]
        text = draw(st.sampled_from(["", "words"]))
        if calls:
            messages.append(call_message(*calls, text=text, signed=draw(st.booleans()), pinned=draw(st.booleans())))
            messages += [result(call_id, pinned=draw(st.booleans())) for call_id in calls]
        else:
            messages.append(assistant("an answer"))
            if draw(st.booleans()):
                messages.append(assistant("and more"))
            messages.append(user("next"))
    return messages


@given(conversations(), st.integers(0, 200), st.integers(0, 4))
def test_every_conversation_stays_sound_and_editing_twice_is_editing_once(
    messages: list[Message], trigger: int, keep: int
) -> None:
    """AC-100, AC-106."""
    edit = ClearToolUsesEdit(trigger_tokens=trigger, keep_recent=keep)
    once, memory = edit.apply(ModelRequest(messages=tuple(messages)), {})
    assert sequence_fault(once.messages) is None
    assert edit.apply(ModelRequest(messages=tuple(messages)), memory)[0] == once
    kept = {message.id for message in messages if message.pinned}
    assert kept <= {message.id for message in once.messages}

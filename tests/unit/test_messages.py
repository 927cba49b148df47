"""The neutral model: round trips without loss, and one rule for what a sound conversation is (D11)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InvalidRequest
from outlast.messages import (
    MediaBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    assistant,
    dump_messages,
    load_messages,
    repair_sequence,
    sequence_fault,
    system,
    tool_message,
    user,
)
from outlast.model import ModelRequest, ToolSpec, check_request

TEXT = st.text(max_size=20)
BLOCKS = st.one_of(
    st.builds(TextBlock, text=TEXT, citations=st.lists(TEXT, max_size=2).map(tuple), phase=st.none() | TEXT),
    st.builds(
        ReasoningBlock, text=TEXT, signature=st.none() | TEXT, encrypted=st.none() | TEXT, item_id=st.none() | TEXT
    ),
    st.builds(ToolCallBlock, id=TEXT, name=TEXT, raw_args=TEXT, signature=st.none() | TEXT, extra=st.none() | TEXT),
    st.builds(MediaBlock, data=TEXT, media=st.sampled_from(["image", "audio", "file"]), mime_type=st.none() | TEXT),
    st.builds(RefusalBlock, text=TEXT, category=st.none() | TEXT),
    st.builds(OpaqueBlock, provider=TEXT, raw=TEXT),
    st.builds(
        ToolResultBlock,
        call_id=TEXT,
        name=TEXT,
        content=st.lists(st.builds(TextBlock, text=TEXT), max_size=2).map(tuple),
        is_error=st.booleans(),
        status=st.sampled_from(["executed", "rejected", "unknown"]),
    ),
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    blocks=st.lists(BLOCKS, max_size=4).map(tuple),
    pinned=st.booleans(),
    id=TEXT,
    created_at=st.none() | st.datetimes(),
)


@given(st.lists(MESSAGES, max_size=5))
def test_any_transcript_survives_json_and_is_written_the_same_again(messages: list[Message]) -> None:
    data = dump_messages(messages)
    again = load_messages(data)
    assert again == tuple(messages)
    assert dump_messages(again) == data
    assert load_messages(json.loads(data)) == again


IDS = st.sampled_from(["a", "b", "c", ""])
CALLING = st.lists(IDS, max_size=3).map(
    lambda ids: Message(role="assistant", blocks=tuple(ToolCallBlock(id=call_id, name="t") for call_id in ids))
)
ANSWERING = st.lists(IDS, min_size=1, max_size=2).map(
    lambda ids: Message(role="tool", blocks=tuple(ToolResultBlock(call_id=call_id, name="t") for call_id in ids))
)
STRAY = st.sampled_from([user("hi"), assistant("text"), user([ToolResultBlock(call_id="a", name="t")])])
BROKEN = st.lists(CALLING | ANSWERING | STRAY, max_size=8)


@given(BROKEN)
def test_whatever_broke_off_is_repaired_to_a_sound_conversation(messages: list[Message]) -> None:
    """D11."""
    repaired = repair_sequence(messages)
    assert sequence_fault(repaired) is None
    assert repair_sequence(repaired) == repaired
    if sequence_fault(messages) is None:
        assert repaired == tuple(messages)


def test_an_open_call_is_answered_and_a_late_result_is_moved_to_its_call() -> None:
    calling = Message(role="assistant", blocks=(ToolCallBlock(id="a", name="t"), ToolCallBlock(id="b", name="t")))
    late = tool_message(ToolResultBlock(call_id="b", name="t", content=(TextBlock(text="late"),)))
    repaired = repair_sequence([user("go"), calling, user("hello?"), late])
    assert [m.role for m in repaired] == ["user", "assistant", "tool", "tool", "user"]
    assert repaired[2].tool_results[0].status == "cancelled"
    assert repaired[3].tool_results[0].text == "late"


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([user("x"), Message(role="assistant", blocks=(ToolCallBlock(id="a", name="t"),))], "has no result"),
        ([user("x"), tool_message(ToolResultBlock(call_id="a", name="t"))], "answers no open call"),
        ([user("x"), Message(role="assistant", blocks=(ToolCallBlock(id="a", name="t"),)), user("y")], "comes before"),
        ([system("only")], "no message for the model"),
    ],
)
def test_an_unsound_request_is_refused_before_it_is_sent(messages: list[Message], fault: str) -> None:
    with pytest.raises(InvalidRequest, match=fault):
        check_request(ModelRequest(messages=tuple(messages)))


def test_a_tool_named_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="named twice: t"):
        check_request(ModelRequest(messages=(user("x"),), tools=(ToolSpec(name="t"), ToolSpec(name="t"))))


def test_replace_checks_names_and_values() -> None:
    request = ModelRequest(messages=(user("x"),))
    with pytest.raises(TypeError, match="no field tolls"):
        request.replace(tolls=())
    assert request.replace(tools=[]).tools == ()

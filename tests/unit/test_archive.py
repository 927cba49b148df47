"""What of a transcript may leave a run's memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outlast.archive import archive_before
from outlast.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock, assistant, sequence_fault, user


def calling(*ids: str) -> Message:
    return assistant([ToolCallBlock(id=id_, name="read") for id_ in ids])


def answered(call_id: str) -> Message:
    return Message(role="tool", blocks=(ToolResultBlock(call_id=call_id, name="read", content=(TextBlock(text="r"),)),))


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Turns of the user, of plain answers, and of parallel calls; some messages pinned."""
    messages = [user("begin")]
    for turn in range(draw(st.integers(1, 8))):
        ids = [f"t{turn}.{number}" for number in range(draw(st.integers(0, 3)))]
        messages += [calling(*ids), *map(answered, ids)] if ids else [assistant("so"), user("and then?")]
    return [
        message.replace(id=f"m{number}", pinned=draw(st.booleans()) and draw(st.booleans()))
        for number, message in enumerate(messages, 1)
    ]


@given(transcripts(), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_whatever_is_archived_the_whole_is_kept_and_what_stays_is_sound(
    whole: list[Message], befores: list[int]
) -> None:
    archived: list[Message] = []
    memory, kept = list(whole), 0
    for before in befores:
        old, stay = archive_before(memory, kept, f"m{before}")
        archived += old
        memory = [*stay, *memory[kept + len(old) :]]
        kept = len(stay)
        assert archived + memory[kept:] == whole
        assert sequence_fault(memory) is None
        assert all(message in memory for message in whole if message.pinned)
        users = [message for message in whole if message.role == "user"]
        assert users[0] in memory
        assert users[-1] in memory


def test_everything_before_a_message_may_leave_but_not_the_call_that_it_answers() -> None:
    whole = [user("go"), calling("a", "b"), answered("a"), answered("b"), calling("c"), answered("c")]
    whole = [message.replace(id=f"m{number}") for number, message in enumerate(whole, 1)]
    assert archive_before(whole, 0, "m4") == ([whole[0]], [whole[0]])
    assert archive_before(whole, 0, "m5") == (whole[:4], [whole[0]])


def test_an_unknown_message_archives_nothing() -> None:
    assert archive_before([user("go").replace(id="m1")], 0, "m9") == ([], [])

"""D60 and AC-117: an edit finds what was shown, changes nothing else, and happens once however often it is tried."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import ToolContext
from outlast.middleware import filesystem_tools
from outlast.middleware.contained_files import Refused, open_by_kernel, open_by_walking
from outlast.middleware.text_edits import as_shown, edit_text
from outlast.middleware.workspace import Workspace


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "b\n", "x\ny\n", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc", "a\nb", "a\nB", "a\r\nB\r\nc"),
        ("a\r\nb\r\n", "b\r\n", "c\r\n", "a\r\nc\r\n"),
        ("a\nb\r\nc\n", "b", "x\ny", "a\nx\ny\r\nc\n"),
        ("a\nb\r\nc\nd\n", "d", "e", "a\nb\r\nc\ne\n"),
        ("a\nb", "b\n", "c\n", "a\nc"),
        ("a\nb", "b\n", "c", "a\nc"),
        ("\ufeffa\r\nb", "a\n", "x\n", "\ufeffx\r\nb"),
        ("a\rb\n", "a\rb", "c", "c\n"),
        ("a\r\r\nb", "a\r\n", "c", "cb"),
        ("tab\there", "tab\t", "", "here"),
        ("üñ→", "ñ", "n", "ün→"),
    ],
)
def test_line_endings_and_what_is_not_touched_stay(text: str, old: str, new: str, after: str) -> None:
    """D60: the text as read_file shows it is editable."""
    assert edit_text(text, old, new) == (after, 1)


@pytest.mark.parametrize(
    ("text", "old", "message"),
    [
        ("a a", "a", "is there 2 times"),
        ("aaa", "aa", "is there 2 times"),
        ("abc", "x", "was not found"),
        ("abc", "", "old_string is empty"),
        ("abc", "\n", "was not found"),
        ("abc", "new", "are the same"),
        ("a\nb\n", "b\n\n", "was not found"),
    ],
)
def test_an_edit_needs_exactly_one_place(text: str, old: str, message: str) -> None:
    """AC-117."""
    with pytest.raises(Refused, match=message):
        edit_text(text, old, "new")


def test_all_places_are_replaced_where_asked() -> None:
    """AC-117: one after another, not overlapping."""
    assert edit_text("a\r\na\na", "a", "b\nc", True) == ("b\nc\r\nb\nc\nb\nc", 3)
    assert edit_text("aaaa", "aa", "b", True) == ("bb", 2)


@given(st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "é", " "]), max_size=30), st.data())
def test_any_piece_of_what_is_shown_can_be_edited_and_the_rest_stays_to_the_byte(
    tokens: list[str], data: st.DataObject
) -> None:
    """D60."""
    start = data.draw(st.integers(0, len(tokens)))
    end = data.draw(st.integers(start, len(tokens)))
    text, piece = "".join(tokens), as_shown("".join(tokens[start:end]))
    if piece and as_shown(text).find(piece, as_shown(text).find(piece) + 1) < 0:
        expected = "".join([*tokens[:start], "<new>", *tokens[end:]])
        assert edit_text(text, piece, "<new>") == (expected, 1)


@pytest.fixture(params=[open_by_kernel, open_by_walking], ids=["openat2", "walking"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    (tmp_path / "f").write_bytes(b"one")
    return Workspace(str(tmp_path), request.param)


def doubled(before: bytes | None) -> tuple[bytes, str]:
    return (before or b"") * 2, "doubled"


def test_a_change_that_is_tried_again_is_not_done_again(files: Workspace, tmp_path: Path) -> None:
    """AC-117: also where doing it again would do something else."""
    assert files.change("f", "key", doubled) == files.change("f", "key", doubled) == "doubled"
    assert (tmp_path / "f").read_bytes() == b"oneone"
    files.change("f", "other", doubled)
    assert files.change("f", "key", doubled) == "doubled"
    assert (tmp_path / "f").read_bytes() == b"oneoneoneone"


def test_changes_of_one_file_at_the_same_time_are_done_one_after_another(files: Workspace, tmp_path: Path) -> None:
    """AC-117: none is lost, whichever worker does it."""

    def append(number: int) -> None:
        Workspace(files.root, files.opener).change("f", f"key-{number}", lambda before: ((before or b"") + b".", "ok"))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "f").read_bytes() == b"one" + b"." * 40


def test_the_tools_hand_on_the_calls_key(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in filesystem_tools(tmp_path)}
    context = ToolContext(run_id="r", call_id="c", idempotency_key="k1")
    tools["write_file"](path="f", content="a")
    for _ in range(2):
        assert tools["edit_file"](path="f", old_string="a", new_string="aa", ctx=context) == "Edited f: 1 place."
    assert (tmp_path / "f").read_text() == "aa"
    assert tools["edit_file"](path="g", old_string="a", new_string="b").startswith("Error: there is no file g")

"""What the terminal shows: whole, calm, and never what a run would like the terminal to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from outlast.cli.screen import age, canonical, clean, compact, indented, one_line

HOSTILE = "\x1b]0;title\x07 \u202eevil\u202c \u200bzero \x9b31m \r over \ud800 \U000e0041"


def test_what_a_terminal_would_obey_or_hide_is_shown_as_its_escape() -> None:
    assert clean(HOSTILE) == (
        "\\x1b]0;title\\x07 \\u202eevil\\u202c \\u200bzero \\u009b31m \\x0d over \\ud800 \\U000e0041"
    )
    assert clean("plain ünïcödé 漢字 🙂\ttab\nline\r\nend") == "plain ünïcödé 漢字 🙂\ttab\nline\nend"


@given(st.text())
def test_cleaned_text_has_nothing_but_printable_characters_tabs_and_line_ends(text: str) -> None:
    shown = clean(text)
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert clean(shown) == shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_canonical_json_is_whole_and_safe(value: object) -> None:
    shown = canonical(value)
    assert json.loads(shown) == value
    assert clean(shown) == shown


def test_canonical_json_sorts_its_keys() -> None:
    assert canonical({"b": 1, "a": "\u202e"}) == '{\n  "a": "\\u202e",\n  "b": 1\n}'


def test_lists_are_cut_with_an_ellipsis_and_wrapped_lines_stay_indented() -> None:
    assert one_line("a\n b" + "x" * 300, 10) == "a bxxxxxx…"
    assert len(compact({"key": "x" * 500}, 50)) == 50
    assert indented("one\n\ntwo", 4, label="  >").plain == "  > one\n\n    two"


def test_an_age_is_told_in_one_unit() -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    ages = [age(now - timedelta(seconds=seconds), now) for seconds in (5, 119, 120, 7_199, 7_200, 200_000)]
    assert ages == ["5 s", "119 s", "2 min", "119 min", "2 h", "2 d"]
    assert age(None) == ""

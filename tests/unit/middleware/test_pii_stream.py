"""AC-88: no piece of a stream holds a part of a match, and nothing is held back longer than a match can grow."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.middleware import pii_redact
from outlast.middleware.pii_rules import RedactedStream, Rules

PARTS = ["bob@x.com", "10.0.0.1", "::1", "4111 1111 1111 1111", " ", "a", "@", ".", ":", "1", "-", "2001:db8::1%eth0"]
RULES = Rules((pii_redact("email").rule, pii_redact("ip", "mask").rule, pii_redact("credit_card", "hash").rule))


def pushed(text: str, rules: Rules, cuts: random.Random) -> list[str]:
    stream, shown, at = RedactedStream(rules), [], 0
    while at < len(text):
        size = cuts.randint(1, 6)
        shown.append(stream.push(text[at : at + size]))
        at += size
    return [*shown, stream.flush()]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.randoms(use_true_random=False))
def test_pieces_add_up_to_the_redacted_whole(text: str, cuts: random.Random) -> None:
    [whole] = RULES.redact([text], Counter())
    assert "".join(pushed(text, RULES, cuts)) == whole


@pytest.mark.parametrize("secret", ["alice@example.com", "10.0.0.1", "4111 1111 1111 1111"])
def test_no_piece_holds_any_part_of_a_match(secret: str) -> None:
    stream = RedactedStream(RULES)
    shown = [stream.push(character) for character in f"It is {secret}, I think."]
    joined = "".join(shown)
    assert joined.startswith("It is ")
    assert not any(secret[:length] in joined for length in range(2, len(secret)))


def test_what_can_no_longer_become_a_match_is_shown_at_once() -> None:
    stream = RedactedStream(RULES)
    assert stream.push("Hello wor") == "Hello "
    assert stream.push("ld, how") == "world, "
    assert stream.flush() == "how"


def test_a_pattern_with_a_longest_match_holds_back_no_more_than_that() -> None:
    stream = RedactedStream(Rules((pii_redact("staff", detector=r"EMP-\d{6}").rule,)))
    assert stream.push("of the staff: EMP-123456") == "of the staff:"
    assert stream.push(", and others") == " [REDACTED_STAFF],"
    assert stream.flush() == " and others"


@pytest.mark.parametrize("detector", [r"EMP-\d+", lambda text: [(0, 1)]])
def test_a_detector_without_a_longest_match_holds_back_everything_until_the_end(detector: object) -> None:
    stream = RedactedStream(Rules((pii_redact("staff", detector=detector).rule,)))  # type: ignore[arg-type] # both kinds
    assert stream.push("EMP-12 and more") == ""
    assert stream.flush().startswith("[REDACTED_STAFF]")


def test_a_word_without_an_end_is_not_held_back_for_ever() -> None:
    stream = RedactedStream(RULES)
    shown = "".join(stream.push("abcdefghij") for _ in range(1000))
    assert len(shown) >= 10_000 - 2010


def test_after_a_blocked_value_nothing_more_is_shown() -> None:
    stream = RedactedStream(Rules((pii_redact("email", "block").rule,)))
    assert stream.push("mail bob@x.com and then ") == "mail [BLOCKED_EMAIL]"
    assert stream.push("more of it ") + stream.flush() == ""

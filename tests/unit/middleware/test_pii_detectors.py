"""AC-82, AC-83, AC-87, D47 to D49: what is an address, a card number or an IP, and what only looks like one."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.middleware.pii_detectors import BUILT_IN, LONGEST
from outlast.middleware.pii_patterns import bounded_pattern


def found(kind: str, text: str) -> list[str]:
    return [text[start:end] for start, end in BUILT_IN[kind].find(text)]


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "378282246310005",
        "3782 822463 10005",
        "30569309025904",
        "4222222222222",
        "6304000000000000000",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "٤١١١١١١١١١١١١١١١",
    ],
)
def test_cards_of_every_length_with_single_separators_are_found(number: str) -> None:
    """AC-82, D48."""
    assert found("credit_card", f"card:{number}.") == [number]


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",
        "0000000000000000",
        "4111  1111  1111  1111",
        "41111111111111111111",
        "x4111111111111111",
        "4111111111111111b",
        "3.4111111111111111",
        "1700000000000",
        "1 0 " * 40,
    ],
)
def test_what_is_no_card_is_left(text: str) -> None:
    """AC-82."""
    assert found("credit_card", text) == []


def test_a_card_among_other_numbers_is_found() -> None:
    """AC-82."""
    assert "4111 1111 1111 1111" in found("credit_card", "order 12 4111 1111 1111 1111 12 27")
    assert found("credit_card", "12,4111111111111111,Alice") == ["4111111111111111"]


def luhn(digits: str) -> str:
    doubled = [int(d) * (2 if i % 2 == 0 else 1) for i, d in enumerate(reversed(digits))]
    return digits + str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)


@given(
    st.text("0123456789", min_size=12, max_size=17).map(lambda rest: luhn("4" + rest)), st.sampled_from(["", " ", "-"])
)
def test_any_number_that_passes_the_check_of_luhn_is_found(number: str, separator: str) -> None:
    """AC-82."""
    written = separator.join(number[start : start + 4] for start in range(0, len(number), 4))
    assert written in found("credit_card", f"pay {written} now")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("at 10.0.0.1.", "10.0.0.1"),
        ("http://10.0.0.1:80/", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.0"),
        ("2001:db8::1", "2001:db8::1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("from:2001:db8::1: refused", "2001:db8::1"),
        ("id:fe80::1.", "fe80::1"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7::"),
    ],
)
def test_addresses_of_both_versions_are_found_alone(text: str, address: str) -> None:
    """AC-83, D47."""
    assert found("ip", text) == [address]


@pytest.mark.parametrize("address", ["::ffff:192.0.2.1", "1:2:3:4:5:6:192.0.2.1"])
def test_an_address_that_holds_another_is_found_whole(address: str) -> None:
    """AC-83."""
    assert max(found("ip", address), key=len) == address


@pytest.mark.parametrize(
    "text",
    [
        "256.1.1.1",
        "1.2.3",
        "v1.2.3.4",
        "1.2.3.4.5",
        "12:30:45",
        "00:1a:2b:3c:4d:5e",
        "00:1a:2b:ff:fe:3c:4d:5e",
        "std::vector",
        "face::add",
        "1::2::3",
        "::",
        "2001:db8::1g",
    ],
)
def test_what_is_no_address_is_left(text: str) -> None:
    """AC-83."""
    assert found("ip", f" {text} ") == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mail alice@example.com.", "alice@example.com"),
        ("<a.b+c@sub.example.co.uk>", "a.b+c@sub.example.co.uk"),
        ("üser@exämple.de", "üser@exämple.de"),
        ("bob@пример.рф", "bob@пример.рф"),
        ("a@xn--e1afmkfd.xn--p1ai", "a@xn--e1afmkfd.xn--p1ai"),
        ("mailto:bob@x.com?subject=1", "bob@x.com"),
        ("'o'brien@x.com'", "o'brien@x.com"),
        ("bob@example.com_x", "bob@example.com"),
        ("a@b.com@c.com", "a@b.com"),
    ],
)
def test_addresses_for_mail_are_found_in_any_script(text: str, address: str) -> None:
    assert found("email", text) == [address]


@pytest.mark.parametrize("text", ["bob@localhost", "@decorator.name", "x@y.c|m", "a@b", "a@.com", "a@-x.com"])
def test_what_is_no_address_for_mail_is_left(text: str) -> None:
    assert found("email", text) == []


@given(st.text("ab1.@:- %•é", max_size=60), st.sampled_from(sorted(BUILT_IN)))
def test_no_text_makes_a_detector_fail_or_point_outside_of_it(text: str, kind: str) -> None:
    """AC-87."""
    detector = BUILT_IN[kind]
    assert all(0 <= start < end <= len(text) and end - start <= LONGEST for start, end in detector.find(text))
    assert 0 <= detector.open_from(text) <= len(text)


@pytest.mark.parametrize(
    "unit", ["a@", "a.", "1 ", "4111 ", "1:", "1.", "::", "a@b.", "0" * 19 + " ", "é@ü.", "fe80:", "-"]
)
@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_twice_the_hostile_text_takes_about_twice_the_time(kind: str, unit: str) -> None:
    """AC-87, D49: linear; the milliseconds are measured by `python -m benchmarks.pii`."""

    def cost(length: int) -> float:
        text = (unit * length)[:length]
        times = []
        for _ in range(3):
            began = time.thread_time()
            BUILT_IN[kind].find(text)
            times.append(time.thread_time() - began)
        return min(times)

    assert cost(80_000) < 10 * cost(20_000) + 0.005


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bEMP-\d{6}\b",
        r"sk-[A-Za-z0-9]{20,}",
        r"(?:key|token)\s*[:=]\s*\S+",
        r"\b\w+@acme\.com",
        r"(?<![\w.-])[\w.-]+@acme\.com",
        r"(?:\+\d{1,3}[ -]?)?\(?\d{3}\)?[ -]?\d{3}[ -]?\d{4}",
        r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}",
        re.compile("case [0-9]+", re.IGNORECASE),
    ],
)
def test_patterns_whose_work_is_bounded_are_taken(pattern: str | re.Pattern[str]) -> None:
    """AC-87."""
    assert bounded_pattern("detector", pattern)[0].flags & re.UNICODE


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a+)+$", "a group is repeated without an end"),
        (r"(a|aa)+b", "a group is repeated without an end"),
        (r"(?:\w+\.)*x", "a group is repeated without an end"),
        (r"\w+@acme", "can begin at many places"),
        (r"BEGIN.*END", "can begin at many places"),
        (r"\b[\w-]+!", "can begin at many places"),
        (r"a*a*b", "can begin at many places"),
        (r"x(?=.*\d)", "can begin at many places"),
        (r"(?m)^\s*foo\d", "can begin at many places"),
        (r"[a-z]{0,64}[a-z]{0,64}!", "more than 1000 ways"),
        (r"(?:a{0,50}){3}b", "more than 1000 ways"),
        (r"(\w)\1", "groupref"),
        ("(", "not a regular expression"),
    ],
)
def test_patterns_that_could_take_long_are_refused_with_the_reason(pattern: str, reason: str) -> None:
    """AC-87, D49."""
    with pytest.raises(ValueError, match=reason):
        bounded_pattern("detector", pattern)


@pytest.mark.parametrize("pattern", [r"\d*", "", "(?=x)", "a?", "^", r"(?:x|)"])
def test_patterns_that_can_match_nothing_are_refused(pattern: str) -> None:
    """D53."""
    with pytest.raises(ValueError, match="can match nothing"):
        bounded_pattern("detector", pattern)


def test_the_longest_match_of_a_pattern_is_known_where_a_stream_can_rely_on_it() -> None:
    """AC-88."""
    assert bounded_pattern("d", r"EMP-\d{6}")[1] == 10
    assert bounded_pattern("d", r"sk-\w+")[1] is None
    assert bounded_pattern("d", r"^EMP")[1] is None
    assert bounded_pattern("d", r"(?<!x)EMP")[1] is None

"""Where personal data stands in a text: ``email``, ``credit_card`` and ``ip``, each in time linear in the text.

A detector gives spans ``(start, end)`` in no order, and may be asked from where on a text could still become part of a
match when more text follows, which is what a stream has to hold back. No span is longer than :data:`LONGEST`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
Find: TypeAlias = Callable[[str], list[Span]]

LONGEST = 2000
"""Characters; also the most that a stream holds back for a built-in detector."""

_MAX_LOCAL = 256


@dataclass(frozen=True)
class Detector:
    """One kind of personal data.

    Attributes:
        find: The spans in a text.
        open_from: The index from which on a text could still be part of a match that more text completes.
        is_function: Whether it is a user's function, whose work has no bound: it never runs in workflow code.
    """

    find: Find
    open_from: Callable[[str], int]
    is_function: bool = False


# --- email: what stands before an @ is read backwards from it, so that no text makes the search start over.

_AT = re.compile(r"(?<=[\w.%+'-])@(?:[^\W_][\w-]{0,62}\.){1,16}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,63})", re.IGNORECASE)
_LOCAL = re.compile(r"[\w.%+'-]+")


def find_emails(text: str) -> list[Span]:
    """``name@host.tld`` in any script; no quoted names, no hosts without a dot."""
    if "@" not in text:
        return []
    spans: list[Span] = []
    floor = 0
    for match in _AT.finditer(text):
        at = match.start()
        before = text[max(floor, at - _MAX_LOCAL) : at][::-1]
        local = _LOCAL.match(before)
        if local is not None and (name := local[0].rstrip(".'-")):
            spans.append((at - len(name), match.end()))
            floor = match.end()
    return spans


# --- credit_card: whole groups of digits, 13 to 19 together, that pass the check of Luhn (AC-82).

_SEPARATOR = r"[ \u00a0\u202f\u2011\u2013-]"
_DIGITS = re.compile(rf"(?<![^\W_])(?<!\d\.)\d(?:{_SEPARATOR}?\d){{12,}}(?![^\W_])(?!\.\d)")
_BETWEEN = re.compile(_SEPARATOR)
_VALUES = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED = bytes.maketrans(bytes(range(10)), bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))


def find_cards(text: str) -> list[Span]:
    """Card numbers, plain or in groups with single spaces or dashes between them.

    Any number of that length has a chance of one in ten to pass the check; 13 digits must begin with 4, which keeps
    most timestamps in milliseconds out.
    """
    return [span for run in _DIGITS.finditer(text) for span in _cards(run[0], run.start())]


def _cards(run: str, offset: int) -> list[Span]:
    """Every window of whole groups that could be a card; overlaps are the caller's to resolve."""
    groups = _BETWEEN.split(run)
    plain = "".join(groups)
    if len(groups) == 1 and len(plain) > 19:
        return []
    ends = list(accumulate(map(len, groups)))
    least = 1 if len(plain) <= 19 else 3  # in a long row of numbers, what begins or ends with one digit is no card
    kept = [(end - len(group), end, index) for index, (end, group) in enumerate(zip(ends, groups, strict=True))
            if len(group) >= least]  # fmt: skip
    shift = {begin: offset + index for begin, _, index in kept}  # from places in `plain` to places in the text
    digits = "".join(str(int(char)) for char in plain) if not plain.isascii() else plain
    values = digits.encode().translate(_VALUES)
    spans: list[Span] = []
    for parity in (0, 1):  # in a window that ends before digit `end`, those with the parity of `end` are doubled
        weights = bytearray(values)
        weights[parity::2] = values[parity::2].translate(_DOUBLED)
        sums = list(accumulate(weights, initial=0))
        before = {begin: sums[begin] % 10 for begin in shift}
        after = [(end, sums[end] % 10, offset + index) for _, end, index in kept if end % 2 == parity]
        for size in range(13, 20):
            spans += [
                (end - size + shift[end - size], end + moved)
                for end, rest, moved in after
                if before.get(end - size) == rest
                and (size > 13 or digits[end - size] == "4")
                and digits[end - size : end] != digits[end - 1] * size
            ]
    return spans


# --- ip: both versions by shape alone (AC-83).

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_V4_TEXT = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_V4 = re.compile(rf"(?<![^\W_])(?<!\d\.){_V4_TEXT}(?![^\W_])(?!\.\d)", re.ASCII)
_V6_RUN = re.compile(r"(?:[0-9A-Fa-f]{1,4})?:[0-9A-Fa-f:.]+(?:%[\w.-]{1,32})?", re.ASCII)
_HEX = r"[0-9A-Fa-f]{1,4}"
_V6 = re.compile(
    rf"(?=\D*\d)(?:(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{6}}{_V4_TEXT}"
    rf"|(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:(?:{_HEX}:){{0,6}}(?:{_V4_TEXT}|{_HEX}))?)",
    re.ASCII,
)
_EUI64 = re.compile(r"(?:[0-9A-Fa-f]{2}:){7}[0-9A-Fa-f]{2}")


def find_ips(text: str) -> list[Span]:
    """IPv4 and IPv6 addresses, the latter with their zone and without brackets or port."""
    spans = [match.span() for match in _V4.finditer(text)] if text.count(".") > 2 else []
    if text.count(":") > 1:
        spans += [span for run in _V6_RUN.finditer(text) if (span := _v6(text, run[0], *run.span())) is not None]
    return spans


def _v6(text: str, run: str, start: int, stop: int) -> Span | None:
    """The address in a run of hex digits, colons and dots, with what is not part of it cut off at both ends."""
    if len(run) > 100 or ("::" not in run and run.count(":") < 6):
        return None
    zone = ""
    if "%" in run:
        run, _, zone = run.partition("%")
        zone = zone.rstrip(".-")
    elif text[stop : stop + 1].isalnum() or text[stop : stop + 1] == "_":
        return None  # the last group is the beginning of a word
    if start and text[start - 1].isalnum():  # the first group is the end of a word
        start, run = start + run.index(":"), run[run.index(":") :]
    while run[-1] == "." or (run[-1] == ":" and run[-2:] != "::"):
        run = run[:-1]
    if run[0] == ":" and run[:2] != "::":
        start, run = start + 1, run[1:]
    while not _is_v6(run):
        group = run.find(":") + 1
        if run.count(":") < 7 or not group:
            return None
        run, start = run[group:], start + group  # a label and its colon stand before it
    return start, start + len(run) + (1 + len(zone) if zone else 0)


def _is_v6(run: str) -> bool:
    if _V6.fullmatch(run) is None or (len(run) == 23 and _EUI64.fullmatch(run)):
        return False
    if run.count(":") < 6 or "::" not in run:
        return True
    return sum(1 for group in run.split(":") if group) + run.count(".") // 3 <= 7


# --- what a stream holds back: the end of the text, as far back as it is made of characters of a match.

_EMAIL_TAIL = re.compile(r"[\w.%+'@-]*")
_CARD_TAIL = re.compile(rf"(?:\d|{_SEPARATOR}|\.)*\w?")
_IP_TAIL = re.compile(r"[\w.:%-]*")


def _tail(pattern: re.Pattern[str]) -> Callable[[str], int]:
    def open_from(text: str) -> int:
        end = pattern.match(text[: -LONGEST - 1 : -1])
        return len(text) - (end.end() if end is not None else 0)

    return open_from


BUILT_IN: Mapping[str, Detector] = {
    "email": Detector(find_emails, _tail(_EMAIL_TAIL)),
    "credit_card": Detector(find_cards, _tail(_CARD_TAIL)),
    "ip": Detector(find_ips, _tail(_IP_TAIL)),
}
"""By the name that ``pii_redact`` takes."""

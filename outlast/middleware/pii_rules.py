"""What is found in a text, and what stands there instead: rules of several kinds applied to one text at once."""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from outlast.middleware.pii_detectors import BUILT_IN, Detector, Span
from outlast.middleware.pii_patterns import bounded_pattern

Strategy: TypeAlias = Literal["redact", "mask", "hash", "block"]
CustomDetector: TypeAlias = str | re.Pattern[str] | Callable[[str], Iterable[Any]]
"""A regular expression, or a function that gives ``(start, end)`` pairs or ``{"start": ..., "end": ...}`` dicts."""

DOT = "\u2022"
MAX_REMEMBERED = 20_000
"""Texts without a match that are remembered, by a digest of 16 bytes."""

CONTEXT = 300
"""Characters before what a stream holds back that decide whether it is a match."""

_HASHES = ("ff8d9819fc0e12bf", "9bbef19476623ca5", "f5047344122f0dee", "0123456789012345", "abcdefabcdefabcd")


@dataclass(frozen=True)
class Rule:
    """One kind of data and what becomes of it. Order of rules never matters: ties go by ``pii_type``."""

    pii_type: str
    strategy: Strategy
    detector: Detector
    hash_key: bytes | None = field(default=None, repr=False)

    @property
    def is_own(self) -> bool:
        """Whether the detector is the user's own."""
        return self.detector is not BUILT_IN.get(self.pii_type)

    def replacement(self, found: str) -> str:
        """What stands for a match (AC-78 to AC-81)."""
        if self.strategy == "mask":
            return found[0] + DOT * (len(found) - 1)
        if self.strategy == "hash":
            data = found.encode("utf-8", "replace")
            keyed = hmac.new(self.hash_key, data, "sha256") if self.hash_key else hashlib.sha256(data)
            return keyed.hexdigest()[:16]
        return self.placeholder

    @property
    def order(self) -> tuple[str, str, bytes]:
        """What decides between two matches of one place."""
        return self.pii_type, self.strategy, self.hash_key or b""

    @property
    def placeholder(self) -> str:
        """``[REDACTED_EMAIL]``, or what marks a blocked value until its call or its run is refused."""
        return f"[{'BLOCKED' if self.strategy == 'block' else 'REDACTED'}_{self.pii_type.upper()}]"


def make_rule(pii_type: str, strategy: Strategy, detector: CustomDetector | None, hash_key: bytes | None) -> Rule:
    """A rule, checked.

    Raises:
        ValueError: An unknown type without a detector; a pattern that is not usable; a detector that would find its own
            hashes and hash them again.
    """
    rule = Rule(pii_type, strategy, _detector(pii_type, detector), hash_key)
    if strategy == "hash" and any(rule.detector.find(text) for text in _HASHES):
        raise ValueError(
            f"pii_redact: the detector of {pii_type!r} would find its own hashes (16 hex digits) and hash them again; "
            "use redact or mask, or narrow it"
        )
    return rule


def _detector(pii_type: str, given: CustomDetector | None) -> Detector:
    if given is None:
        if pii_type not in BUILT_IN:
            raise ValueError(
                f"pii_redact: there is no built-in detector of {pii_type!r}; there are {', '.join(BUILT_IN)}. "
                "For another type give detector=, a regular expression or a function that returns spans"
            )
        return BUILT_IN[pii_type]
    if isinstance(given, str | re.Pattern):
        pattern, longest = bounded_pattern(f"pii_redact: the detector of {pii_type!r}", given)
        return Detector(
            lambda text: [match.span() for match in pattern.finditer(text)],
            (lambda text: 0) if longest is None else (lambda text: max(0, len(text) - longest - 1)),
        )
    return Detector(lambda text: [_span(item, text) for item in given(text)], lambda text: 0, is_function=True)


def _span(item: Any, text: str) -> Span:  # noqa: ANN401 - what a user's function gives
    start, end = (item.get("start"), item.get("end")) if isinstance(item, Mapping) else item
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= len(text)):
        raise TypeError(f"a detector must give (start, end) within the text of {len(text)} characters")
    return start, end


@dataclass(frozen=True)
class Found:
    """A match that is to be replaced: where, and by which rule."""

    start: int
    end: int
    rule: Rule


@dataclass(frozen=True)
class Rules:
    """Rules that are applied together."""

    rules: tuple[Rule, ...] = ()
    _clean: set[bytes] = field(default_factory=set, repr=False, compare=False)

    def redact(self, parts: Sequence[str], blocked: Counter[str]) -> list[str]:
        """Texts that are read as one, without what is found in one of them or across them.

        ``blocked`` counts, per type, what the ``block`` strategy found.
        """
        matches = self.find(parts)
        if not matches:
            return list(parts)
        text = "".join(parts)
        starts = [0, *accumulate(map(len, parts))]
        out: list[list[str]] = [[] for _ in parts]
        at = 0
        for found in matches:
            _copy(out, starts, text, at, found.start)
            out[bisect_right(starts, found.start) - 1].append(found.rule.replacement(text[found.start : found.end]))
            at = found.end
            if found.rule.strategy == "block":
                blocked[found.rule.pii_type] += 1
        _copy(out, starts, text, at, len(text))
        return ["".join(pieces) for pieces in out]

    def find(self, parts: Sequence[str]) -> list[Found]:
        """The matches in order, none overlapping another; places are those of the joined text (AC-86)."""
        found = self.find_all(parts)
        return _resolve("".join(parts), found) if found else found

    def find_all(self, parts: Sequence[str]) -> list[Found]:
        """The matches of every rule, overlapping as they may, in no order."""
        if not self.rules:
            return []
        text = "".join(parts)
        known = f"{[len(part) for part in parts]}{text}".encode("utf-8", "replace")
        digest = hashlib.blake2b(known, digest_size=16).digest()
        if digest in self._clean:  # a long conversation is read anew for every call of its model
            return []
        places = list(zip([0, *accumulate(map(len, parts))], parts, strict=False))
        if len(parts) > 1:
            places.append((0, text))
        found = {
            Found(offset + start, offset + end, rule)
            for rule in self.rules
            for offset, part in places
            for start, end in rule.detector.find(part)
            if end > start
        }
        if not found:
            if len(self._clean) >= MAX_REMEMBERED:
                self._clean.clear()
            self._clean.add(digest)
            return []
        return self._without_residue(text, found)

    def _without_residue(self, text: str, found: Iterable[Found]) -> list[Found]:
        """A match inside of what an earlier pass put there is none (AC-79)."""
        if DOT not in text and "[REDACTED_" not in text and "[BLOCKED_" not in text:
            return list(found)
        residues = [match.span() for match in self._residue.finditer(text)]
        begins = [start for start, _ in residues]

        def is_inside(item: Found) -> bool:
            index = bisect_right(begins, item.start) - 1
            return index >= 0 and item.end <= residues[index][1]

        return [item for item in found if not is_inside(item)]

    @cached_property
    def _residue(self) -> re.Pattern[str]:
        names = "|".join(sorted({re.escape(rule.pii_type.upper()) for rule in self.rules}))
        return re.compile(rf"\[(?:REDACTED|BLOCKED)_(?:{names})\]|[^{DOT}]?{DOT}+")


def _copy(out: list[list[str]], starts: list[int], text: str, start: int, end: int) -> None:
    """What stands between two matches, to the parts that it is from."""
    index = bisect_right(starts, start) - 1
    while start < end:
        stop = min(end, starts[index + 1])
        out[index].append(text[start:stop])
        start, index = stop, index + 1


def _resolve(text: str, found: list[Found]) -> list[Found]:
    """The longest first; of a shorter one that overlaps it, what is left is still replaced."""
    starts: list[int] = []
    ends: list[int] = []
    kept: list[Found] = []
    for item in sorted(found, key=lambda item: (item.start - item.end, item.start, *item.rule.order)):
        at, index = item.start, bisect_right(ends, item.start)
        while at < item.end:
            stop = min(item.end, starts[index]) if index < len(starts) else item.end
            if stop > at and (stop - at == item.end - item.start or any(map(str.isalnum, text[at:stop]))):
                starts.insert(index, at)
                ends.insert(index, stop)
                kept.insert(index, Found(at, stop, item.rule))
                index += 1
            at = ends[index] if index < len(starts) else item.end
            index += 1
    return kept


class RedactedStream:
    """A text that arrives in pieces, given on without any part of a match (AC-88).

    Held back is only what could still become part of one. After a blocked value nothing more is given.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._before = ""
        self._held = ""
        self._stopped = False

    def push(self, piece: str) -> str:
        """What can be shown now that this piece has arrived."""
        self._held += piece
        return self._release(min(rule.detector.open_from(self._held) for rule in self._rules.rules))

    def flush(self) -> str:
        """What is left at the end."""
        return self._release(len(self._held))

    def _release(self, cut: int) -> str:
        if not cut or self._stopped:
            return ""
        text, lead = self._before + self._held, len(self._before)
        found = self._rules.find_all([text])
        for item in sorted(found, key=lambda item: -item.start):
            if 0 <= item.start - lead < cut < item.end - lead:
                cut = item.start - lead  # whatever may overlap it is seen again with it
        out: list[str] = []
        at = 0
        for item in _resolve(text, found):
            start, end = item.start - lead, item.end - lead
            if not 0 <= start < cut:
                continue
            out += [self._held[at:start], item.rule.replacement(self._held[start:end])]
            at = end
            if item.rule.strategy == "block":
                self._stopped = True
                return "".join(out)
        out.append(self._held[at:cut])
        self._before = (self._before + self._held[:cut])[-CONTEXT:]
        self._held = self._held[cut:]
        return "".join(out)

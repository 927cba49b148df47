r"""Regular expressions given by users, with a bound on their work that is proven before they are used.

Python's ``re`` cannot be interrupted: a pattern that backtracks for minutes holds every thread of a worker, in an
activity no less than in a hook. So a pattern is accepted only where its work on any text is at most
:data:`MAX_WAYS` steps for each character:

- ``{m,n}`` up to :data:`LONG` counts as n - m + 1 ways; the ways of a pattern's parts multiply.
- ``*``, ``+`` and longer repeats of one character are free at the very end, where they cannot fail, and where the
  character before them cannot be one of their own (``key=\w+;``, ``\b\d+-``, ``(?<![a-z])[a-z]+!``): then no run of
  characters is read twice.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

MAX_WAYS = 1000
LONG = 256

_parser: Any = importlib.import_module("re._parser")  # the standard library's own, under names that are not public
_compiler: Any = importlib.import_module("re._compiler")

_SINGLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_WORD = re.compile(r"\w")

Chars: TypeAlias = frozenset[str]
Guard: TypeAlias = Callable[[Chars], bool]
"""Whether a run of these characters can begin at this place in one way only."""


class Unbounded(Exception):
    """The pattern's work has no bound that we can prove; the text says which part."""


def bounded_pattern(option: str, given: str | re.Pattern[str]) -> tuple[re.Pattern[str], int | None]:
    """The pattern compiled anew, and the longest match in characters where that is known and short.

    Raises:
        ValueError: It is no pattern, can match nothing, or could take too long on a hostile text.
    """
    text, flags = (given, 0) if isinstance(given, str) else (given.pattern, given.flags & ~re.DEBUG)
    try:
        tree = _parser.parse(text, flags)
        compiled = re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{option}: {text!r:.120} is not a regular expression: {error}") from None
    least, most = tree.getwidth()
    if least == 0:
        raise ValueError(f"{option}: {text!r:.120} can match nothing at all; let it ask for at least one character")
    try:
        _Bound(tree, compiled.flags).ways(tree, _never, last=True)
    except Unbounded as reason:
        raise ValueError(
            f"{option}: {text!r:.120} could take too long on a hostile text: {reason}. Give repeats an end, as in "
            r"\w{1,64}, or a fixed character or \b before them; or give a function that returns spans"
        ) from None
    looks_around = any(code in ("ASSERT", "ASSERT_NOT", "AT_BEGINNING", "AT_BEGINNING_STRING") for code in _codes(tree))
    return compiled, None if looks_around or most >= 2000 else int(most)


def _never(chars: Chars) -> bool:
    return False


class _Bound:
    """Counts the ways in which a pattern can try to match from one place."""

    def __init__(self, tree: Any, flags: int) -> None:  # noqa: ANN401 - the standard library's parse tree
        self._state = tree.state
        self._flags = flags
        edges = {code + step for code in _literals(tree) for step in (-1, 0, 1)}
        samples = {*range(0x250), *map(ord, "ωЖא٣中\u2022\u2028\U0001f600"), *edges}
        self._alphabet = [chr(code) for code in samples if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000]
        self._word = frozenset(filter(_WORD.match, self._alphabet))

    def ways(self, tree: Any, guard: Guard, *, last: bool) -> tuple[int, Guard]:  # noqa: ANN401
        """The ways of a sequence, and what guards the place after it."""
        total = 1
        for index, (code, value) in enumerate(tree):
            found, guard = self._item(code.name, value, guard, last and index == len(tree) - 1)
            total *= found
            if total > MAX_WAYS:
                raise Unbounded(f"its parts can be combined in more than {MAX_WAYS} ways")
        return total, guard

    def _item(self, code: str, value: Any, guard: Guard, last: bool) -> tuple[int, Guard]:  # noqa: ANN401
        if code in _SINGLE:
            return 1, self._chars(code, value).isdisjoint
        if code == "AT":
            return 1, self._at(value.name)
        if code in ("ASSERT", "ASSERT_NOT"):
            return self._look(code, value[0], value[1], guard)
        if code in _REPEATS:
            return self._repeat(int(value[0]), int(value[1]), value[2], guard, last)
        if code == "SUBPATTERN" and not value[1] and not value[2]:
            return self.ways(value[3], guard, last=last)
        if code == "ATOMIC_GROUP":
            return self.ways(value, guard, last=last)
        if code == "BRANCH":
            parts = [self.ways(branch, guard, last=last) for branch in value[1]]
            return sum(ways for ways, _ in parts), lambda chars: all(part(chars) for _, part in parts)
        raise Unbounded(f"it uses {code.lower().replace('_', ' ')}")

    def _at(self, name: str) -> Guard:
        if name == "AT_BOUNDARY":
            return lambda chars: chars <= self._word or chars.isdisjoint(self._word)
        if name == "AT_BEGINNING_STRING" or (name == "AT_BEGINNING" and not self._flags & re.MULTILINE):
            return lambda chars: True
        return (lambda chars: "\n" not in chars) if name == "AT_BEGINNING" else _never

    def _look(self, code: str, direction: int, tree: Any, guard: Guard) -> tuple[int, Guard]:  # noqa: ANN401
        found, _ = self.ways(tree, _never, last=False)
        if direction > 0:
            return found, guard
        if len(tree) != 1 or tree[0][0].name not in _SINGLE:
            return found, _never
        before = self._chars(tree[0][0].name, tree[0][1])
        return found, before.isdisjoint if code == "ASSERT" else before.issuperset

    def _repeat(self, least: int, most: int, body: Any, guard: Guard, last: bool) -> tuple[int, Guard]:  # noqa: ANN401
        while len(body) == 1 and body[0][0].name == "SUBPATTERN" and not body[0][1][1]:
            body = body[0][1][3]
        if len(body) != 1 or body[0][0].name not in _SINGLE:
            if most > LONG:
                raise Unbounded("a group is repeated without an end")
            inner, after = self.ways(body, _never, last=False)
            found = most - least + 1 if inner == 1 else min(inner ** min(most, 64), MAX_WAYS + 1)
            return found, lambda chars: after(chars) and (least > 0 or guard(chars))
        chars = self._chars(body[0][0].name, body[0][1])
        if most > LONG and (least > LONG or not (last or guard(chars))):
            raise Unbounded("a long repeat can begin at many places of one run of characters")
        found = 1 if most > LONG else most - least + 1
        return found, lambda others: others.isdisjoint(chars) and (least > 0 or guard(others))

    def _chars(self, code: str, value: Any) -> Chars:  # noqa: ANN401
        alone = _parser.SubPattern(self._state, [(getattr(_parser, code), value)])
        match = _compiler.compile(alone, self._flags & (re.IGNORECASE | re.DOTALL | re.ASCII)).match
        return frozenset(filter(match, self._alphabet))


def _codes(tree: Any) -> Iterator[str]:  # noqa: ANN401
    """The names of all operations in a parse tree, those of anchors too."""
    if isinstance(tree, _parser.SubPattern | list | tuple):
        for item in tree:
            yield from _codes(item)
    elif hasattr(tree, "name"):
        yield tree.name


def _literals(tree: Any) -> Iterator[int]:  # noqa: ANN401
    if isinstance(tree, _parser.SubPattern | list | tuple):
        for item in tree:
            yield from _literals(item)
    elif isinstance(tree, int) and not hasattr(tree, "name"):
        yield tree

"""Replacing a piece of a text file as a model asks for it, with every line that is not touched kept to the byte."""

from __future__ import annotations

from bisect import bisect_left

from outlast.middleware.contained_files import Refused


def as_shown(text: str) -> str:
    """A file's text as a model reads it: lines end with one newline, no byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def edit_text(text: str, old: str, new: str, replace_all: bool = False) -> tuple[str, int]:
    """The text with ``old`` replaced, and how often; both are given as the model was shown them (D60).

    Raises:
        Refused: ``old`` is empty, the same as ``new``, not there, or there more than once.
    """
    shown, new = as_shown(text), as_shown(new)
    old = old if old in shown else as_shown(old)
    if not old:
        raise Refused("old_string is empty; to make or to replace a whole file use write_file")
    if old == new:
        raise Refused("old_string and new_string are the same; nothing was changed")
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    places = _places(shown, old, replace_all)
    if not places and old != "\n" and old.endswith("\n") and shown.endswith(old[:-1]) and not shown.endswith("\n"):
        old, new = old[:-1], new.removesuffix("\n")  # the last line has no newline, and so it stays
        places = [len(shown) - len(old)]
    if not places:
        raise Refused("old_string was not found. It must be what read_file shows, to the letter, with its indentation")
    if len(places) > 1 and not replace_all:
        raise Refused(
            f"old_string is there {len(places)} times; give more of the text around it, or set replace_all to true"
        )
    return mark + _replaced(text.removeprefix("\ufeff"), shown, places, old, new), len(places)


def _places(shown: str, old: str, replace_all: bool) -> list[int]:
    """Where it stands; overlapping ones count unless all are replaced, one after another."""
    places: list[int] = []
    at = shown.find(old)
    while at >= 0:
        places.append(at)
        at = shown.find(old, at + (len(old) if replace_all else 1))
    return places


def _replaced(text: str, shown: str, places: list[int], old: str, new: str) -> str:
    """The same places in the file's own text, whose line endings stay; new lines end as those around them do."""
    wide: list[int] = []  # where in the shown text a line ends with two characters
    at = text.find("\r\n")
    while at >= 0:
        wide.append(at - len(wide))
        at = text.find("\r\n", at + 2)
    mostly_wide = 2 * len(wide) > shown.count("\n")
    out: list[str] = []
    done = 0
    for place in places:
        start, end = (where + bisect_left(wide, where) for where in (place, place + len(old)))
        lines = shown.count("\n", place, place + len(old))
        inside = bisect_left(wide, place + len(old)) - bisect_left(wide, place)
        ends_wide = 2 * inside > lines if lines else mostly_wide
        out += [text[done:start], new.replace("\n", "\r\n") if ends_wide else new]
        done = end
    return "".join([*out, text[done:]])

"""What the terminal shows. Everything that comes from a run is cleaned here: no markup, no control characters."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outlast.messages import Json

QUIET, STRONG, GOOD, BAD, WARN = "dim", "bold", "green", "red", "yellow"
STATUS_STYLES: Mapping[str, str] = {
    "running": "cyan",
    "suspended": WARN,
    "paused": BAD,
    "completed": GOOD,
    "failed": BAD,
    "cancelled": QUIET,
}
STATUS_WORDS: Mapping[str, str] = {"suspended": "waiting"}
"""What people read instead of the state's own name: a suspended run waits for a decision."""

# Control characters (ESC starts terminal sequences), bidirectional marks, zero-width characters, lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


@cache
def out() -> Console:
    """Standard output; where no terminal reads it nothing is wrapped or cut."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, width=width)


@cache
def err() -> Console:
    """Standard error, for notes and errors."""
    width = None if sys.stderr.isatty() else 10_000
    return Console(stderr=True, highlight=False, markup=False, emoji=False, width=width)


def clean(text: object) -> str:
    """Text of a run, safe to print: what a terminal would obey or hide is shown as its escape, never dropped."""
    return _HIDDEN.sub(_escape, str(text).replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: object, limit: int = 200) -> str:
    """Cleaned text on one line, cut with an ellipsis; for lists, never for what somebody approves."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def canonical(value: Json) -> str:
    """JSON with sorted keys, indented, whole; characters that could hide or mislead are JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return _HIDDEN.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    return match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1]


def compact(value: Json, limit: int = 200) -> str:
    """JSON on one line, cut with an ellipsis; for lists and progress."""
    return one_line(json.dumps(value, ensure_ascii=False), limit)


def status_text(status: str, temporal_status: str = "") -> Text:
    """A run's status as people read it."""
    if temporal_status in ("TERMINATED", "TIMED_OUT"):
        status = temporal_status.lower().replace("_", " ")
    elif temporal_status == "CANCELED":
        status = "cancelled"
    return Text(STATUS_WORDS.get(status, status), STATUS_STYLES.get(status, BAD))


def age(since: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit: ``12 s``, ``4 min``, ``3 h``, ``9 d``."""
    if since is None:
        return ""
    seconds = max(0.0, ((now or datetime.now(UTC)) - since).total_seconds())
    return span(seconds)


def span(seconds: float) -> str:
    """A duration in one unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def table(headers: Sequence[str], rows: Iterable[Sequence[str | Text]], flexible: int = -1) -> Table:
    """A table without lines; only the flexible column gives way where the terminal is narrow."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=QUIET, show_edge=False)
    wide = flexible % len(headers)
    for index, header in enumerate(headers):
        made.add_column(header, no_wrap=index != wide, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def indented(text: str | Text, left: int = 2, style: str = "", label: str | Text = "") -> Text:
    """Text moved to the right, wrapped lines too; a label stands in the room at the left of the first line."""
    content = Text(text, style) if isinstance(text, str) else text
    head = Text(label, QUIET) if isinstance(label, str) else label
    width = max(out().width - left, 20)
    lines = [part for line in content.split("\n", allow_blank=True) for part in _wrapped(line, width)]
    made = Text()
    for index, line in enumerate(lines):
        start = head if index == 0 else Text()
        made.append_text(start).append(" " * (left - start.cell_len) if line.plain else "").append_text(line)
        made.append("\n" if index < len(lines) - 1 else "")
    return made


def _wrapped(line: Text, width: int) -> Iterable[Text]:
    return line.wrap(out(), width, overflow="fold") if line.cell_len > width else [line]


def print_command(text: str, left: int = 4) -> None:
    """A command to type, on one line however long it is, so that it can be copied."""
    out().print(Text(" " * left + text, STRONG), soft_wrap=True)


def print_plain(text: str) -> None:
    """Text as it is, for programs and for copying; clean it first."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_json(value: Json) -> None:
    """For programs: JSON on one line."""
    print_plain(json.dumps(value))

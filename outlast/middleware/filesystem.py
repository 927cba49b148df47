"""``filesystem_middleware``: ``ls``, ``read_file``, ``write_file`` and ``edit_file`` in one folder, and nowhere else.

Each operation is an activity of its own. What is wrong with a path or an edit is answered in words; the run goes on.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec

from outlast.middleware.contained_files import Refused
from outlast.middleware.text_edits import as_shown, edit_text
from outlast.middleware.workspace import Workspace
from outlast.tools import Tool, ToolContext, tool

P = ParamSpec("P")

MAX_LISTED = 1000
MAX_LINES = 2000
MAX_CHARACTERS = 100_000

_NO_RUN = ToolContext(run_id="", call_id="", idempotency_key="")


def _answered(function: Callable[P, str]) -> Callable[P, str]:
    """What is refused is said."""

    @functools.wraps(function)
    def answer(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return function(*args, **kwargs)
        except Refused as refused:
            return f"Error: {refused}"

    return answer


def filesystem_tools(root: str | os.PathLike[str]) -> tuple[Tool, ...]:
    """The four tools, for an agent's ``tools`` (AC-117).

    Args:
        root: The folder. It need not exist where the agent is defined, only on the workers. Workers of one task queue
            must share it, since successive calls may run on any of them.

    Raises:
        TypeError, ValueError: It is no path, or empty.
    """
    if not isinstance(root, str | os.PathLike):
        raise TypeError(f"filesystem: root must be the path of a folder, not {root!r:.80}")
    if not os.fspath(root):
        raise ValueError("filesystem: root is empty; name the folder that the agent may use, '.' for this one")
    files = Workspace(os.fspath(root))
    return _ls(files), _read_file(files), _write_file(files), _edit_file(files)


def _ls(files: Workspace) -> Tool:
    @tool
    @_answered
    def ls(path: str = "/") -> str:
        """List a folder of the workspace.

        Args:
            path: From the workspace's root.
        """
        return _listing(files, path)

    return ls


def _read_file(files: Workspace) -> Tool:
    @tool
    @_answered
    def read_file(path: str, offset: int = 0, limit: int = MAX_LINES) -> str:
        """Read a text file of the workspace.

        Args:
            path: From the workspace's root.
            offset: Lines to leave out at the beginning.
            limit: Most lines to show.
        """
        return _page(path, as_shown(_text(files.read(path), path)), offset, limit)

    return read_file


def _write_file(files: Workspace) -> Tool:
    @tool
    @_answered
    def write_file(path: str, content: str, ctx: ToolContext = _NO_RUN) -> str:
        """Write a text file of the workspace. It replaces the file there is; missing folders are made.

        Args:
            path: From the workspace's root.
            content: The whole text.
        """

        def write(before: bytes | None) -> tuple[bytes, str]:
            data = content.encode("utf-8", "replace")
            return data, f"{'Created' if before is None else 'Replaced'} {path} ({len(data):,} bytes)."

        return files.change(path, ctx.idempotency_key, write)

    return write_file


def _edit_file(files: Workspace) -> Tool:
    @tool
    @_answered
    def edit_file(
        path: str, old_string: str, new_string: str, replace_all: bool = False, ctx: ToolContext = _NO_RUN
    ) -> str:
        """Replace a piece of a text file of the workspace.

        Args:
            path: From the workspace's root.
            old_string: What is there now, as read_file shows it. It must be there exactly once, unless replace_all.
            new_string: What shall be there instead.
            replace_all: Replace it wherever it is.
        """

        def edit(before: bytes | None) -> tuple[bytes, str]:
            if before is None:
                raise Refused(f"there is no file {path}; ls lists what there is")
            text, count = edit_text(_text(before, path), old_string, new_string, replace_all)
            return text.encode(), f"Edited {path}: {count} {'place' if count == 1 else 'places'}."

        return files.change(path, ctx.idempotency_key, edit)

    return edit_file


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{path} is not a UTF-8 text; it has {len(data):,} bytes") from None


def _page(path: str, text: str, offset: int, limit: int) -> str:
    """The lines asked for, and where they are cut a line that says how to go on."""
    if not text:
        return f"[{path} is empty.]"
    lines = text.removesuffix("\n").split("\n")
    if not 0 <= offset < len(lines) or limit < 1:
        raise Refused(f"{path} has {len(lines)} lines; offset is from 0 to {len(lines) - 1}, limit from 1 up")
    shown: list[str] = []
    size = 0
    for line in lines[offset : offset + limit]:
        size += len(line) + 1
        if size > MAX_CHARACTERS and shown:
            break
        shown.append(line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}[... {len(line):,} characters]")
    end = offset + len(shown)
    if len(shown) == len(lines):
        return text if size <= MAX_CHARACTERS + 1 else "\n".join(shown)
    going_on = f" Go on with offset={end}." if end < len(lines) else ""
    return "\n".join([*shown, f"[Lines {offset + 1} to {end} of {len(lines)}.{going_on}]"])


def _listing(files: Workspace, path: str) -> str:
    entries = files.entries(path)
    lines = [name + _kind(found) for name, found in entries[:MAX_LISTED]]
    if len(entries) > MAX_LISTED:
        lines.append(f"[{MAX_LISTED:,} of {len(entries):,} entries.]")
    return "\n".join(lines) or f"[{path} is empty.]"


def _kind(found: os.stat_result) -> str:
    if stat.S_ISDIR(found.st_mode):
        return "/"
    if stat.S_ISLNK(found.st_mode):
        return " (symbolic link)"
    return f" ({found.st_size:,} bytes)" if stat.S_ISREG(found.st_mode) else " (no ordinary file)"


@dataclass(frozen=True)
class Filesystem:
    """See :func:`filesystem_middleware`."""

    tools: tuple[Tool, ...]
    name: str = field(default="filesystem")


def filesystem_middleware(root: str | os.PathLike[str], *, name: str = "filesystem") -> Filesystem:
    """Give the agent ``ls``, ``read_file``, ``write_file`` and ``edit_file`` in a folder; see :func:`filesystem_tools`.

    Raises:
        TypeError, ValueError: As :func:`filesystem_tools`.
    """
    return Filesystem(filesystem_tools(root), name)

"""Opening files beneath one folder: nothing outside of it is reached, whoever swaps links meanwhile.

A path is never checked first and opened later. It is opened beneath the folder in one step, by Linux's ``openat2`` with
``RESOLVE_BENEATH``; where that is missing, name by name, never following a link that was not read and walked itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

MAX_DEPTH = 100
RESERVED = ".outlast"
"""Names that begin so are the engine's own, ``.outlast`` of `outlast dev` among them: no path may name them."""

Opener: TypeAlias = Callable[[int, tuple[str, ...], int], int]
"""From a folder's descriptor, the names of a path in it and flags to a descriptor."""


class Refused(Exception):
    """An operation that was not done; the text is for the model."""


def parts_of(path: str) -> tuple[str, ...]:
    """The names on a path within the folder; ``/x`` and ``x`` are the same, ``/`` has none.

    Raises:
        Refused: It leads out, or no file can be named so.
    """
    if "\0" in path or path.startswith("~"):
        raise Refused(f"{shown(path)} is not a path in the workspace: '~' and NUL have no meaning here")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise leads_out(path)
    if any(part.lower().startswith(RESERVED) for part in parts):
        raise Refused(f"{shown(path)}: names that begin with {RESERVED} are not yours to use")
    try:
        too_long = len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > 255 for part in parts)
    except UnicodeError:
        raise Refused(f"{shown(path)} cannot be the name of a file") from None
    if too_long:
        raise Refused(f"{shown(path)} is too long")
    return parts


def shown(path: str) -> str:
    """A path as an answer quotes it."""
    return repr(path if len(path) <= 200 else f"{path[:200]}...")


def leads_out(path: str) -> Refused:
    """What is said of a path that leaves the folder."""
    return Refused(
        f"{shown(path)} leads out of the workspace. Paths begin at its root: '/notes.txt' is notes.txt in it"
    )


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPENAT2 = 437
_BENEATH_NO_MAGIC = 0x08 | 0x02
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def open_by_kernel(root: int, parts: tuple[str, ...], flags: int) -> int:
    """Open beneath a folder with ``openat2``. Links that stay beneath are followed.

    Raises:
        OSError: As open; ``EXDEV`` where the path leads out, ``ENOSYS`` where the kernel does not have it.
    """
    if _libc is None:
        raise OSError(errno.ENOSYS, "no openat2")
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH_NO_MAGIC)
    path = os.fsencode("/".join(parts) or ".")
    code = 0
    for _ in range(1000):
        found = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if found >= 0:
            return int(found)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):  # something was renamed meanwhile: the kernel asks to try again
            break
    raise OSError(code, os.strerror(code))


def open_by_walking(root: int, parts: tuple[str, ...], flags: int) -> int:
    """The same where there is no ``openat2``: one name after another, each from the folder that was opened before it.

    Raises:
        OSError: As :func:`open_by_kernel`.
    """
    folders, todo, links = [os.dup(root)], list(reversed(parts)), 0
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                if len(folders) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(folders.pop())
                continue
            how = (os.O_DIRECTORY if todo else flags) | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                found = os.open(name, how, dir_fd=folders[-1])
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                    raise
                try:
                    target = os.readlink(name, dir_fd=folders[-1])
                except OSError:
                    raise error from None
                links += 1
                if target.startswith("/") or links > 40:
                    code = errno.EXDEV if links <= 40 else errno.ELOOP
                    raise OSError(code, os.strerror(code)) from None
                todo.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
                continue
            if not todo:
                return found
            folders.append(found)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=folders[-1])
    finally:
        for folder in folders:
            os.close(folder)


def open_beneath(root: int, parts: tuple[str, ...], flags: int) -> int:
    """By the kernel where it can, else by walking (an old kernel, another system, a sandbox that forbids the call)."""
    try:
        return open_by_kernel(root, parts, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return open_by_walking(root, parts, flags)

"""The files of one folder: read, listed, and changed one at a time, each change once however often it is tried."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from outlast.middleware.contained_files import RESERVED, Opener, Refused, leads_out, open_beneath, parts_of, shown

MAX_FILE_BYTES = 10_000_000
_STATE = f"{RESERVED}-files"
_KEPT_SECONDS = 8 * 86_400
"""Longer than any call is tried again."""

Change: TypeAlias = Callable[[bytes | None], tuple[bytes, str]]
"""From what is in a file (None: there is none) to what shall be in it, and the answer about it."""


@dataclass(frozen=True)
class Workspace:
    """The files beneath ``root``, which may itself be a link.

    Every method raises :class:`Refused` with what the model should know, and nothing else for any path.
    """

    root: str
    opener: Opener = open_beneath

    def read(self, path: str) -> bytes:
        """A file's content."""
        with self._root(path) as root:
            return self._read(root, path, parts_of(path))

    def entries(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The names in a folder, with what each is; links are not followed."""
        with self._root(path) as root, self._open(root, parts_of(path), os.O_RDONLY | os.O_DIRECTORY) as folder:
            with os.scandir(folder) as found:
                names = sorted(entry.name for entry in found if not entry.name.lower().startswith(RESERVED))
            kept = []
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                    kept.append((name, os.stat(name, dir_fd=folder, follow_symlinks=False)))
            return kept

    def change(self, path: str, key: str, change: Change) -> str:
        """Change a file as a whole: one change at a time, and once per ``key``, however often it is tried.

        What a change does is noted before it is done. A second attempt finds the note, looks whether the file is as
        it was before or as it is after, and acts on that.
        """
        parts = parts_of(path)
        if not parts:
            raise Refused(f"{shown(path)} is a folder")
        with self._root(path) as root, self._state(root) as state:
            before = self._read_if_there(root, path, parts)
            note = _read_note(state, key)
            if note is not None and (note["done"] or note["after"] == _digest(before)):
                return str(note["answer"])
            if note is not None and note["before"] != _digest(before):
                raise Refused(
                    f"{path}: an earlier attempt may have changed it, and so did somebody else; read it again"
                )
            after, answer = change(before)
            if len(after) > MAX_FILE_BYTES:
                raise Refused(f"{path} would have {len(after):,} bytes; {MAX_FILE_BYTES:,} are allowed")
            note = {"before": _digest(before), "after": _digest(after), "answer": answer, "done": False}
            _write_note(state, key, note)
            with self._folder(root, parts[:-1]) as folder:
                _replace(folder, parts[-1], after)
            _write_note(state, key, {**note, "done": True})
            return answer

    @contextmanager
    def _root(self, path: str) -> Iterator[int]:
        """The folder, open; errors of the operating system become words."""
        parts_of(path)
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(f"the workspace cannot be used on this worker: {error.strerror}") from None
        try:
            yield root
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise leads_out(path) from None
            raise Refused(f"{shown(path)}: {error.strerror or type(error).__name__}") from None
        finally:
            os.close(root)

    @contextmanager
    def _open(self, root: int, parts: tuple[str, ...], flags: int) -> Iterator[int]:
        found = self.opener(root, parts, flags)
        try:
            yield found
        finally:
            os.close(found)

    def _read(self, root: int, path: str, parts: tuple[str, ...]) -> bytes:
        # Not to wait for the other end of a pipe, nor to become a terminal's process.
        with self._open(root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as file:
            _check_ordinary(os.fstat(file), path)
            with os.fdopen(os.dup(file), "rb") as reader:
                data = reader.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise Refused(f"{path} has more than {MAX_FILE_BYTES:,} bytes, which is too large")
        return data

    def _read_if_there(self, root: int, path: str, parts: tuple[str, ...]) -> bytes | None:
        """What is to be replaced. A link is not: whether it leads out or not, the file it names is another one."""
        try:
            with self._open(root, parts[:-1], os.O_RDONLY | os.O_DIRECTORY) as folder:
                _check_ordinary(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False), path)
                return self._read(folder, path, parts[-1:])
        except FileNotFoundError:
            return None

    @contextmanager
    def _folder(self, root: int, parts: tuple[str, ...]) -> Iterator[int]:
        """The folder of a new file, made where it is missing; what is made is not a link."""
        folder, known = -1, len(parts)
        while folder < 0:
            try:
                folder = self.opener(root, parts[:known], os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                if not known:
                    raise
                known -= 1
        try:
            for name in parts[known:]:
                inner = _make_folder(folder, name)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _state(self, root: int) -> Iterator[int]:
        """The engine's own folder in the workspace, locked: one change at a time, on all workers that share it."""
        import fcntl  # not on every system; there the rest of the package still imports

        state = _make_folder(root, _STATE)
        try:
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=state)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield state
            finally:
                os.close(lock)
        finally:
            os.close(state)


def _check_ordinary(found: os.stat_result, path: str) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no ordinary file"
    raise Refused(f"{shown(path)} is {'a folder' if stat.S_ISDIR(found.st_mode) else kind}")


def _make_folder(folder: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


_numbers = itertools.count(1)


def _replace(folder: int, name: str, data: bytes, *, lasting: bool = True) -> None:
    """A new file in place of whatever is called so, in one step; it keeps the old one's permissions."""
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = f"{RESERVED}-{os.getpid()}-{next(_numbers)}.tmp"
        with contextlib.suppress(FileExistsError):
            file = os.open(temporary, flags, 0o666, dir_fd=folder)
            break
    try:
        with os.fdopen(file, "wb") as writer:
            writer.write(data)
            writer.flush()
            if mode is not None:
                os.fchmod(file, mode)
            if lasting:
                os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        if lasting:
            os.fsync(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _note_name(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:40]


def _read_note(state: int, key: str) -> dict[str, Any] | None:
    if not key:
        return None
    try:
        file = os.open(_note_name(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=state)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as reader:
        found: dict[str, Any] = json.load(reader)
    return found


def _write_note(state: int, key: str, note: dict[str, Any]) -> None:
    if not key:
        return
    name = _note_name(key)
    _replace(state, name, json.dumps(note).encode(), lasting=False)
    if name.startswith("00"):  # now and then
        _forget_old_notes(state, os.stat(name, dir_fd=state).st_mtime)


def _forget_old_notes(state: int, now: float) -> None:
    with os.scandir(state) as found:
        old = [entry.name for entry in found if entry.stat(follow_symlinks=False).st_mtime < now - _KEPT_SECONDS]
    for name in old:
        if name != "lock":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=state)

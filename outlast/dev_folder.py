"""The folder ``.outlast``: what a running ``outlast dev`` keeps there, and how clients started beside it find it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from outlast.errors import OutlastError
from outlast.keyring import KEY_FILE, KEYS, Keyring, new_key, read_key_file, write_key_file

if sys.platform != "win32":
    import fcntl

FOLDER = ".outlast"
_NOTE = "dev.json"


@dataclass(frozen=True, kw_only=True)
class DevNote:
    """What a client must know of a running ``outlast dev``.

    Attributes:
        storage: URL of its storage.
        ui: URL of Temporal's web UI, or None.
        key_file: Path of the file with the encryption keys, or None.
        agents: Where its worker has the agents from, as given.
        private: Names of those that redact at their edges; None while that is not known.
    """

    address: str
    namespace: str
    task_queue: str
    storage: str
    ui: str | None = None
    key_file: str | None = None
    agents: Sequence[str] = ()
    private: Sequence[str] | None = None


def storage_url(folder: Path) -> str:
    """The storage of a state folder. Flushing is left to the system, as for the server's own database."""
    return f"dir://{quote(str((folder / 'storage').resolve()))}?fsync=off"


def key_file(folder: Path, make: bool) -> str | None:
    """The file whose keys encrypt what is said here: the one that the environment names, else the state folder's own.

    Args:
        make: Make the folder's own where there is none.

    Raises:
        OutlastError: The file cannot be written, or holds no key.
    """
    named = os.environ.get(KEY_FILE)
    if named or os.environ.get(KEYS):
        return str(Path(named).resolve()) if named else None
    own = (folder / "encryption.keys").resolve()
    try:
        if make and not own.exists():
            write_key_file(own, Keyring.from_text(new_key("dev"), str(own)))
        if own.exists():
            read_key_file(own)
            return str(own)
    except (OSError, ValueError) as error:
        raise OutlastError(f"the key file of the state folder cannot be used: {error}") from None
    return None


@contextmanager
def claim(folder: Path) -> Iterator[Path]:
    """Own a state folder; yields the file for :func:`write_note`. The claim ends with the process, however it ends.

    Raises:
        OutlastError: Another process owns it, or it cannot be written.
    """
    path = folder / _NOTE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
        note = path.open("a+")
    except OSError as error:
        raise OutlastError(f"the state folder {folder} cannot be used: {error.strerror or error}") from None
    with note:
        if not _lock(note.fileno()):
            running = find_dev(folder)
            where = f" (its server is at {running.address})" if running is not None else ""
            raise OutlastError(f"another `outlast dev` uses the folder {folder}{where}; stop it, or give --state OTHER")
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.write_text("")


def write_note(path: Path, note: DevNote) -> None:
    """Tell clients where everything is."""
    path.write_text(json.dumps(asdict(note), indent=1) + "\n")


def find_dev(folder: Path | None = None) -> DevNote | None:
    """The ``outlast dev`` that runs in this folder (the current one's ``.outlast``), or None."""
    try:
        with ((folder or Path(FOLDER)) / _NOTE).open() as note:
            if not _is_locked(note.fileno()):
                return None
            return DevNote(**json.load(note))
    except (OSError, ValueError, TypeError):
        return None


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    for _ in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)  # a client that looks holds it for a moment
        else:
            return True
    return False


def _is_locked(descriptor: int) -> bool:
    if sys.platform == "win32":
        return os.fstat(descriptor).st_size > 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False

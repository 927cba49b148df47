"""The keys that payloads are encrypted with: where they come from, how they are checked, how they are made.

A key is written ``id:base64``: an id that may be seen by everybody, and 32 random bytes that may not. Several stand in
a row, by commas or lines; the first encrypts, all decrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

KEYS: Final = "OUTLAST_ENCRYPTION_KEYS"
KEY_FILE: Final = "OUTLAST_ENCRYPTION_KEY_FILE"
KEY_BYTES: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, repr=False)
class Keyring:
    """Keys by their ids; the first encrypts, all decrypt. Never printed: its ``repr`` has the ids only.

    Attributes:
        keys: Id and 32 bytes of each. None at all means: encrypt nothing, decrypt nothing.
    """

    keys: tuple[tuple[str, bytes], ...] = ()

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.ids)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The keys' ids, in order."""
        return tuple(id for id, _ in self.keys)

    @cached_property
    def fingerprint(self) -> str:
        """What may be told to everybody: ``id=check`` of each key, where ``check`` differs for different keys."""
        return ",".join(f"{id}={_check_value(key)}" for id, key in self.keys)

    def to_text(self) -> str:
        """As in ``OUTLAST_ENCRYPTION_KEYS``: the keys themselves, for another process of ours."""
        return ",".join(_written(id, key) for id, key in self.keys)

    @classmethod
    def from_text(cls, text: str, place: str) -> Self:
        """Read keys that are written by commas or lines; what follows ``#`` on a line is a remark.

        Args:
            text: ``id:base64`` of each.
            place: Where they were found, for messages. No message holds a key.

        Raises:
            ValueError: None, a wrong one, or two of one id; the message names place and key.
        """
        lines = [(number, line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
        written = [(number, word.strip()) for number, line in lines for word in line.split(",") if word.strip()]
        if not written:
            raise ValueError(f"{place} holds no key; `outlast key` makes one")
        keys: dict[str, bytes] = {}
        for position, (number, word) in enumerate(written, 1):
            here = f"{place}, key {position}" + (f" (line {number})" if len(lines) > 1 else "")
            id, key = _read(word, here)
            if id in keys:
                raise ValueError(f"{here}: there is an earlier key {id!r}; ids must differ, old ciphertexts name them")
            keys[id] = key
        return cls(tuple(keys.items()))


def load_keyring(environ: Mapping[str, str]) -> Keyring | None:
    """The keys that the environment holds or names a file of; None where it says nothing.

    Raises:
        ValueError: Both are set, the file cannot be read, or a key is wrong; the message names the place.
    """
    text, file = environ.get(KEYS, "").strip(), environ.get(KEY_FILE, "").strip()
    if text and file:
        raise ValueError(f"{KEYS} and {KEY_FILE} are both set; keep one of them, so that it is clear which keys count")
    if file:
        return read_key_file(Path(file))
    return Keyring.from_text(text, KEYS) if text else None


def read_key_file(file: Path) -> Keyring:
    """The keys of a file.

    Raises:
        ValueError: It cannot be read, or a key is wrong; the message names the place.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{KEY_FILE}: the file {file} cannot be read ({why})") from None
    return Keyring.from_text(text, f"{KEY_FILE} {file}")


def new_key(id: str) -> str:
    """A fresh key, written ``id:base64``.

    Raises:
        ValueError: The id is not allowed.
    """
    if not _ID.fullmatch(id):
        raise ValueError(f"the id {id!r:.80} is not allowed: give 1 to 64 of A-Z a-z 0-9 . _ -")
    return _written(id, secrets.token_bytes(KEY_BYTES))


def write_key_file(file: Path, ring: Keyring) -> None:
    """Replace the file as a whole; only its owner may read it.

    Raises:
        OSError: It cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w") as new:
            new.write("".join(f"{_written(id, key)}\n" for id, key in ring.keys))
            new.flush()
            os.fsync(handle)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def disagreement(ours: str, theirs: str) -> str | None:
    """Why two processes with these fingerprints cannot work on the same runs, in words; None where they can.

    What one encrypts, the other must be able to decrypt: the first key of each must be among the other's. In the middle
    of a rotation the order differs, and that is well.
    """
    mine, others = _parts(ours), _parts(theirs)
    if bool(mine) != bool(others):
        return f"one encrypts and the other does not ({KEYS}, {KEY_FILE})"
    for id in mine.keys() & others.keys():
        if mine[id] != others[id]:
            return f"the key {id!r} is another key there, though its id is the same"
    for who, ring, first in (
        ("the other", others, next(iter(mine), None)),
        ("this one", mine, next(iter(others), None)),
    ):
        if first is not None and first not in ring:
            return f"{who} lacks the key {first!r}, with which its peer encrypts"
    return None


def _parts(fingerprint: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in fingerprint.split(",") if part)
    return {id: check for id, _, check in pairs}


def _read(word: str, here: str) -> tuple[str, bytes]:
    id, colon, encoded = word.partition(":")
    if not colon:
        raise ValueError(f"{here} is not written id:base64; `outlast key` makes one")
    if not _ID.fullmatch(id):
        raise ValueError(f"{here} has an id that is not allowed: give 1 to 64 of A-Z a-z 0-9 . _ - before the colon")
    try:
        key = base64.b64decode(encoded.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{here} ({id!r}) is not base64 after the colon") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{here} ({id!r}) has {len(key)} bytes; a key has exactly {KEY_BYTES} (AES-256)")
    return id, key


def _written(id: str, key: bytes) -> str:
    return f"{id}:{base64.b64encode(key).decode()}"


def _check_value(key: bytes) -> str:
    return hmac.digest(key, b"outlast key check", hashlib.sha256).hex()[:8]

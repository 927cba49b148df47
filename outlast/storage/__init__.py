"""Where payloads go that are too large for a history."""

from __future__ import annotations

from urllib.parse import unquote

from outlast.storage.directory import DirectoryStorage
from outlast.storage.owner import Owner
from outlast.storage.references import OwnedStorage, TotalDataConverter
from outlast.storage.tombstone import is_tombstone, tombstone

__all__ = [
    "DirectoryStorage",
    "OwnedStorage",
    "Owner",
    "TotalDataConverter",
    "check_storage_url",
    "is_tombstone",
    "open_storage",
    "tombstone",
]


def open_storage(url: str) -> DirectoryStorage:
    """The storage that a URL names: ``dir:///absolute/path``. The directory is made if it is missing.

    ``dir:///absolute/path?fsync=off`` leaves flushing to the system; see :class:`DirectoryStorage`.

    Raises:
        ValueError: Another kind of URL.
        OutlastError: The directory cannot be used.
    """
    check_storage_url(url)
    path, _, query = url.removeprefix("dir://").partition("?")
    return DirectoryStorage(unquote(path), fsync=query != "fsync=off")


def check_storage_url(url: str) -> None:
    """Whether :func:`open_storage` understands a URL; touches nothing.

    Raises:
        ValueError: It does not; the message says what is allowed.
    """
    path, question, query = url.removeprefix("dir://").partition("?")
    if not url.startswith("dir:///") or "\0" in unquote(path) or (question and query not in ("fsync=on", "fsync=off")):
        raise ValueError(f"storage {url!r} is not understood: give dir:///absolute/path (three slashes)")

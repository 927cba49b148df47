"""Where payloads go that are too large for a history."""

from __future__ import annotations

from pathlib import Path
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

    Raises:
        ValueError: Another kind of URL.
        OutlastError: The directory cannot be used.
    """
    return DirectoryStorage(check_storage_url(url))


def check_storage_url(url: str) -> Path:
    """The directory that a storage URL names; touches nothing.

    Raises:
        ValueError: The URL is of another kind; the message says what is allowed.
    """
    scheme, slashes, rest = url.partition("://")
    if scheme == "dir" and slashes and rest.startswith("/") and not set(rest) & {"?", "#", "\0"}:
        return Path(unquote(rest))
    raise ValueError(f"storage {url!r} is not understood: give dir:///absolute/path (three slashes)")

"""AC-117, D58: somebody swaps files and folders for links that lead out, while the tools work. A few seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from outlast.middleware.contained_files import Opener, Refused, open_by_kernel, open_by_walking
from outlast.middleware.workspace import Workspace

SWAPPER = """
import ctypes, os, sys

inside, outside = sys.argv[1:]
libc = ctypes.CDLL(None)
os.chdir(inside)
os.symlink(outside, "other")
print("ready", flush=True)
while os.getppid() != 1:
    libc.renameat2(-100, b"folder", -100, b"other", 2)  # the two change places in one step
    os.symlink(os.path.join(outside, "file"), "link")
    os.rename("link", "file")
    libc.renameat2(-100, b"folder", -100, b"other", 2)
    with open("ordinary", "w") as file:
        file.write("inside")
    os.rename("ordinary", "file")
"""


@contextmanager
def swapping(inside: Path, outside: Path) -> Iterator[None]:
    command = [sys.executable, "-c", SWAPPER, str(inside), str(outside)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def checked_then_opened(root: Path, path: str) -> bytes:
    """What not to do."""
    if not os.path.realpath(root / path).startswith(f"{root}{os.sep}"):
        raise Refused(path)
    return (root / path).read_bytes()


@pytest.mark.parametrize("opener", [open_by_kernel, open_by_walking], ids=["openat2", "walking"])
def test_no_swap_of_a_link_between_two_looks_lets_anything_out_or_in(tmp_path: Path, opener: Opener) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place in (inside, outside):
        (place / "folder").mkdir(parents=True)
        (place / "file").write_text(place.name)
        (place / "folder" / "file").write_text(place.name)
        (place / "data").write_text(place.name)
    (outside / "deep").mkdir()
    files = Workspace(str(inside), opener)
    read, refused, naive_losses = 0, 0, 0
    deadline = time.monotonic() + 20
    with swapping(inside, outside):
        while time.monotonic() < deadline and (naive_losses < 10 or read < 200 or refused < 200):
            for path in ("file", "folder/file"):
                with suppress(OSError, Refused):
                    naive_losses += checked_then_opened(inside, path) == b"outside"
                try:
                    assert files.read(path) == b"inside"
                    files.change(path, "", lambda before: (b"inside", "ok"))
                    files.change("folder/deep/new", "", lambda before: (b"inside", "ok"))
                    read += 1
                except Refused:
                    refused += 1
    assert (read >= 200, refused >= 200, naive_losses > 0) == (True, True, True)  # the swapper was there
    left = {str(path.relative_to(outside)) for path in outside.rglob("*")}
    assert left == {"folder", "folder/file", "file", "data", "deep"}
    assert all(path.read_text() == "outside" for path in outside.rglob("*") if path.is_file())

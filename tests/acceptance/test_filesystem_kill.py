"""AC-117: a process that is killed at each point of a change of a file, and what the next attempt makes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.middleware.contained_files import Refused
from outlast.middleware.workspace import Workspace

DYING = """
import os, sys
from outlast.middleware.workspace import Workspace

left = int(sys.argv[2])

def at_a_rename(event, args):
    global left
    if event == "os.rename":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)

sys.addaudithook(at_a_rename)
Workspace(sys.argv[1]).change("f", "key", lambda before: (before * 2, "doubled"))
"""


def workspace(root: Path) -> Workspace:
    (root / "f").write_bytes(b"one")
    return Workspace(str(root))


def doubled(before: bytes | None) -> tuple[bytes, str]:
    return (before or b"") * 2, "doubled"


def killed_at_rename(root: Path, number: int) -> None:
    """A process that is killed as it is about to put in place: 1 the note, 2 the file, 3 the note of the end."""
    done = subprocess.run([sys.executable, "-c", DYING, str(root), str(number)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_worker_that_dies_in_the_middle_of_a_change_does_no_harm(tmp_path: Path, number: int) -> None:
    files = workspace(tmp_path)
    killed_at_rename(tmp_path, number)
    assert (tmp_path / "f").read_bytes() == (b"oneone" if number == 3 else b"one")
    assert files.change("f", "key", doubled) == "doubled"
    assert (tmp_path / "f").read_bytes() == b"oneone"
    assert [name for name, _ in files.entries("/")] == ["f"]


def test_where_nobody_can_know_whether_it_happened_that_is_said(tmp_path: Path) -> None:
    files = workspace(tmp_path)
    killed_at_rename(tmp_path, 3)
    (tmp_path / "f").write_bytes(b"somebody else's")
    with pytest.raises(Refused, match="may have changed it, and so did somebody else"):
        files.change("f", "key", doubled)
    assert (tmp_path / "f").read_bytes() == b"somebody else's"

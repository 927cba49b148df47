"""A virtual environment per peer under ``benchmarks/.venvs``, with exactly the versions of its constraints file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.comparison.candidates import Candidate, Unavailable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / ".venvs"
_INSTALL_SECONDS = 900


def constraints_of(candidate: Candidate) -> Path:
    """The file that pins everything a peer's environment holds."""
    return ROOT / "benchmarks" / "peers" / f"constraints-{candidate.module}.txt"


def python_of(candidate: Candidate) -> str:
    """The interpreter that serves a candidate; its environment is made if it is not there or not what is pinned.

    Raises:
        Unavailable: Its packages could not be installed.
    """
    if not candidate.packages:
        return sys.executable
    folder = FOLDER / candidate.module
    python, stamp = folder / "bin" / "python", folder / "outlast-setup"
    wanted = hashlib.sha256(f"{sys.version} {candidate.packages}".encode())
    wanted.update(constraints_of(candidate).read_bytes())
    if not (stamp.is_file() and stamp.read_text() == wanted.hexdigest()):
        print(f"installing {candidate.name} into {folder.relative_to(ROOT)}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *candidate.packages, "-c", str(constraints_of(candidate))])
        stamp.write_text(wanted.hexdigest())
    return str(python)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not installed within {_INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Unavailable(f"cannot be installed: {lines[-1] if lines else 'pip said nothing'}")

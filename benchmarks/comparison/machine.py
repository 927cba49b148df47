"""On what it was measured: enough to compare by, nothing that names the machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

import psutil


def machine() -> str:
    """Cores, memory, system, and the versions of Python, the server and the SDK."""
    return (
        f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB, {platform.system()}, "
        f"Python {platform.python_version()}, Temporal server {_server()}, SDK {metadata.version('temporalio')}"
    )


def _server() -> str:
    binary = Path(sysconfig.get_path("scripts")) / "temporal"
    said = subprocess.run([str(binary), "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Server ([\d.]+)", said)
    return found[1] if found is not None else "?"

"""The command ``outlast``. See ``outlast --help``; exit codes are in :mod:`outlast.cli.command`."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def main() -> None:
    """The entry point of ``outlast`` and of ``python -m outlast.cli``."""
    try:
        import rich
        import typer
    except ImportError as error:
        sys.stderr.write(f"the command line needs {error.name}; install it with: pip install 'outlast[cli]'\n")
        sys.exit(2)
    del rich, typer
    from outlast.cli.app import app

    try:
        app()
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)


def leave(code: int) -> NoReturn:
    """End the process without tearing the interpreter down.

    Threads of Temporal's core call into Python until the last moment, and a teardown under them may end in a
    segmentation fault; see :func:`outlast.settings.let_core_finish`. And a tool that hangs in a thread must not hold a
    worker.
    """
    settings = sys.modules.get("outlast.settings")
    if settings is not None:
        atexit.unregister(settings.let_core_finish)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # whoever read it is gone
            code = code or 1
    os._exit(code)

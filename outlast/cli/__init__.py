"""The command ``outlast``. See ``outlast --help``; exit codes are in :mod:`outlast.cli.command`."""

from __future__ import annotations

import sys


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

    app()

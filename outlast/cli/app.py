"""The commands, put together. Only the module that has the wanted command is imported, so that each starts quickly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

MODULES: Mapping[str, Sequence[str]] = {
    "dev": ("dev",),
    "workers": ("worker", "check", "replay"),
    "runs": ("run", "runs", "show", "watch", "send", "cancel", "resume", "abort"),
    "decisions": ("pending", "approve", "edit", "reject"),
    "doctor": ("doctor",),
    "encryption": ("key", "codec-server"),
    "chaos": ("chaos",),
}
"""Each module of this package and its commands, in the order of the help; a module adds them with ``add(app)``."""


def build(word: str | None = None) -> typer.Typer:
    """The command line; with a command's name, only the part of it that has this command."""
    app = typer.Typer(
        name="outlast",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = [module for module, names in MODULES.items() if word in names] or list(MODULES)
    for module in wanted:
        importlib.import_module(f"outlast.cli.{module}").add(app)
    return app


def app() -> None:
    """Run the command in ``sys.argv``."""
    build(next((word for word in sys.argv[1:] if not word.startswith("-")), None))()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"outlast {version('outlast')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Durable agents on Temporal.

    Start with: outlast dev agents.py
    """

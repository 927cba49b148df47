"""``chaos``: runs under faults on this machine, checked against a ledger."""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import Annotated

import typer

from outlast.cli.command import DONE, FAILED, register


def add(app: typer.Typer) -> None:
    """Add this module's command."""
    register(app, chaos)


def chaos(
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="How many runs.")] = 50,
    rubbish: Annotated[int, typer.Option(min=0, max=1_000_000, help="Malformed signals and updates.")] = 1000,
    seed: Annotated[int | None, typer.Option(help="Repeats a run's faults.", show_default="a new one")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="A run that has not ended by then is stuck.")] = 600.0,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Worker processes.")] = 2,
) -> int:
    """Kill what agents run on, and check that nothing is lost.

    Workers and the server are killed, connections cut, the disk filled.
    Everything happens on this machine, in a folder of its own, and ends with
    the command.
    """
    from outlast.testing.chaos.runner import Plan, run_chaos

    plan = Plan(runs, rubbish, secrets.randbelow(1_000_000) if seed is None else seed, seconds, workers)
    sys.stdout.write(f"seed {plan.seed}\n")
    report = asyncio.run(run_chaos(plan))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return FAILED if report.complaints else DONE

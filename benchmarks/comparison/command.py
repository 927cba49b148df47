"""The command line: which rows are measured, what is kept from the last time, where the table goes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.comparison import report
from benchmarks.comparison.arena import arena
from benchmarks.comparison.candidates import BARE, CANDIDATES, Candidate, Unavailable
from benchmarks.comparison.environments import ROOT, python_of
from benchmarks.comparison.machine import machine
from benchmarks.comparison.rows import QUICK, ROWS, Extent

RESULTS = ROOT / "benchmarks" / ".results"
PAGE = ROOT / "docs" / "benchmarks.md"


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about three minutes; the page is not written")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), help="measure these alone, keep the others")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these candidates and the bare workflow; keep the others"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the rows that a run which was cut short has measured"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing: print, and write, what was measured last")
    asked = parser.parse_args(arguments)
    kept = RESULTS / ("quick.json" if asked.quick else "full.json")
    if not asked.page:
        _measure(asked, kept)
    measured = _read(kept)
    print(report.table(measured))
    if not (asked.quick or asked.only):
        PAGE.write_text(report.page(measured))
        print(f"written: {PAGE.relative_to(ROOT)}")


def _measure(asked: argparse.Namespace, kept: Path) -> None:
    measured: dict[str, Any] = _read(kept) if asked.resume or asked.rows or asked.only else {}
    missing = [row for row in ROWS if row not in measured] if asked.resume else list(ROWS)
    candidates = _chosen(asked.only)
    unavailable = _prepare(candidates)
    for row in asked.rows or missing:
        print(f"-- {row}: {(ROWS[row].__doc__ or '').splitlines()[0]}", flush=True)
        began, load = time.monotonic(), os.getloadavg()[0]
        figures, absent = asyncio.run(_row(row, candidates, unavailable, QUICK if asked.quick else Extent()))
        if asked.only and row in measured:  # what was measured of the others stays
            chosen = {candidate.name for candidate in candidates}
            others = {name: why for name, why in measured[row]["unavailable"].items() if name not in chosen}
            figures, absent = measured[row]["figures"] | figures, others | absent
            load = max(load, measured[row]["load"])
        measured[row] = {
            "figures": figures,
            "unavailable": absent,
            "seconds": round(time.monotonic() - began),
            "load": round(load, 1),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
        }
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(measured, indent=1))
        print(f"   {measured[row]['seconds']} s", flush=True)


async def _row(
    row: str, candidates: list[Candidate], unavailable: dict[str, str], extent: Extent
) -> tuple[dict[str, Any], dict[str, str]]:
    async with arena(candidates, unavailable) as place:
        figures: dict[str, Any] = await ROWS[row](place, extent)
        return figures, place.unavailable


def _chosen(names: list[str] | None) -> list[Candidate]:
    known = [candidate.name for candidate in CANDIDATES]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise SystemExit(f"no candidate {unknown[0]!r}; there are: {', '.join(known)}")
    return [one for one in CANDIDATES if names is None or one == BARE or one.name in names]


def _prepare(candidates: list[Candidate]) -> dict[str, str]:
    """The environments; who has none, and why."""
    unavailable = {}
    for candidate in candidates:
        try:
            python_of(candidate)
        except Unavailable as problem:
            unavailable[candidate.name] = str(problem)
            print(f"{candidate.name}: {problem}", flush=True)
    return unavailable


def _read(kept: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    return found

"""One worker is killed while runs stand at every named point of a call; reported is exactly what can be known (T2)."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.client import Client
from outlast.devserver import DevServer
from outlast.messages import ToolResultBlock
from outlast.run import Run
from outlast.settings import Settings, connect
from tests.acceptance import ledger
from tests.acceptance.precise_agents import POINTS

ROOT = Path(__file__).parent.parent.parent
STANDING = [f"{tool} {point}" for tool, point in itertools.product(("repeatable", "once"), POINTS)]


def start_worker(address: str, file: Path, **extra: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "outlast.cli", "worker", "tests.acceptance.precise_agents", "--address", address]
    env = {**os.environ, ledger.VARIABLE: str(file), **extra}
    with file.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)


@asynccontextmanager
async def killed_worker(file: Path, messages: list[str]) -> AsyncIterator[dict[str, Run]]:
    """Runs that stood at their points when their worker was killed; another worker, which stops nowhere, goes on."""
    async with DevServer() as server:
        client = Client(await connect(Settings.load(address=server.address, environ={})))
        first = start_worker(server.address, file)
        runs = {text: await client.start("precise", text, id=f"run-{text.replace(' ', '-')}") for text in messages}
        while sum(line.kind == "hold" for line in ledger.read(file)) < len(STANDING) + 1:
            await asyncio.sleep(0.02)
        while not await client.pending():
            await asyncio.sleep(0.02)
        first.kill()
        first.wait()
        second = start_worker(server.address, file, PASS="1")
        try:
            yield runs
        finally:
            second.kill()
            second.wait()


@pytest.mark.timeout(120)
async def test_after_a_kill_at_any_point_the_run_knows_exactly_what_can_be_known(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    async with killed_worker(file, [*STANDING, "gated none", "model none"]) as runs:
        await runs["gated none"].decide("gated", "approve", by="alice")
        results = {text: await run.result() for text, run in runs.items()}
    assert {result.output for result in results.values()} == {"done"}
    lines = ledger.read(file)
    for text in (*STANDING, "gated none"):
        [block] = [item for message in results[text].messages for item in message.tool_results]
        check(text, block, [line for line in lines if line.run_id == runs[text].id])


def check(text: str, block: ToolResultBlock, lines: list[ledger.Line]) -> None:
    tool, point = text.split()
    done = [(line.kind, line.attempt) for line in lines if line.kind != "hold"]
    assert len({line.key for line in lines}) == 1
    if tool == "once":  # whatever it did, it did once, and nobody can know
        assert block.status == "unknown", text
        assert "may or may not" in block.text
        assert done == {"before": [], "within": [("begin", 1)], "after": [("begin", 1), ("end", 1)]}[point]
    else:
        assert (block.status, block.text) == ("executed", "did it"), text
        attempt = 2 if tool == "repeatable" else 1
        assert done[-2:] == [("begin", attempt), ("end", attempt)]

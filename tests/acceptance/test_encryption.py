"""T17: markers planted wherever a run can hold anything; encrypted, none is in any file of server, storage or log.

The same search without encryption finds every one of them, which proves that it looks in the right places.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from outlast.client import Client
from outlast.devserver import DevServer
from outlast.errors import AgentRunFailed, AgentRunPaused
from outlast.keyring import KEYS, new_key
from outlast.messages import assistant, user
from outlast.run import Run
from outlast.settings import Settings, connect
from tests.acceptance.secret_agents import NAMES, mark, marker

ROOT = Path(__file__).parents[2]


class Search:
    """Looks again and again through every file of a folder for the markers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, str] = {}

    def look(self) -> None:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                with contextlib.suppress(FileNotFoundError):  # a temporary one
                    data = path.read_bytes()
                    for name in NAMES:
                        if marker(name).encode() in data:
                            self.found.setdefault(name, str(path.relative_to(self.folder)))

    async def keep_looking(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(0.2)


@contextmanager
def worker(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A worker of the command line, which logs all it can."""
    command = [sys.executable, "-m", "outlast.cli", "worker", "tests.acceptance.secret_agents"]
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "debug"], cwd=ROOT, env={**os.environ, **environment}, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def everything(folder: Path, encryption: dict[str, str]) -> AsyncIterator[Client]:
    """A server, a storage and a worker that keep and log everything in one folder; a client."""
    log = folder / "server.log"
    async with DevServer(db_filename=folder / "temporal.db", log_file=log, log_level="debug") as server:
        (folder / "storage").mkdir()
        variables = {"OUTLAST_STORAGE": f"dir://{folder}/storage", **encryption}
        environment = {"TEMPORAL_ADDRESS": server.address, "SECRETS_MENDED": f"{folder}.mended", **variables}
        with worker(folder, environment):
            yield Client(await connect(Settings.load(address=server.address, environ=variables)))


async def waits(run: Run, tool: str) -> None:
    while [item.tool for item in await run.pending()] != [tool]:
        await asyncio.sleep(0.05)


async def converse(client: Client, mended: Path) -> None:
    """A run that goes through everything."""
    earlier = [user(mark("earlier") + " padding" * 400), assistant("noted")]
    state = {"start": mark("startstate")}
    run = await client.start("main", mark("input"), id="main", messages=earlier, invocation_state=state)
    with pytest.raises(AgentRunPaused):
        await run.result()
    mended.touch()  # noqa: ASYNC240 - an empty file
    await run.resume(by=mark("resumedby"))
    await waits(run, "mail")
    await run.send(mark("steering"))
    await run.decide("mail", {"edit": {"to": mark("editedargs")}}, by=mark("decidedby"), comment=mark("comment"))
    await waits(run, "mail")
    await run.decide("mail", {"reject": mark("rejected")}, by="alice")
    await waits(run, "ask")
    await run.decide("ask", {"reject": "no"}, by="alice")
    result = await run.result()
    assert result.output == {"text": mark("structured")}
    assert mark("summary") in str(result.invocation_state)


async def fail(client: Client) -> None:
    """Runs that end otherwise."""
    assert (await (await client.start("brief", "x", id="brief")).result()).output == mark("output")
    for name in ("stopped", "failed"):
        with pytest.raises(AgentRunFailed, match="mark"):
            await (await client.start(name, "x", id=name)).result()
    parked = await client.start("refused", "x", id="refused")
    with pytest.raises(AgentRunPaused, match="provider"):
        await parked.result()
    await parked.abort(mark("abort"))
    with pytest.raises(AgentRunFailed, match="abort"):
        await parked.result()


async def run_everything(folder: Path, encryption: dict[str, str]) -> dict[str, str]:
    """The markers that were found, each with the first file that holds it."""
    search, mended = Search(folder), Path(f"{folder}.mended")
    async with everything(folder, encryption) as client:
        looking = asyncio.create_task(search.keep_looking())
        async with asyncio.timeout(60):
            await asyncio.gather(converse(client, mended), fail(client))
        looking.cancel()
    search.look()
    return search.found


@pytest.mark.timeout(120)
async def test_no_file_of_server_storage_or_worker_holds_anything_that_was_said(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    found = await run_everything(tmp_path / "plain", {})
    assert [name for name in NAMES if name not in found] == []
    (tmp_path / "sealed").mkdir()
    assert await run_everything(tmp_path / "sealed", {KEYS: new_key("a")}) == {}
    assert "encrypts with the key a" in (tmp_path / "sealed" / "worker.log").read_text()

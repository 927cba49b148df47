"""The main job, shown: a real model runs as a durable agent, waits for approval, is killed midway, and finishes.

``make demo``, or ``make demo DEMO_ARGS=--yes`` to approve without being asked.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that `python examples/demo.py` finds the package `examples`

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from examples.local_model.server import LocalModelServer
from examples.local_model.weights import find_model
from outlast import Client
from outlast.approvals import PendingInterrupt
from outlast.devserver import DevServer
from outlast.events import Event
from outlast.run import Run
from outlast.watch import TextDelta

FOLDER = Path(".outlast/demo")
QUESTION = "My order A-1001 arrived broken. Please refund it."
PROVIDERS = {
    "OPENAI_API_KEY": "openai:gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5",
    "GEMINI_API_KEY": "gemini:gemini-2.5-flash",
    "OLLAMA_HOST": "ollama:qwen3",
}
console = Console(highlight=False)


@dataclass
class Steps:
    """Numbers what the demo says."""

    number: int = 0

    def say(self, title: str, text: str = "") -> None:
        """A numbered headline, and a line that tells why it matters."""
        self.number += 1
        console.print(Text(f"\n{self.number}. {title}", style="bold"))
        if text:
            line(text, style="dim")


def line(text: str, style: str = "") -> None:
    """A paragraph under a headline."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, 3)))


def row(label: str, text: str) -> None:
    """What happened, and what about it, in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(width=19)
    grid.add_column()
    grid.add_row(Text(label, style="cyan"), Text(text))
    console.print(Padding(grid, (0, 0, 0, 3)))


@contextlib.contextmanager
def model_environment(steps: Steps) -> Iterator[dict[str, str]]:
    """Environment variables that give the worker its model: a provider's, or a server for a local one."""
    chosen = os.environ.get("SUPPORT_MODEL") or next((m for key, m in PROVIDERS.items() if os.environ.get(key)), None)
    if chosen is not None:
        steps.say(f"The model: {chosen}", "From your environment; unset it to use the small model that runs here.")
        yield {"SUPPORT_MODEL": chosen}
        return
    steps.say("The model: a small one that runs on this machine", "The first time its weights are fetched (490 MB).")
    model = find_model(say=line)
    if not model.calls_tools:
        raise SystemExit(
            f"   {model.name} cannot call tools; set SUPPORT_MODEL, or a provider's API key, and try again."
        )
    with LocalModelServer(model) as server:
        line(f"{model.name} answers at {server.base_url}")
        yield {"SUPPORT_MODEL": "llamacpp:local", "LLAMACPP_BASE_URL": server.base_url}


class Worker:
    """A worker in a process of its own, so that it can be killed."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "outlast.cli", "worker", "examples/support_agent.py"],
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """``kill -9``: no goodbye, no clean-up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """Another worker; it knows nothing of the first."""
        self.process = self._start()

    def stop(self) -> None:
        """The polite way."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.kill()


async def wait_for_approval(run: Run) -> tuple[PendingInterrupt, int]:
    """Until the run asks for a decision; returns it, and the cursor to go on watching from."""
    cursor = 0
    async for event in run.events(deltas=False):
        if isinstance(event, Event):
            show(event)
            cursor = event.seq
            if event.kind == "interrupt.requested":
                break
            if event.kind in ("run.paused", "run.finished"):
                raise SystemExit("   the model did not ask for the refund this time; run the demo again")
    [pending] = await run.pending()
    return pending, cursor


async def answer(run: Run, pending: PendingInterrupt, yes: bool) -> None:
    """Ask at the terminal, unless told not to."""
    row(f"{pending.tool} with", json.dumps(pending.args))
    if yes:
        line("approve? [y/n] y  (--yes)")
        reply = "y"
    else:
        reply = (await asyncio.to_thread(input, "   approve? [y/n] ")).strip().lower()
    if reply in ("y", "yes"):
        await run.decide(pending.tool_call_id, "approve", by=os.environ.get("USER", "demo"))
    else:
        await run.decide(pending.tool_call_id, {"reject": "The customer must send a photo first."}, by="demo")


async def follow_until_it_writes(run: Run, after: int) -> int:
    """Watch until the model is in the middle of its next answer; returns the cursor."""
    decided = False
    async for event in run.events(after=after):
        if isinstance(event, TextDelta):
            if decided:
                row("it writes", f"{event.text.strip()} ...")
                return after
            continue
        after = event.seq
        show(event)
        decided = decided or event.kind == "tool.finished"
        if event.kind == "run.finished":
            return after
    return after


async def follow_to_the_end(run: Run, after: int) -> None:
    """Watch until the run has ended."""
    async for event in run.events(after=after, deltas=False):
        if isinstance(event, Event):
            show(event)


def show(event: Event) -> None:
    """One calm line per event."""
    data = event.data
    args = json.dumps(data["args"]) if "args" in data else ""
    parts = (data.get("tool"), args, data.get("decision"), data.get("text"), data.get("error"), data.get("status"))
    row(event.kind, " ".join(str(part) for part in parts if part))


def fresh_folder() -> Path:
    """Where everything of this demo is kept."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    return FOLDER.resolve()


def count_lines(file: Path) -> int:
    """Lines of a file that may not be there."""
    return len(file.read_text().splitlines()) if file.exists() else 0


async def demo(yes: bool) -> None:
    """The whole story."""
    ledger = fresh_folder() / "refunds.jsonl"
    steps = Steps()
    with model_environment(steps) as environment:
        async with DevServer(db_filename=FOLDER / "temporal.db", ui=True) as server:
            steps.say("A Temporal server", f"It keeps the run in {FOLDER}/temporal.db. Its web UI: {server.ui_url}")
            environment |= {"TEMPORAL_ADDRESS": server.address, "SUPPORT_LEDGER": str(ledger)}
            environment["OUTLAST_STORAGE"] = f"dir://{ledger.parent / 'storage'}"
            os.environ |= {key: value for key, value in environment.items() if key != "SUPPORT_MODEL"}
            worker = Worker(environment, FOLDER / "worker.log")
            try:
                await story(steps, worker, ledger, yes)
            finally:
                worker.stop()


async def story(steps: Steps, worker: Worker, ledger: Path, yes: bool) -> None:
    """From the question to the answer."""
    steps.say(f"A worker (process {worker.process.pid}) and a run", f"The customer says: {QUESTION}")
    client = await Client.connect()
    run = await client.start("support", QUESTION, id=f"demo-{int(time.time())}")
    pending, cursor = await wait_for_approval(run)
    steps.say("The run waits for you", "It costs nothing while it waits, and it would wait for weeks.")
    await answer(run, pending, yes)
    cursor = await follow_until_it_writes(run, cursor)
    steps.say(f"kill -9 {worker.process.pid}", "The worker dies in the middle of the model's answer.")
    worker.kill()
    worker.restart()
    line(f"Another worker (process {worker.process.pid}) takes over once the dead one's heartbeat is missed (10 s).")
    started = time.monotonic()
    await follow_to_the_end(run, cursor)
    result = await run.result()
    steps.say("The run finished", f"{time.monotonic() - started:.0f} s after the kill, with the whole conversation:")
    for message in result.messages:
        for block in message.blocks:
            text = getattr(block, "text", "") or f"{getattr(block, 'name', '')} {getattr(block, 'raw_args', '')}"
            row(message.role, text.strip()[:400])
    deciders = ", ".join(record.decision.by for record in result.audit)
    line(f"Refunds in the ledger: {count_lines(ledger)}. Decided by: {deciders}.")
    steps.say("Look around", f"{FOLDER}/worker.log has both workers' words. `make demo` starts from scratch.")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yes", action="store_true", help="approve without asking")
    try:
        asyncio.run(demo(parser.parse_args().yes))
    except KeyboardInterrupt:
        console.print("\nstopped")


if __name__ == "__main__":
    main()

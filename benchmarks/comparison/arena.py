"""One server, and the workers of the candidates, each in a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import temporalio.client
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
)

from benchmarks.comparison.candidates import Candidate, Unavailable
from benchmarks.comparison.environments import ROOT, python_of
from benchmarks.processes import Handle, cpu_seconds
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.settings import Settings, connect

READY_SECONDS = 60.0
_numbers = itertools.count(1)


def environment() -> dict[str, str]:
    """Of the worker processes: byte code is kept, as in an installation, and nothing leaves the machine."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(ROOT)
    env["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir(), "outlast-benchmarks"))
    return env | {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def command(candidate: Candidate, action: str, *arguments: str) -> list[str]:
    """What is executed.

    Raises:
        Unavailable: The candidate's packages cannot be installed.
    """
    return [python_of(candidate), "-m", "benchmarks.peers.serving", candidate.module, action, *arguments]


@dataclass
class PeerWorker:
    """A candidate's worker."""

    candidate: Candidate
    task_queue: str
    process: subprocess.Popen[bytes]
    client: temporalio.client.Client
    log: Path

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    @property
    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    async def start(self, prompt: str) -> Handle:
        """A run of the script; see ``benchmarks/peers/script.py`` for the prompt."""
        run_id = f"{self.task_queue}-{next(_numbers)}"
        if self.candidate.is_ours:
            await Client(self.client, task_queue=self.task_queue).start("bench", prompt, id=run_id)
        else:
            await self.client.start_workflow("Bench", prompt, id=run_id, task_queue=self.task_queue)
        return self.client.get_workflow_handle(run_id)

    async def approve(self, handle: Handle) -> None:
        """The person's answer, sent the way the candidate's documentation sends it."""
        if self.candidate.is_ours:
            await Client(self.client).get(handle.id).decide("publish", "approve", by="benchmark")
        elif self.candidate.update:
            await handle.execute_update(self.candidate.update, "approve")
        else:
            await handle.signal("approve")

    async def describe(self, handle: Handle) -> DescribeWorkflowExecutionResponse:
        """With the pending tasks, which the client's own ``describe`` leaves out."""
        return await self.client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=self.client.namespace, execution=WorkflowExecution(workflow_id=handle.id)
            )
        )

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Arena:
    """Where one row is measured. Candidates that cannot go on are left out, with the reason."""

    server: DevServer
    folder: Path
    candidates: list[Candidate]
    unavailable: dict[str, str] = field(default_factory=dict)
    workers: dict[str, PeerWorker] = field(default_factory=dict)

    @property
    def present(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.name not in self.unavailable]

    async def worker(self, candidate: Candidate) -> PeerWorker:
        """A new worker that is ready.

        Raises:
            Unavailable: It did not start.
        """
        storage = f"dir://{self.folder / 'storage'}" if candidate.storage else None
        client = await connect(Settings.load(address=self.server.address, storage=storage, environ={}))
        task_queue = f"{candidate.module}-{os.getpid()}-{next(_numbers)}"
        arguments = [self.server.address, task_queue, *([storage] if storage is not None else [])]
        log = self.folder / f"{task_queue}.log"
        process = _spawn(command(candidate, "serve", *arguments), log)
        worker = PeerWorker(candidate, task_queue, process, client, log)
        assert process.stdout is not None
        output = process.stdout
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await asyncio.to_thread(output.readline)
        except TimeoutError:
            line = b""
        if line != b"ready\n":
            worker.stop()
            raise Unavailable(f"its worker did not start: {worker.last_words()}")
        threading.Thread(target=output.read, daemon=True).start()  # a full pipe would stop it
        return worker

    async def start_all(self) -> None:
        """A worker for each candidate; who has none is unavailable in this row."""
        for candidate in self.present:
            try:
                self.workers[candidate.name] = await self.worker(candidate)
            except Unavailable as problem:
                self.unavailable[candidate.name] = str(problem)

    @asynccontextmanager
    async def attempt(self, candidate: Candidate, seconds: float) -> AsyncIterator[None]:
        """What goes wrong in here, or takes too long, puts the candidate out of this row, and nothing else."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except Exception as error:
            late = isinstance(error, TimeoutError)
            reason = f"not done within {seconds:.0f} s" if late else f"{type(error).__name__}: {error}"
            cause = getattr(error, "cause", None)
            self.unavailable[candidate.name] = f"{reason}{f' ({cause})' if cause is not None else ''}"[:400]
            print(f"  {candidate.name}: {self.unavailable[candidate.name]}", flush=True)
            if (worker := self.workers.pop(candidate.name, None)) is not None:
                worker.stop()

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.workers.clear()


def _spawn(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        return subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment(), cwd=ROOT
        )


@asynccontextmanager
async def arena(candidates: list[Candidate], unavailable: dict[str, str]) -> AsyncIterator[Arena]:
    """A fresh server in memory; all processes end with it."""
    with tempfile.TemporaryDirectory(prefix="outlast-peers-") as folder:
        async with DevServer() as server:
            place = Arena(server, Path(folder), candidates, dict(unavailable))
            try:
                yield place
            finally:
                place.stop()

"""Replays what ran, in another process under another hash seed and time zone: what a worker restart would do.

Agents that a module holds by name are imported again in that process. Agents made inside a test function exist in
this process alone, so they are replayed here: the order of sets and the time zone are then as they were.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from temporalio.client import WorkflowHistory

from outlast.agent import Agent
from outlast.encryption import PayloadEncryption
from outlast.keyring import Keyring
from outlast.run import Run
from outlast.storage.directory import DirectoryStorage
from outlast.testing.histories import fetch_histories
from outlast.testing.replay_process import Place, ReplayAnswer, ReplayJob, check_histories


class ReplayFailed(AssertionError):
    """A history does not replay: a hook or the code around it is not deterministic, or was changed."""


async def replay(
    agents: Sequence[Agent],
    *runs: WorkflowHistory | Run | Iterable[WorkflowHistory],
    storage: str | None = None,
    encryption: Keyring | None = None,
    exact: bool = True,
) -> None:
    """Replay histories against the agents as they are now.

    Args:
        agents: As a worker would have them.
        runs: Histories, or runs, of which every execution and every sub-agent is fetched.
        storage: The storage's URL, where payloads were kept outside the histories; runs know their own.
        encryption: The keys, where payloads are encrypted; runs know their own.
        exact: Also compare the bytes of every activity's input and of the result. Give False for histories of another
            version of the code, where only the commands must be the same.

    Raises:
        ReplayFailed: The first history that does not replay: the run, the event and what differs.
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    histories: list[WorkflowHistory] = []
    for item in runs:
        if isinstance(item, Run):
            histories += await fetch_histories(item.temporal, [(item.id, None)])
            storage = storage or _storage_url(item)
            encryption = encryption or _keys_of(item)
        else:
            histories += [item] if isinstance(item, WorkflowHistory) else list(item)
    histories = [history for history in histories if history.events]
    if not histories:
        return
    keys = None if encryption is None else encryption.to_text()
    places = [_place(agent) for agent in agents]
    if any(place is None for place in places):
        failure = await check_histories(agents, histories, storage, exact, keys)
    else:
        job = ReplayJob(
            path=[entry or str(Path.cwd()) for entry in sys.path],
            agents=[place for place in places if place is not None],
            histories=[(history.workflow_id, history.to_json()) for history in histories],
            storage=storage,
            encryption=keys,
            exact=exact,
        )
        failure = await asyncio.to_thread(_other_process.ask, job)
    if failure is not None:
        raise ReplayFailed(failure)


def _storage_url(run: Run) -> str | None:
    storage = run.temporal.data_converter.external_storage
    drivers = storage.drivers if storage is not None else ()
    return next((f"dir://{driver.root.resolve()}" for driver in drivers if isinstance(driver, DirectoryStorage)), None)


def _keys_of(run: Run) -> Keyring | None:
    codec = run.temporal.data_converter.payload_codec
    return codec.ring if isinstance(codec, PayloadEncryption) and codec.ring.keys else None


def _place(agent: Agent) -> Place | None:
    """Module and attribute of an agent that another process can import."""
    module = sys.modules.get(agent.module)
    file = getattr(module, "__file__", None)
    if module is None or agent.module == "__main__" or not file:
        return None
    name = next((name for name, value in vars(module).items() if value is agent), None)
    return Place(module=agent.module, file=str(Path(file).resolve()), attribute=name) if name is not None else None


class _OtherProcess:
    """The replaying process: started when first needed, and again when a module that it imported was changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: BinaryIO | None = None
        self._began = 0.0
        self._files: dict[str, str] = {}

    def ask(self, job: ReplayJob) -> str | None:
        """Replay there; blocks."""
        with self._lock:
            if self._process is None or self._process.poll() is not None or self._is_stale(job):
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._files |= {place.module: place.file for place in job.agents}
            try:
                self._process.stdin.write(job.model_dump_json().encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line:
                return f"the replaying process died (exit code {self._process.wait()}): {self._last_words()}"
            return ReplayAnswer.model_validate_json(line).failure

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        if self._log is not None:
            self._log.close()

    def _start(self) -> None:
        self.stop()
        here = os.environ.get("TZ"), os.environ.get("PYTHONHASHSEED")
        zone = "Asia/Kathmandu" if here[0] != "Asia/Kathmandu" else "UTC"
        seed = "4242" if here[1] != "4242" else "2424"
        self._log = _unnamed_file()
        self._began, self._files = time.time(), {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlast.testing.replay_process"],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def _is_stale(self, job: ReplayJob) -> bool:
        """Whether an agents' module there is another than the one meant, or older than its file."""
        changed = [place for place in job.agents if Path(place.file).stat().st_mtime >= self._began]
        moved = [place for place in job.agents if self._files.get(place.module, place.file) != place.file]
        return bool(changed or moved)

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace").strip()[-2000:]


def _unnamed_file() -> BinaryIO:
    return tempfile.TemporaryFile()


_other_process = _OtherProcess()
atexit.register(_other_process.stop)

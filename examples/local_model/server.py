"""Start and stop the model server: `LocalModelServer`, a context manager for sync and async code alike.

    with LocalModelServer(find_model()) as server: ...
    async with LocalModelServer(find_model()) as server: ...

Environment:
    OUTLAST_MODEL_THREADS   threads of the engine; default half the cores, 4 at most. More is slower where other work
                            shares the cores, for the threads wait for each other: measured on two busy cores, an
                            agent's run took 24 s with two threads and 7 s with one (idle: 4 s and 6 s).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .weights import Model

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
STOP_SECONDS = 5.0


class ServerFailed(Exception):
    """The model server ended, or was not ready in time. The message ends with its last words."""


class LocalModelServer:
    """One model behind an OpenAI-compatible endpoint on 127.0.0.1, in a process that ends with this one."""

    model_name = "local"

    def __init__(self, model: Model, *, threads: int | None = None, start_seconds: float = 120.0) -> None:
        """Nothing starts before the `with`.

        `threads`: default OUTLAST_MODEL_THREADS, else half the cores.
        `start_seconds`: how long the model may take to load.
        """
        self.model = model
        self.threads = threads or int(os.environ.get("OUTLAST_MODEL_THREADS") or _default_threads())
        self.port = 0
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def base_url(self) -> str:
        """The root of the OpenAI API: `http://127.0.0.1:PORT/v1`."""
        return f"{self._root}/v1"

    @property
    def alive(self) -> bool:
        """Whether the process runs; False again after a crash of the engine."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id of the server, None before the start and after the stop."""
        return self._process.pid if self._process else None

    @property
    def _root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process and wait until the model is loaded. Raises `ServerFailed`."""
        self._launch()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin:
                process.stdin.close()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _launch(self) -> None:
        self.port = _free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        command = [sys.executable, "-m", "examples.local_model.serve", "--until-stdin-closes"]
        command += ["--model", str(self.model.path), "--port", str(self.port), "--threads", str(self.threads)]
        if self.model.own_template:
            command.append("--own-template")
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not self._healthy():
            if not self.alive:
                raise ServerFailed(f"The server of {self.model.name} ended while starting.{self._last_words()}")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"{self.model.name} was not loaded within {self._start_seconds:g} s: wait longer with "
                    f"start_seconds, or use fewer threads ({self.threads} now).{self._last_words()}"
                )
            time.sleep(POLL_SECONDS)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._root}/health", timeout=5) as response:
                return bool(json.load(response)["status"] == "ok")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-8:]
        if any("No module named 'xllamacpp'" in line for line in lines):
            return " The engine is missing: pip install 'outlast[local-model]'."
        return " Its last words:\n" + "\n".join(f"  {line}" for line in lines)


def _default_threads() -> int:
    return min(4, max(1, (os.cpu_count() or 2) // 2))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

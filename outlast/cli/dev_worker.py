"""The worker's process of ``outlast dev``.

Its standard input is a socket to the supervisor: the place of the server comes in, the agents' names go out, and when
the other end closes, this process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Sequence

from outlast.cli import leave
from outlast.cli.command import BAD_INPUT, FAILED, NO_ANSWER, say_error
from outlast.cli.private import redacts_at_edges
from outlast.cli.workers import load, start_logging, warn


def main() -> None:
    """Serve the agents named on the command line."""
    line = _take_line()
    leave(_run(sys.argv[1:], line))


def _take_line() -> socket.socket:
    line = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # user code that reads its standard input finds nothing
    os.close(nothing)
    return line


def _run(places: Sequence[str], line: socket.socket) -> int:
    from outlast.dev_folder import DevNote
    from outlast.errors import OutlastError
    from outlast.settings import ServerUnreachable, Settings
    from outlast.worker import run_worker

    start_logging(os.environ.get("OUTLAST_LOG_LEVEL", "error"))
    try:
        agents = load(places)
        warn(agents)
        place = DevNote(**json.loads(_first_line(line)))
        threading.Thread(target=_end_with, args=(line,), daemon=True).start()
        environ = {key: value for key, value in os.environ.items() if key.startswith("OUTLAST_")}  # no TLS, no API keys
        if place.key_file is not None:
            environ["OUTLAST_ENCRYPTION_KEY_FILE"] = place.key_file
        settings = Settings.load(
            address=place.address,
            namespace=place.namespace,
            task_queue=place.task_queue,
            storage=place.storage,
            environ=environ,
        )

        def on_ready() -> None:
            told = {agent.name: redacts_at_edges(agent) for agent in agents}
            line.sendall(json.dumps(told).encode() + b"\n")

        asyncio.run(run_worker(agents, settings, say=lambda _line: None, on_ready=on_ready))
    except ServerUnreachable as error:
        say_error(str(error))
        return NO_ANSWER
    except (OutlastError, ValueError) as error:
        say_error(str(error))
        return BAD_INPUT if isinstance(error, OutlastError) else FAILED
    return 0


def _first_line(line: socket.socket) -> str:
    with line.makefile("r") as reader:
        text = reader.readline()
    if not text:
        os._exit(FAILED)  # the supervisor is gone
    return text


def _end_with(line: socket.socket) -> None:
    """End this process when the supervisor's has ended."""
    while line.recv(4096):
        pass
    os._exit(FAILED)


if __name__ == "__main__":
    main()

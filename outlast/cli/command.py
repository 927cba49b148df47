"""How a command is made: the options that say which server, one sentence for an error, and the exit code.

| code | meaning |
|---|---|
| 0 | done; a run that was waited for is completed |
| 1 | the run failed, was cancelled or aborted; `check`, `replay` or `doctor` found something |
| 2 | the input is wrong: an option, a file, an id, a decision that is not allowed |
| 3 | the run is paused |
| 4 | `run --wait`: the run waits for a decision |
| 5 | no answer: no server, or no worker |
| 130 | interrupted |
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from outlast.client import Client
    from outlast.settings import Settings

DONE, FAILED, BAD_INPUT, PAUSED, WAITING, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]
By = Annotated[str | None, typer.Option("--by", help="Who decides; your user name unless given.", show_default=False)]


class BadInput(Exception):
    """Something that was typed is wrong; the message says what would be right."""


@dataclass(frozen=True)
class Server:
    """Which server and task queue; what is None is found in the environment, or in a running ``outlast dev``."""

    address: str | None = None
    namespace: str | None = None
    task_queue: str | None = None

    def settings(self) -> Settings:
        """The settings of this process.

        Raises:
            BadInput: An option or a variable is wrong.
        """
        from outlast.settings import Settings

        try:
            return Settings.load(address=self.address, namespace=self.namespace, task_queue=self.task_queue)
        except ValueError as error:
            raise BadInput(str(error)) from None

    async def client(self) -> Client:
        """A connected client."""
        from outlast.client import Client
        from outlast.settings import connect

        settings = self.settings()
        return Client(await connect(settings), task_queue=settings.task_queue)


_SERVER_OPTIONS = {
    "address": (str | None, typer.Option(help="The server, host:port.", show_default=False)),
    "namespace": (str | None, typer.Option(help="Its namespace.", show_default=False)),
    "task_queue": (str | None, typer.Option(help="Where workers look for runs.", show_default=False)),
}


def register(app: typer.Typer, function: Callable[..., Any], *, name: str | None = None, panel: str = "") -> None:
    """Add a command. A parameter ``server`` becomes three options; a coroutine is run; errors become sentences.

    What the function returns is the exit code.
    """
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    shown = [item.replace(annotation=hints[item.name]) for item in signature.parameters.values()]
    takes_server = "server" in signature.parameters
    if takes_server:
        shown = [item for item in shown if item.name != "server"]
        shown += [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])
            for key, (kind, option) in _SERVER_OPTIONS.items()
        ]

    @functools.wraps(function)
    def call(**values: Any) -> None:  # noqa: ANN401 - what typer parsed
        if takes_server:
            values["server"] = Server(**{key: values.pop(key) for key in _SERVER_OPTIONS})
        raise typer.Exit(_guarded(function, values))

    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in shown}
    del call.__wrapped__  # typer would look through it
    app.command(name, rich_help_panel=panel or None)(call)


def _guarded(function: Callable[..., Any], values: dict[str, Any]) -> int:
    try:
        returned = function(**values)
        if isinstance(returned, Coroutine):
            returned = asyncio.run(returned)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has enough
        return DONE
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        say_error(str(error))
        return code
    return returned if isinstance(returned, int) else DONE


def _code_of(error: Exception) -> int | None:
    """The exit code of an error that was foreseen; None for a bug of ours, which shows its trace."""
    from temporalio.service import RPCError

    from outlast.errors import AgentRunFailed, AgentRunPaused, NoAnswer, OutlastError

    if isinstance(error, AgentRunPaused):
        return PAUSED
    if isinstance(error, AgentRunFailed):
        return FAILED
    if isinstance(error, NoAnswer | ConnectionError | RPCError):
        return NO_ANSWER
    return BAD_INPUT if isinstance(error, OutlastError | BadInput) else None


def say_error(text: str) -> None:
    """One sentence on standard error."""
    from rich.text import Text

    from outlast.cli.screen import BAD, clean, err

    err().print(Text.assemble(("error  ", BAD), clean(text)))


def say_note(text: str) -> None:
    """A remark on standard error."""
    from rich.text import Text

    from outlast.cli.screen import QUIET, clean, err

    err().print(Text(clean(text), QUIET))


def user_name() -> str:
    """The name of whoever sits at the terminal, for the audit trail."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else ""

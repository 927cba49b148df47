"""``run``, ``runs``, ``show``, ``watch``, ``send``, ``cancel``, ``resume``, ``abort``: one run, or all of them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.command import DONE, AsJson, BadInput, By, RunId, Server, register, say_note, user_name
from outlast.cli.private import Guards, client_of, run_of

if TYPE_CHECKING:
    from outlast.messages import Json


def add(app: typer.Typer) -> None:
    """Add this module's commands."""
    for function in (run, runs, show, watch, send, cancel, resume, abort):
        register(app, function)


async def run(
    agent: Annotated[str, typer.Argument(help="The agent's name.", show_default=False)],
    message: Annotated[str, typer.Argument(help="What it shall do; - reads standard input.", show_default=False)],
    server: Server,
    id: Annotated[
        str | None, typer.Option("--id", help="The run's id; a second start is then refused.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what happens, to the end.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Print the answer alone; do not wait for people.")] = False,
    state_json: Annotated[str, typer.Option("--state-json", metavar="JSON", help="The run's invocation_state.")] = "{}",
    agents: Guards = None,
    as_json: AsJson = False,
) -> int:
    """Start a run and print its id.

    It returns at once, unless --follow or --wait is given.

    Exit codes with --follow or --wait: 0 completed, 1 failed or cancelled, 3 paused, 4 waiting for a decision (--wait).
    """
    state = parse_object(state_json, "--state-json")
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise BadInput("the message is empty; say what the agent shall do")
    client = await client_of(server, agents, agent)
    try:
        started = await client.start(agent, text, id=id, invocation_state=state)
    except (TypeError, ValueError) as error:
        raise BadInput(str(error)) from None
    from outlast.cli import follow as following
    from outlast.cli.screen import clean, print_json, print_plain

    if follow:
        say_note(f"run {started.id}")
        return await following.follow(started, as_json=as_json)
    if wait:
        say_note(f"run {started.id}")
        return await following.wait(started, as_json=as_json)
    if as_json:
        print_json({"id": started.id, "agent": agent})
        return DONE
    print_plain(clean(started.id))
    if sys.stdout.isatty():
        say_note(f"outlast watch {started.id}")
    return DONE


def parse_object(text: str, option: str) -> dict[str, Json]:
    """A JSON object that was typed.

    Raises:
        BadInput: It is something else.
    """
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f'{option} must be a JSON object like {{"key": 1}}, not {type(value).__name__}')
    return value


async def runs(
    server: Server,
    open_only: Annotated[bool, typer.Option("--open", help="Only runs that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest runs.

    Wakes none of them.
    """
    from outlast.cli.screen import age, one_line, out, print_json, status_text, table

    client = await server.client()
    found = await client.runs(open_only=open_only, limit=limit)
    if as_json:
        print_json([info.model_dump(mode="json") for info in found])
        return
    if not found:
        say_note("no runs" + (" are open" if open_only else " yet; start one: outlast run AGENT MESSAGE"))
        return
    rows = [
        (
            one_line(info.id, 1000),
            one_line(info.agent, 40),
            status_text(info.status, info.temporal_status),
            str(info.step),
            age(info.started_at),
        )
        for info in found
    ]
    out().print(table(("run", "agent", "status", "step", "started"), rows, flexible=0))


async def show(run: RunId, server: Server, as_json: AsJson = False) -> None:
    """Show one run whole.

    Status, what is pending, transcript, usage, decisions.
    """
    from outlast.cli.screen import print_json
    from outlast.cli.show import gather, render

    client = await server.client()
    view = await gather(client.get(run))
    if as_json:
        print_json(view.as_json())
    else:
        render(view)


async def watch(
    run: RunId,
    server: Server,
    after: Annotated[int, typer.Option(min=0, help="Skip events up to this number.")] = 0,
    as_json: AsJson = False,
) -> int:
    """Watch a run live, from its first event on.

    Exit codes as for `run --follow`.
    """
    from outlast.cli.follow import follow

    client = await server.client()
    found = client.get(run)
    await found.info()  # an unknown id is told at once
    return await follow(found, after=after, as_json=as_json)


async def send(
    run: RunId,
    message: Annotated[str, typer.Argument(help="What it shall take into account.", show_default=False)],
    server: Server,
    agents: Guards = None,
) -> None:
    """Steer a run with a message.

    It joins the conversation before the next step.
    """
    if not message.strip():
        raise BadInput("the message is empty")
    await (await run_of(server, agents, run)).send(message)
    say_note(f"{run} reads it before its next step")


async def cancel(run: RunId, server: Server) -> None:
    """Ask a run to stop.

    Running tools are told, open calls are answered, the transcript stays sound.
    """
    client = await server.client()
    found = client.get(run)
    info = await found.info()
    if info.temporal_status != "RUNNING":
        raise BadInput(f"run {run!r} is over: {info.status}")
    await found.cancel()
    say_note(f"{run} stops as soon as its calls have")


async def resume(run: RunId, server: Server, by: By = None) -> None:
    """Let a paused run go on.

    What failed is done again, nothing else.
    """
    client = await server.client()
    await client.get(run).resume(by=by or user_name())
    say_note(f"{run} goes on; outlast watch {run}")


async def abort(
    run: RunId,
    server: Server,
    reason: Annotated[str, typer.Argument(help="Why; it is kept with the run.", show_default=False)] = "",
    agents: Guards = None,
) -> None:
    """End a run now, as failed.

    Its code is ABORTED.
    """
    await (await run_of(server, agents, run)).abort(reason)
    say_note(f"{run} has ended")

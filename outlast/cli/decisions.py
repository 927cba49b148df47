"""``pending``, ``approve``, ``edit``, ``reject``: the inbox and the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import AsJson, BadInput, By, RunId, Server, register, say_note, user_name
from outlast.cli.private import Guards, run_of

if TYPE_CHECKING:
    from outlast.approvals import PendingInterrupt
    from outlast.client import Client, PendingDecision
    from outlast.run import Run

Which = Annotated[
    str,
    typer.Argument(metavar="WHICH", help="A tool call id, an interrupt id, or the tool's name.", show_default=False),
]
Comment = Annotated[str, typer.Option(help="For the audit trail.", show_default=False)]


def add(app: typer.Typer) -> None:
    """Add this module's commands."""
    for function in (pending, approve, edit, reject):
        register(app, function)


async def pending(
    server: Server,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run, asked for its whole arguments.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what waits for a decision, over all runs.

    Only runs with long arguments are asked; the others are not woken.
    """
    from rich.text import Text

    from outlast.cli.screen import out, print_command, print_json
    from outlast.cli.show import print_pending

    client = await server.client()
    found = await client.pending() if run is None else []
    whole = await _whole(client, found) if run is None else {run: await client.get(run).pending()}
    if as_json:
        print_json([{"run_id": key, **item.model_dump(mode="json")} for key, items in whole.items() for item in items])
        return
    if not any(whole.values()):
        say_note("nothing waits for a decision")
        return
    agents = {item.run_id: item.agent for item in found}
    for index, (run_id, items) in enumerate(whole.items()):
        out().print(Text.assemble("\n" * (index > 0), *_heading(run_id, agents.get(run_id, ""))))
        for item in items:
            print_pending(item)
            print_command(f"outlast approve {_safe(run_id)}{_which(item, items)}")


def _heading(run_id: str, agent: str) -> list[tuple[str, str]]:
    return [(_safe(run_id), "bold"), (f"  {_safe(agent)}", "dim")]


def _safe(text: str) -> str:
    from outlast.cli.screen import clean

    return clean(text)


def _which(item: PendingInterrupt, items: Sequence[PendingInterrupt]) -> str:
    return f" {_safe(item.tool_call_id)}" if len(items) > 1 else ""


async def _whole(client: Client, found: Sequence[PendingDecision]) -> dict[str, list[PendingInterrupt]]:
    """Per run, its interrupts with whole arguments; only runs whose published arguments are cut are asked."""
    import json

    from outlast.approvals import PendingInterrupt
    from outlast.errors import OutlastError

    asked = list(dict.fromkeys(item.run_id for item in found if item.cut))
    answers = await asyncio.gather(*(client.get(run_id).pending() for run_id in asked), return_exceptions=True)
    whole = {key: answer for key, answer in zip(asked, answers, strict=True) if not isinstance(answer, BaseException)}
    for key, answer in zip(asked, answers, strict=True):
        if isinstance(answer, OutlastError):
            say_note(f"the arguments in run {key} are cut below: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
    listed: dict[str, list[PendingInterrupt]] = {}
    for item in found:
        if item.run_id in whole:
            listed[item.run_id] = whole[item.run_id]
            continue
        args = {"(cut)": item.args} if item.cut else json.loads(item.args or "{}")
        shown = item.model_dump(exclude={"args", "cut", "run_id", "agent"})
        listed.setdefault(item.run_id, []).append(
            PendingInterrupt.model_validate({**shown, "args": args, "interrupt_id": ""})
        )
    return listed


async def approve(
    run: RunId,
    server: Server,
    which: Annotated[
        str | None,
        typer.Argument(metavar="[WHICH]", help="Needed where several are pending.", show_default=False),
    ] = None,
    by: By = None,
    comment: Comment = "",
    agents: Guards = None,
) -> None:
    """Approve a pending call.

    Shows what is approved; if the arguments change meanwhile, nothing is approved.
    """
    found = await run_of(server, agents, run)
    item, name = await _choose(found, which)
    _show("approve", item)
    await found.decide(name, "approve", by=by or user_name(), comment=comment)
    _done(found, "approved", by)


async def edit(
    run: RunId,
    which: Which,
    args: Annotated[str, typer.Option(metavar="JSON", help="The arguments to run with, all of them.")],
    server: Server,
    by: By = None,
    comment: Comment = "",
    agents: Guards = None,
) -> None:
    """Approve a pending call with other arguments.

    They replace the model's, they do not merge.
    """
    from outlast.cli.runs import parse_object
    from outlast.cli.screen import canonical, indented, out

    new = parse_object(args, "--args")
    found = await run_of(server, agents, run)
    item, name = await _choose(found, which)
    _show("edit", item)
    out().print(indented("runs with", style="dim"))
    out().print(indented(canonical(new), 4))
    await found.decide(name, {"edit": new}, by=by or user_name(), comment=comment)
    _done(found, "edited", by)


async def reject(
    run: RunId,
    which: Which,
    reason: Annotated[str, typer.Argument(metavar="WHY", help="The model reads it.", show_default=False)],
    server: Server,
    by: By = None,
    comment: Comment = "",
    agents: Guards = None,
) -> None:
    """Refuse a pending call.

    The model is told why and goes on.
    """
    found = await run_of(server, agents, run)
    item, name = await _choose(found, which)
    _show("reject", item)
    await found.decide(name, {"reject": reason}, by=by or user_name(), comment=comment)
    _done(found, "rejected", by)


async def _choose(run: Run, which: str | None) -> tuple[PendingInterrupt, str]:
    """The interrupt that is meant, and the name to decide it by: the one that holds its arguments, where it is unique.

    Raises:
        BadInput: Nothing is pending, or it is not clear which one is meant.
    """
    from outlast.approvals import find_interrupts

    info = await run.info()
    if info.temporal_status != "RUNNING":
        raise BadInput(f"run {run.id!r} is over: {info.status}")
    waiting = await run.pending()
    if not waiting:
        raise BadInput(f"run {run.id!r} waits for no decision now: it is {info.status}")
    if which is None:
        if len(waiting) > 1:
            names = ", ".join(f"{item.tool_call_id} ({item.tool})" for item in waiting)
            raise BadInput(f"{len(waiting)} calls of run {run.id!r} wait for a decision; name one: {names}")
        found = waiting
    else:
        found = find_interrupts(waiting, which)
    item = found[0]
    same = [other for other in waiting if other.interrupt_id == item.interrupt_id]
    return item, item.tool_call_id if len(same) > len(found) else item.interrupt_id


def _show(word: str, item: PendingInterrupt) -> None:
    from rich.text import Text

    from outlast.cli.screen import out
    from outlast.cli.show import print_pending

    out().print(Text(word, "dim"))
    print_pending(item)


def _done(run: Run, word: str, by: str | None) -> None:
    say_note(f"{word} by {by or user_name()}; outlast watch {run.id}")

"""The whole of it: start the arena, the runs and the faults; approve, send rubbish, resume; check; tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from outlast.client import Client
from outlast.devserver import DevServer
from outlast.errors import AgentRunPaused, OutlastError, RunNotFound
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.state import HistoryLimits, RunResult
from outlast.testing.chaos import ledger
from outlast.testing.chaos.check import check_run
from outlast.testing.chaos.faults import Arena, plan_for
from outlast.testing.chaos.ledger import Line
from outlast.testing.chaos.model_server import ModelServer
from outlast.testing.chaos.proxy import Proxy
from outlast.testing.chaos.strangers import send_rubbish
from outlast.testing.histories import fetch_histories

_ANNOYING_SECONDS, _STRANGERS = 20.0, 10
_DELIVERED = ("signal", "refused", "not taken (invalid_argument)")
_PATIENT = 10
"""Every tenth run gets no decision before all rubbish is delivered, so that some run is open for it."""

_ENOUGH = 25
"""Runs that last long enough for every kind of fault."""

AWAY = ("did not answer", "not connect", "cannot be reached")


@dataclass(frozen=True)
class Plan:
    """How much chaos.

    Attributes:
        rubbish: Malformed signals and updates.
        seconds: After so long a run that has not ended counts as stuck.
    """

    runs: int = 50
    rubbish: int = 1000
    seed: int = 0
    seconds: float = 300.0
    workers: int = 2


@dataclass
class Report:
    """What was injected and what came of it."""

    plan: Plan
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    folder: Path | None = None
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """For people."""
        head = f"chaos: {self.plan.runs} runs, seed {self.plan.seed}, {self.seconds:.0f} s"
        table = [f"  {name:32}{count:7,}" for name, count in sorted(self.counts.items())]
        if not self.complaints:
            return [head, *table, "  nothing lost, stuck or done twice"]
        again = f"  again: outlast chaos --runs {self.plan.runs} --rubbish {self.plan.rubbish} --seed {self.plan.seed}"
        return [head, *table, *(f"  WRONG {line}" for line in self.complaints), again, f"  kept: {self.folder}"]


async def run_chaos(plan: Plan) -> Report:
    """All of it once. What is wrong stands in the report's ``complaints``; the folder with everything is kept then."""
    report, began = Report(plan, folder=Path(tempfile.mkdtemp(prefix="outlast-chaos-"))), time.monotonic()
    assert report.folder is not None
    async with _arena(plan, report.folder) as (arena, model, client):
        runs = [await client.start("chaos", "go", id=f"chaos-{number}") for number in range(plan.runs)]
        results = await _under_faults(plan, report, arena, client, runs)
        await _late(client, runs, report)
        lines = ledger.read(arena.ledger)
        for name in sorted({line.run for line in lines if "/" in line.run and line.run.partition("/")[0] in results}):
            results[name] = await _outcome(client.get(name), report)
        await _look_around(client, report)
        report.counts.update(model.faults)
        report.counts.update(fault.kind for fault in arena.faults)
        report.complaints += _missing(plan, report.counts)
        wrong = _judge(report, results, lines, arena)
        await _keep(client, {*wrong, *(run.id for run in runs if run.id not in results)}, report.folder)
    report.complaints += arena.surprises
    if not report.complaints:
        shutil.rmtree(report.folder)
        report.folder = None
    report.seconds = time.monotonic() - began
    return report


@asynccontextmanager
async def _arena(plan: Plan, folder: Path) -> AsyncIterator[tuple[Arena, ModelServer, Client]]:
    storage = f"dir://{folder}/storage"
    async with (
        DevServer(db_filename=folder / "temporal.db") as server,
        Proxy(server.address) as proxy,
        ModelServer(random.Random(plan.seed)) as model,
    ):
        temporal = await connect(Settings.load(address=server.address, storage=storage, environ={}))
        client = Client(temporal, history_limits=HistoryLimits(events=60))
        arena = Arena(folder, server, proxy, model.url, plan.workers)
        try:
            yield arena, model, client
        finally:
            arena.stop()


async def _under_faults(
    plan: Plan, report: Report, arena: Arena, client: Client, runs: Sequence[Run]
) -> dict[str, RunResult]:
    dice = random.Random(plan.seed)
    faults = asyncio.create_task(arena.inject(plan_for(plan.runs, dice), dice))
    annoying = asyncio.create_task(_annoy(client, plan, report, random.Random(plan.seed)))
    beside = [asyncio.create_task(_approve(client, report, annoying)), annoying]
    outcomes = [asyncio.create_task(_outcome(run, report)) for run in runs]
    done, stuck = await asyncio.wait(outcomes, timeout=plan.seconds)
    arena.over = True
    for task in (*stuck, *beside[:1], *([faults] if stuck else [])):
        task.cancel()
    report.complaints += [
        f"{run.id}: not ended after {plan.seconds:g} s"
        for run, task in zip(runs, outcomes, strict=True)
        if task in stuck
    ]
    for task in (beside[1], faults):
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return {run.id: task.result() for run, task in zip(runs, outcomes, strict=True) if task in done}


async def _approve(client: Client, report: Report, annoying: asyncio.Task[None]) -> None:
    """A patient approver, who tries again what fails; others repeat each decision, as a signal and as that update."""
    while True:
        try:
            for item in await client.pending():
                late = not annoying.done() and int(item.run_id.partition("-")[2].partition("/")[0]) % _PATIENT == 0
                if late or "/" in item.run_id:  # a specialist's question is decided at its parent
                    continue
                run, command = client.get(item.run_id), uuid.uuid4().hex
                await run.decide(item.tool_call_id, "approve", by="approver", id=command)
                report.counts["decisions"] += 1
                again = {"interrupt": item.tool_call_id, "decision": "approve", "by": "somebody else"}
                await client.temporal.get_workflow_handle(item.run_id).signal("decide", again)
                report.counts["decisions sent again: signal"] += 1
                await run.decide(item.tool_call_id, "approve", by="somebody else", id=command)
                report.counts["decisions sent again: update"] += 1
        except Exception:  # refused, run over, server away: whatever it is, people try again
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.2)


async def _annoy(client: Client, plan: Plan, report: Report, dice: random.Random) -> None:
    """Rubbish for whatever run is open, until so much has reached the server."""
    runs = {f"chaos-{number}" for number in range(plan.runs)}  # those that may be open

    async def stranger(share: int) -> None:
        while share > 0 and runs:
            await asyncio.sleep(_ANNOYING_SECONDS * _STRANGERS / plan.rubbish)
            run_id = dice.choice(sorted(runs))
            what = await send_rubbish(client.temporal, run_id, dice)
            if "not_found" in what:
                runs.discard(run_id)
            report.counts[f"rubbish: {what}"] += 1
            share -= what in _DELIVERED

    shares = [len(range(number, plan.rubbish, _STRANGERS)) for number in range(_STRANGERS)]
    await asyncio.gather(*map(stranger, shares))


async def _outcome(run: Run, report: Report) -> RunResult:
    """The run's result; asked again while the server is away, and resumed where it has parked."""
    while True:
        try:
            return await run.result()
        except AgentRunPaused as paused:
            report.counts["parked and resumed"] += 1
            report.parked.append(str(paused))
            with contextlib.suppress(OutlastError):
                await run.resume(by="operator")
        except OutlastError as error:
            if not any(words in str(error) for words in AWAY):
                raise
            await asyncio.sleep(0.5)


async def _late(client: Client, runs: Sequence[Run], report: Report) -> None:
    """Decisions for runs that are over."""
    for run in runs[:10]:
        try:
            await client.get(run.id).decide("publish", "approve", by="too late")
            report.complaints.append(f"{run.id}: took a decision after its end")
        except (OutlastError, RunNotFound):
            report.counts["late decisions refused"] += 1


def _missing(plan: Plan, counts: Counter[str]) -> list[str]:
    """What should have been done to the runs and was not: then their survival says little."""
    delivered = sum(counts[f"rubbish: {what}"] for what in _DELIVERED)
    few = [f"only {delivered} of {plan.rubbish} pieces of rubbish were delivered"] if delivered < plan.rubbish else []
    never = [kind for kind in sorted(set(plan_for(plan.runs, random.Random(plan.seed)).values())) if not counts[kind]]
    return few + [f"never injected: {kind}" for kind in never if plan.runs >= _ENOUGH]


async def _look_around(client: Client, report: Report) -> None:
    """Nothing may be open once every run is over, as an orphaned specialist would be."""
    links = await client.temporal.count_workflows("ExecutionStatus = 'ContinuedAsNew'")
    report.counts["continue-as-news"] = links.count
    still_open: list[str] = []
    for _ in range(50):
        still_open = [found.id async for found in client.temporal.list_workflows("ExecutionStatus = 'Running'")]
        if not still_open:
            return
        await asyncio.sleep(0.1)
    report.complaints += [f"{name}: still open" for name in still_open]


def _judge(report: Report, results: dict[str, RunResult], lines: Sequence[Line], arena: Arena) -> list[str]:
    """Check every run; which are wrong."""
    wrong = []
    report.counts["ledger lines"] = len(lines)
    for run_id in (name for name in results if "/" not in name):
        verdict = check_run(run_id, results, lines, arena.faults)
        report.complaints += verdict.complaints
        report.counts["calls told as executed"] += verdict.executed
        report.counts.update({f"calls told as unknown: {has}": count for has, count in verdict.unknown.items()})
        report.counts["runs completed"] += not verdict.complaints
        wrong += [run_id] if verdict.complaints else []
    faults = [fault.__dict__ for fault in arena.faults]
    (arena.ledger.parent / "faults.json").write_text(json.dumps(faults, indent=1))
    return wrong


async def _keep(client: Client, runs: set[str], folder: Path) -> None:
    """The histories of these runs and their specialists, as ``temporal workflow show --output json`` writes them."""
    (folder / "histories").mkdir()
    for number, history in enumerate(await fetch_histories(client.temporal, [(run, None) for run in sorted(runs)])):
        name = f"{history.workflow_id.replace('/', '_')}.{number}.json"
        (folder / "histories" / name).write_text(history.to_json())

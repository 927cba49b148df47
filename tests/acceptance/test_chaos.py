"""T1, T3: runs under `kill -9` of workers and server, cut connections, failing models, failing storage and rubbish."""

from __future__ import annotations

import os

import pytest

from outlast.testing.chaos.runner import Plan, run_chaos

RUNS = 50


@pytest.mark.timeout(500)
async def test_runs_survive_chaos() -> None:
    seed = int(os.environ.get("CHAOS_SEED", "20261201"))
    report = await run_chaos(Plan(runs=RUNS, rubbish=1000, seed=seed, seconds=300))
    print("\n".join(report.lines()))
    assert report.complaints == []
    counts = report.counts
    assert counts["runs completed"] == RUNS
    assert counts["worker killed"] >= 10
    assert counts["worker killed amid a payment"] + counts["worker killed after a payment"] >= 2
    assert counts["server killed"] >= 2
    for kind in ("worker hung", "connections cut", "storage away", "storage full", "storage slow"):
        assert counts[kind] >= 1, kind
    for kind in ("429", "500", "529", "cut off", "slow"):
        assert counts[f"model: {kind}"] >= 1, kind
    delivered = ("rubbish: signal", "rubbish: refused", "rubbish: not taken (invalid_argument)")
    assert sum(counts[name] for name in delivered) == 1000
    assert counts["decisions"] > RUNS
    assert min(counts[f"decisions sent again: {how}"] for how in ("signal", "update")) > RUNS / 2
    assert counts["continue-as-news"] > RUNS
    assert counts["late decisions refused"] == 10
    unknown = sum(count for name, count in counts.items() if name.startswith("calls told as unknown"))
    assert counts["calls told as executed"] + unknown == 9 * RUNS
    assert 0 < unknown < RUNS

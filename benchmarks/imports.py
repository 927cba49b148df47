"""What ``import outlast`` costs, against importing what it is built on. Fresh processes, in turn, the best of each."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

BASE = "import temporalio.client, temporalio.worker, pydantic"
STATEMENTS = {
    "temporalio and pydantic": BASE,
    "import outlast": "import outlast",
    "all public names": "from outlast import *",
}
HTTP = ("httpx", "httpx_sse", "httpcore", "requests", "aiohttp")


def measure(repetitions: int) -> dict[str, tuple[float, float]]:
    """Best processor and wall seconds of a whole process per statement; byte code is warm."""
    best = dict.fromkeys(STATEMENTS, (float("inf"), float("inf")))
    with tempfile.TemporaryDirectory() as cache:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache
        for number in range(repetitions + 1):
            for name, statement in STATEMENTS.items():
                seconds = _one(statement, env)
                if number:  # the first writes the byte code
                    best[name] = min(best[name][0], seconds[0]), min(best[name][1], seconds[1])
    return best


def _one(statement: str, env: dict[str, str]) -> tuple[float, float]:
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], env=env, check=True)
    wall, after = time.perf_counter() - began, os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system, wall


def loaded_http_clients() -> list[str]:
    """HTTP clients that the public names drag in."""
    code = f"from outlast import *\nimport sys\nprint(*[name for name in {HTTP!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks imports", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    best = measure(parser.parse_args(arguments).repetitions)
    base = best["temporalio and pydantic"]
    for name, (cpu, wall) in best.items():
        print(f"{name:26}{cpu:8.3f} s CPU{wall:8.3f} s wall   x {cpu / base[0]:.2f} CPU, x {wall / base[1]:.2f} wall")
    print(f"HTTP clients loaded: {', '.join(loaded_http_clients()) or 'none'}")

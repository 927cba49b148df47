"""What one verdict of ``policy_filter`` costs with 1,000 rules: `python -m benchmarks.policy`."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from functools import partial

from outlast.middleware import policy_filter

RULES = 1000


def median_microseconds(work: Callable[[], object], times: int = 300) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def main() -> None:
    names = [f"tool_{number}" for number in range(RULES)]
    cases = {
        "1,000 names": policy_filter(deny=names),
        "1,000 anchored patterns": policy_filter(deny=[re.compile(f"^{name}_") for name in names]),
        "1,000 patterns that search": policy_filter(deny=[re.compile(f"{name}_(?:read|list)$") for name in names]),
        "1,000 patterns with two loops": policy_filter(deny=[re.compile(f"^.*_{name}_.*$") for name in names]),
    }
    hostile = ["unmatched_name", "tool_" * 12, "_" * 64]
    for case, policy in cases.items():
        worst = max(median_microseconds(partial(policy.permits, name)) for name in hostile)
        print(f"{case:32} {worst:8.1f} us a call")
    for pattern in ("a*a*a*b", ".*a.*b.*c$", "[ab]*[ab]*[ab]*c"):
        costly = policy_filter(deny=[re.compile(pattern)])
        worst = max(median_microseconds(partial(costly.permits, name), 5) for name in ("a" * 64, "ab" * 32))
        print(f"one pattern at the bound, {pattern:18} {worst / 1000:6.2f} ms a call")
    began = time.perf_counter()
    policy_filter(deny=[re.compile(f"^new_{name}_") for name in names])
    print(f"making it, 1,000 new patterns    {(time.perf_counter() - began) * 1000:8.1f} ms")


if __name__ == "__main__":
    main()

"""What `pii_redact` costs on ordinary and on hostile text of 100 kB: `python -m benchmarks.pii`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from outlast.messages import user
from outlast.middleware import HookContext, pii_redact
from outlast.middleware.pii_detectors import BUILT_IN
from outlast.middleware.pii_rules import RedactedStream, Rules
from outlast.model import ModelRequest

SIZE = 100_000
HOSTILE = [
    *"a1.:@ ", "a@", "@a.", "a@a.", "a@a-", "a@a.aa ", "1 ", "12 ", "1-", "4222222222222 ", "4111 1111 1111 1111 ",
    "1.", "1.1.1.1 ", "1.1.1.1a", "1:", "::", "1::1 ", "f:f: ", "ffff:", "1:1:1:1:1:1:1 ", "a:%",
]  # fmt: skip
PROSE = "The order of 2024-03-01 was shipped at 12:30:45 to the third floor; version 1.2.3 of the form is enclosed. "


def milliseconds(work: Callable[[], object], times: int = 3) -> float:
    """Of CPU; the best of a few."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken) * 1000


def filled(unit: str) -> str:
    return (unit * (SIZE // len(unit) + 1))[:SIZE]


def run(arguments: list[str]) -> None:
    """The worst hostile text of each detector; prose; what a pass over a long conversation costs; a stream."""
    for kind, detector in BUILT_IN.items():
        costs = {unit: milliseconds(partial(detector.find, filled(unit))) for unit in HOSTILE}
        worst = max(costs, key=lambda unit: costs[unit])
        prose = milliseconds(partial(detector.find, filled(PROSE)))
        print(f"{kind:12} 100 kB: worst {costs[worst]:5.1f} ms (of {worst!r}), prose {prose:4.1f} ms")
    hooks = [pii_redact(kind) for kind in BUILT_IN]
    rules = Rules(tuple(hook.rule for hook in hooks))
    whole = milliseconds(lambda: rules.redact([filled("a@a.aa ")], Counter()))
    print(f"all three, replacing 14,286 addresses in 100 kB: {whole:5.1f} ms")
    request = ModelRequest(messages=tuple(user(PROSE * 40 + str(number)) for number in range(300)))
    hook = pii_redact("email")
    began = time.process_time()
    hook.before_model(request, HookContext())
    first = (time.process_time() - began) * 1000
    again = milliseconds(lambda: hook.before_model(request, HookContext()))
    print(f"300 messages of 4 kB: first pass {first:6.1f} ms, later ones {again:6.1f} ms")

    def stream() -> None:
        redacted = RedactedStream(rules)
        for word in filled(PROSE).split(" "):
            redacted.push(word + " ")

    words = filled(PROSE).count(" ")
    print(f"a stream of {words:,} words: {milliseconds(stream, 1) * 1000 / words:6.1f} us a word")


if __name__ == "__main__":
    run([])

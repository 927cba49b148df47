"""``python -m benchmarks [overhead|history|imports] [options]``; without a name, all of them."""

from __future__ import annotations

import importlib
import sys

NAMES = ("imports", "overhead", "history", "long_run")


def main(arguments: list[str]) -> None:
    """Run the benchmark of this name, or all."""
    chosen = arguments[:1] if arguments else NAMES
    for name in chosen:
        if name not in NAMES:
            raise SystemExit(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").run(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

"""``python -m benchmarks [NAME] [options]``, as in ``MODULES``; without a name, all but ``peers``."""

from __future__ import annotations

import importlib
import sys

NAMES = ("imports", "overhead", "middleware", "history", "long_run")
MODULES = {"peers": "benchmarks.comparison"} | {name: f"benchmarks.{name}" for name in NAMES}


def main(arguments: list[str]) -> None:
    """Run the benchmark of this name, or all."""
    chosen = arguments[:1] if arguments else NAMES
    for name in chosen:
        if name not in MODULES:
            raise SystemExit(f"no benchmark {name!r}; there are: {', '.join(MODULES)}")
        print(f"== {name}", flush=True)
        importlib.import_module(MODULES[name]).run(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

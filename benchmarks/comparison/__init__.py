"""The same scripted work on a bare workflow, on outlast and on its peers: ``python -m benchmarks peers``."""

from benchmarks.comparison.command import run

__all__ = ["run"]

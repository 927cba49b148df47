"""What the page says around the figures, and what we want to reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A bound for ours. ``relative``: to the bare workflow. ``least``: at least, else at most."""

    title: str
    row: str
    name: str
    bound: float
    relative: bool = True
    least: bool = False


GOALS = (
    Goal("wall per step over bare, 16 B: at most 1.15", "steps", "wall 16", 1.15),
    Goal("wall per step over bare, 4 KB: at most 1.15", "steps", "wall 4096", 1.15),
    Goal("worker CPU per step over bare, 16 B: at most 1.3", "steps", "cpu 16", 1.3),
    Goal("worker CPU per step over bare, 4 KB: at most 1.3", "steps", "cpu 4096", 1.3),
    Goal("runs per second over bare: at least 0.9", "throughput", "runs/s", 0.9, least=True),
    Goal("kB of worker memory per waiting run: at most 60", "memory", "kB/run", 60, relative=False),
    Goal("answer to tool over bare: at most 3", "resume", "ms", 3),
    Goal("the same, after 90 s, with 500 waiting: at most 3", "memory", "ms", 3),
    Goal("replay over bare: at most 1.5", "replay", "replay ratio", 1.5),
)

HEAD = """# Benchmarks against the peers

Written by `make bench`. The same scripted work on a bare Temporal workflow (two activities, written by hand), on
outlast with and without storage, and on the libraries that also run agents on Temporal."""

METHOD = """## How it is measured

- A step is one model call and one tool call, each an activity that does nothing. The model is a script
  ([`benchmarks/peers/script.py`](../benchmarks/peers/script.py)); the tool's result is a text of 16 B, 4 KB or 20 KB.
- Every worker is a process of its own with Temporal's default worker options, in an environment of its own with pinned
  versions ([`benchmarks/peers/`](../benchmarks/peers) has a worker and a constraints file per peer; each names the
  documentation it follows). All of a row's workers share one embedded development server, and take turns in changing
  order; figures are medians. Memory and growth are measured one worker after the other.
- The bare workflow keeps no conversation: its model call is given a number. Agents carry the conversation.
- Wall and CPU per step: runs of 50 steps, a warm worker. History: steps 3 to 7, and the last five before the end.
- Runs per second: 50 runs of 5 steps with results of 4 KB, started at once.
- Memory: growth of the worker's resident memory over 500 runs that each hold a result of 20 KB and wait for an
  approval, 90 seconds after the last began to wait. (Ours lets go of runs that have waited for a minute.)
- Answer to tool: from the moment the client sends the approval to the moment the approved tool starts; half a second
  after the run began to wait, and again for some of the 500 runs of the memory row.
- Replay: 300 steps with results of 16 B, in a fresh process, against a bare workflow with as many events in one
  execution, in turn. A run that continued as new is replayed execution by execution, and the times are added.
- As far as it goes: one run of up to 1,000 steps, at most four minutes. Peers run one turn of one agent, continued as
  new where their library can do that within a turn. Temporal's external storage can be configured under any of
  them; it then stores every request whole. It was not, and neither was it for outlast without storage."""

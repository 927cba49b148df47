"""For tests of agents: a scripted model, a runtime in memory, a real server, and replay. See docs/testing.md."""

from typing import TYPE_CHECKING

from outlast.lazy_package import make_lazy

if TYPE_CHECKING:
    from outlast.testing.env import LocalEnv, local_env, local_server
    from outlast.testing.memory import MemoryRuntime, RunSuspended
    from outlast.testing.replay import ReplayFailed, replay
    from outlast.testing.scripted import ScriptedModel, ScriptExhausted, call, calls, text

_HOMES = {
    "LocalEnv": "env",
    "MemoryRuntime": "memory",
    "ReplayFailed": "replay",
    "RunSuspended": "memory",
    "ScriptExhausted": "scripted",
    "ScriptedModel": "scripted",
    "call": "scripted",
    "calls": "scripted",
    "local_env": "env",
    "local_server": "env",
    "replay": "replay",
    "text": "scripted",
}
"""Where each name lives; modules are imported when asked for."""

__all__ = [
    "LocalEnv",
    "MemoryRuntime",
    "ReplayFailed",
    "RunSuspended",
    "ScriptExhausted",
    "ScriptedModel",
    "call",
    "calls",
    "local_env",
    "local_server",
    "replay",
    "text",
]

make_lazy(__name__, _HOMES)

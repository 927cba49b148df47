"""Filters at a run's edges: what a client sends, and what leaves a worker's activities, before it becomes history.

An optional ability of a middleware: it has a method ``edge_filter(middlewares)`` (:class:`HasEdgeFilter`). The client
applies the filters of the middlewares it is given, the activities those of the run's agent and of the agents above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlast.messages import Json, Message
from outlast.model import Completion
from outlast.tools import ToolResult


class TextStream(Protocol):
    """A text that arrives in pieces."""

    def push(self, piece: str) -> str:
        """What of it can be shown now."""
        ...

    def flush(self) -> str:
        """What is left at the end."""
        ...


class EdgeFilter(Protocol):
    """Every method gives the value back, changed or the same object."""

    @property
    def is_slow(self) -> bool:
        """Whether code of the user's own is among it, which activities give a thread and a time limit."""
        ...

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """What a client starts a run with or sends to it. Raises ToolRejection to refuse it."""
        ...

    def sent(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """What is about to be sent to a model. Raises ToolRejection to end the run."""
        ...

    def completion(self, completion: Completion) -> Completion:
        """What a model answered. Raises ToolRejection to end the run."""
        ...

    def result(self, result: ToolResult) -> ToolResult:
        """What a tool returned."""
        ...

    def args(self, args: dict[str, Json]) -> dict[str, Json]:
        """Arguments of a tool call that come from outside: an edit, an interrupt that a tool raised."""
        ...

    def value(self, value: Json) -> Json:
        """Anything else in JSON that people send: a reason, a comment."""
        ...

    def output(self, value: Json) -> Json:
        """Anything else in JSON that leaves an activity: a tool's progress, an error's text."""
        ...

    def event(self, data: dict[str, Json]) -> dict[str, Json]:
        """What watchers of the run are told."""
        ...

    def stream(self) -> TextStream | None:
        """For the deltas of one model call; None lets them pass."""
        ...


@runtime_checkable
class HasEdgeFilter(Protocol):
    """A middleware with this ability."""

    def edge_filter(self, middlewares: Sequence[object]) -> EdgeFilter | None:
        """Its filter where it stands among these; None where it has nothing to do, or another one does it."""
        ...


@dataclass(frozen=True)
class Edges:
    """The filters of several middlewares, applied one after another."""

    filters: tuple[EdgeFilter, ...] = ()

    @classmethod
    def of(cls, middlewares: Iterable[object]) -> Edges:
        """Those that these middlewares have."""
        given = tuple(middlewares)
        found = [item.edge_filter(given) for item in given if isinstance(item, HasEdgeFilter)]
        return cls(tuple(item for item in found if item is not None))

    @property
    def is_slow(self) -> bool:
        """See :class:`EdgeFilter`."""
        return any(item.is_slow for item in self.filters)

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            messages = item.messages(messages)
        return tuple(messages)

    def sent(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            messages = item.sent(messages)
        return messages if isinstance(messages, tuple) else tuple(messages)

    def completion(self, completion: Completion) -> Completion:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            completion = item.completion(completion)
        return completion

    def result(self, result: ToolResult) -> ToolResult:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            result = item.result(result)
        return result

    def args(self, args: dict[str, Json]) -> dict[str, Json]:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            args = item.args(args)
        return args

    def value(self, value: Json) -> Json:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            value = item.value(value)
        return value

    def decision(self, decision: str | Mapping[str, Json]) -> Json:
        """Somebody's answer to an interrupt: its new arguments and its reason."""
        if not isinstance(decision, Mapping):
            return decision
        kinds = {"edit": self.args, "reject": self.value}
        return {key: kinds[key](value) if key in kinds else value for key, value in decision.items()}

    def text(self, text: str) -> str:
        """:meth:`value` of a text."""
        return str(self.value(text))

    def output(self, value: Json) -> Json:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            value = item.output(value)
        return value

    def event(self, data: dict[str, Json]) -> dict[str, Json]:
        """See :class:`EdgeFilter`."""
        for item in self.filters:
            data = item.event(data)
        return data

    def streams(self) -> list[TextStream]:
        """One per filter that has something to hold back."""
        return [stream for item in self.filters if (stream := item.stream()) is not None]


NO_EDGES = Edges()

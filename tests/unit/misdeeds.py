"""Hooks, tools and models that give what no JSON holds, or errors that cannot be told, and what must become of each.

Used without a server (between two tries only the state survives) and with one (where it would stick the run).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from outlast import (
    Agent,
    AgentError,
    AgentOptions,
    HitlInterrupt,
    HookContext,
    ToolContext,
    ToolRejection,
    create_middleware,
    side_effect,
    tool,
)
from outlast.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock, assistant, user
from outlast.model import Completion, ModelRequest
from outlast.testing import ScriptedModel, call
from outlast.testing.scripted import Reply
from outlast.tools import ToolResult

SURROGATE = "\ud800"
UNWRITABLE: Mapping[str, Any] = {
    "object": object(),
    "set": {1},
    "tuple": (1,),
    "bytes": b"x",
    "key": {1: 2},
    "date": datetime(2026, 1, 1),
    "nan": float("nan"),
    "infinity": float("inf"),
    "surrogate": SURROGATE,
    "number": 2**20_000,
    "function": len,
}
POINTS = ("before_model", "wrap_model", "after_model", "before_tool", "around_tool", "after_tool")


@dataclass(frozen=True)
class Case:
    """An agent that does wrong once, and what its run must say: ``paused``, ``failed`` or a result's text."""

    agent: Agent
    outcome: str


def hook(point: str, act: Callable[[Any, HookContext], Any]) -> object:
    """A middleware named ``bad`` that acts at one point; what the act returns is what the hook returns."""

    async def around(value: Any, call_next: Any, ctx: HookContext) -> Any:
        answer = await call_next(value)
        return act(answer, ctx) or answer

    async def beside(value: Any, ctx: HookContext) -> Any:
        return act(value, ctx)

    chosen: Any = around if point in ("wrap_model", "around_tool") else beside
    return create_middleware("bad", **{point: chosen})


@tool
async def act(x: Any) -> str:
    """Act."""
    return f"did {x!r:.40}"


def turn(request: ModelRequest) -> Reply:
    return "done" if any(message.role == "tool" for message in request.messages) else call("act", x="a")


def agent(name: str, *middleware: object, **options: Any) -> Agent:
    model = options.pop("model", None) or ScriptedModel([turn] * 9)
    tools = options.pop("tools", [act])
    return Agent(AgentOptions(name=name, model=model, tools=tools, middleware=list(middleware), **options))


def _deep(value: Any) -> Callable[[Any, HookContext], None]:
    def write(_: Any, ctx: HookContext) -> None:
        ctx.invocation_state.setdefault("a", {})["x"] = value

    return write


def _raise(make: Callable[[], BaseException]) -> Callable[[Any, HookContext], None]:
    def act(_: Any, ctx: HookContext) -> None:
        raise make()

    return act


def _written() -> dict[str, tuple[object, str]]:
    """Values that a hook puts into the run's dict."""
    found: dict[str, tuple[object, str]] = {}
    for kind, value in UNWRITABLE.items():
        for point in POINTS:
            found[f"{point} writes a {kind} deep inside"] = (
                hook(point, _deep(value)),
                r"paused .*invocation_state\['a'\]",
            )
    return found


def _returned() -> dict[str, tuple[object, str]]:
    """Values that a hook returns; ``model_copy`` checks nothing."""

    def copy(point: str, **changes: Any) -> object:
        return hook(point, lambda value, ctx: value.model_copy(update=changes))

    odd_text = Message.model_construct(role="assistant", blocks=(TextBlock.model_construct(text=SURROGATE),))
    stray = assistant((ToolResultBlock(call_id="x", name="act"),))
    found: dict[str, tuple[object, str]] = {
        f"a call with a {kind} in its arguments": (
            copy("before_tool", args={"x": value}),
            "paused before_tool of 'bad'",
        )
        for kind, value in UNWRITABLE.items()
    }
    value: Any
    for field, value in (("name", 3), ("args", None), ("args", [1]), ("id", None)):
        found[f"a call whose {field} is {value}"] = (
            copy("before_tool", **{field: value}),
            "paused before_tool of 'bad'",
        )
    for point in ("after_tool", "around_tool"):
        for field, value in (
            ("content", 5),
            ("content", SURROGATE),
            ("status", "odd"),
            ("is_error", "x"),
            ("name", None),
        ):
            found[f"{point}: a result whose {field} is {value!r}"] = (
                copy(point, **{field: value}),
                f"paused {point} of 'bad'",
            )
    for point in ("after_model", "wrap_model"):
        for field, value in (
            ("finish", "odd"), ("message", None), ("usage", None), ("message", user("hi")), ("message", stray),
            ("message", odd_text),
        ):  # fmt: skip
            name = f"{point}: an answer whose {field} is {value!r:.60}"
            found[name] = (copy(point, **{field: value}), f"paused {point} of 'bad'")
    for field, value in (("messages", None), ("messages", ("hi",)), ("tools", ("x",)), ("messages", ())):
        found[f"a request whose {field} are {value}"] = (
            copy("before_model", **{field: value}),
            "paused (before_model of 'bad'|model call of step 1)",
        )
    return found


class Unreadable(Exception):
    """Every attribute that is looked up raises."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)


class Unwritable(Exception):
    """Every attribute that is set raises."""

    def __setattr__(self, name: str, value: object) -> None:
        raise SystemExit(name)


@dataclass(frozen=True)
class Frozen(Exception):
    """As many libraries make their errors."""

    code: int = 3


class Bare(AgentError):
    """Forgets to call its base's constructor."""

    def __init__(self) -> None:
        pass


def _raised() -> dict[str, tuple[object, str]]:
    """Errors that are hard to tell."""
    ends: dict[str, tuple[Callable[[], BaseException], str]] = {
        "AgentError without texts": (lambda: AgentError(404, None), "failed 404: None"),  # type: ignore[arg-type]
        "AgentError with a surrogate": (lambda: AgentError("X\ud800", "bad \ud800 \0"), "failed X"),
        "AgentError of 5 MB": (lambda: AgentError("X" * 5_000_000, "x" * 5_000_000), "failed XXX"),
        "AgentError that is bare": (Bare, "failed AGENT_ERROR"),
        "unreadable": (Unreadable, "paused {point} of 'bad'"),
        "unwritable": (Unwritable, "paused {point} of 'bad'"),
        "frozen": (Frozen, "paused {point} of 'bad': Frozen"),
    }
    found: dict[str, tuple[object, str]] = {}
    for point in POINTS:
        for name, (make, outcome) in ends.items():
            found[f"{point} raises {name}"] = (hook(point, _raise(make)), outcome.format(point=point))
    refusals: dict[str, tuple[Any, str]] = {
        "no text": (5, "5"),
        "a surrogate": (SURROGATE, r"\?"),
        "5 MB": ("x" * 5_000_000, "xxx"),
    }
    for point in ("before_tool", "around_tool", "after_tool"):
        for name, (text, shown) in refusals.items():
            found[f"{point} refuses with {name}"] = (hook(point, _raise(partial(ToolRejection, text))), shown)
    return found


def _interrupts() -> dict[str, tuple[object, str]]:
    """Questions that nobody could be shown, or could answer."""
    odd: dict[str, Callable[[], BaseException]] = {
        "an object to show": lambda: HitlInterrupt("act", {"x": object()}),
        "a surrogate as description": lambda: HitlInterrupt("act", {"x": "a"}, description=SURROGATE),
        "an unknown decision": lambda: HitlInterrupt("act", {"x": "a"}, allowed_decisions=["aprove"]),
        "no decision": lambda: HitlInterrupt("act", {"x": "a"}, allowed_decisions=[]),
        "an endless time": lambda: HitlInterrupt("act", {"x": "a"}, timeout_seconds=1e18),
        "a time that is text": lambda: HitlInterrupt("act", {"x": "a"}, timeout_seconds="1"),  # type: ignore[arg-type]
        "a time that is none": lambda: HitlInterrupt("act", {"x": "a"}, reminder_seconds=float("nan")),
        "an unknown time-out": lambda: HitlInterrupt("act", {"x": "a"}, on_timeout="edit"),
    }
    found: dict[str, tuple[object, str]] = {
        f"before_tool asks with {name}": (hook("before_tool", _raise(make)), "paused before_tool of 'bad'")
        for name, make in odd.items()
    }
    for name, make in odd.items():
        found[f"around_tool asks with {name}"] = (hook("around_tool", _raise(make)), "paused .*around_tool")
    found["an unknown tool"] = (
        hook("before_tool", _raise(lambda: HitlInterrupt("no", {}))),
        "there is no tool named 'no'",
    )
    for point in ("before_model", "wrap_model", "after_model", "after_tool"):
        found[f"{point} asks"] = (
            hook(point, _raise(lambda: HitlInterrupt("act", {"x": "a"}))),
            f"paused {point} of 'bad'",
        )
    return found


def _emit(data: dict[str, Any]) -> Callable[[Any, HookContext], None]:
    return lambda _, ctx: ctx.emit(data)


def _emitted() -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {
        f"an event with the key {key}": (
            hook("before_tool", _emit({key: "x"})),
            "did 'a'",
        )
        for key in ("kind", "scope", "self", "data", "at", "step")
    }
    for kind in ("object", "surrogate", "nan"):
        value = UNWRITABLE[kind]
        found[f"an event with a {kind}"] = (
            hook("before_tool", _emit({"x": value})), "paused before_tool of 'bad'"
        )  # fmt: skip
    return found


def hook_cases() -> dict[str, Case]:
    """One agent per misdeed of a hook."""
    parts = (_written(), _returned(), _raised(), _interrupts(), _emitted())
    return {
        name: Case(agent(f"case {number}", middleware), outcome)
        for number, (name, (middleware, outcome)) in enumerate(
            (name, found) for part in parts for name, found in part.items()
        )
    }


def argument_cases() -> dict[str, Case]:
    """Arguments from a model that the engine could not keep: the model is told."""
    texts = {
        "surrogate": '{"x": "\\ud800"}', "surrogate key": '{"x": {"\\udfff": 1}}',
        "nan": '{"x": NaN}', "infinity": '{"x": 1e999}',
        "number": '{"x": ' + "9" * 4000 + "}", "endless number": '{"x": ' + "9" * 5000 + "}",
        **{f"{depth} deep": '{"x": ' + "[" * depth + "]" * depth + "}" for depth in (101, 260, 900, 100_000)},
    }  # fmt: skip
    found = {}
    for number, (name, raw) in enumerate(texts.items()):
        broken = assistant((ToolCallBlock(id="1", name="act", raw_args=raw),))
        found[name] = Case(agent(f"args {number}", model=ScriptedModel([broken, "done"])), "act was not run")
    return found


@tool
async def heart(context: ToolContext) -> str:
    """Beats with what is no JSON."""
    context.heartbeat(object())
    return "ok"


@tool
async def answers_oddly() -> Any:
    """Gives a result that cannot be written."""
    return ToolResult.model_construct(call_id="", name="", content=SURROGATE, is_error=False, status="executed")


@tool
def stops() -> str:
    """Raises what no future carries."""
    raise StopIteration(1)


@tool
async def ends() -> str:
    """Ends the run, without texts."""
    raise AgentError(404, None)  # type: ignore[arg-type]


@tool
async def asks() -> str:
    """Asks with what cannot be shown."""
    raise HitlInterrupt("asks", {"x": object()})


@tool
async def refuses() -> str:
    """Refuses without a text."""
    raise ToolRejection(5)  # type: ignore[arg-type]


def tool_cases() -> dict[str, Case]:
    """One agent per misdeed of a tool's body."""
    outcomes = {
        heart: r"heartbeat\[0\]", answers_oddly: r"\?", stops: "StopIteration", ends: "failed 404",
        asks: "cannot be shown|could not be carried", refuses: "5",
    }  # fmt: skip
    return {
        body.name: Case(agent(body.name, model=ScriptedModel([call(body.name), "done"]), tools=[body]), outcome)
        for body, outcome in outcomes.items()
    }


@side_effect
def stops_too() -> None:
    """Raises what no future carries."""
    raise StopIteration(1)


@side_effect
def exits() -> None:
    """Would end the process."""
    raise SystemExit(3)


@side_effect
def gives_an_object() -> object:
    """Gives what is no JSON."""
    return object()


@side_effect
async def gives_a_surrogate() -> str:
    """Gives what no payload carries."""
    return SURROGATE


def effect_cases() -> dict[str, Case]:
    """One agent per misdeed of a side effect."""

    def calling(effect: Any) -> object:
        async def before(call: Any, ctx: HookContext) -> None:
            await effect()

        return create_middleware("bad", before_tool=before)

    effects = (stops_too, exits, gives_an_object, gives_a_surrogate)
    return {
        effect.fn.__name__: Case(agent(effect.fn.__name__, calling(effect)), "paused before_tool of 'bad'")
        for effect in effects
    }


class OddModel:
    """Answers with what a completion cannot be."""

    name = "odd"

    def __init__(self, completion: Any) -> None:
        self._completion = completion

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Any:
        return self._completion


def model_cases() -> dict[str, Case]:
    """One agent per misdeed of a model."""
    odd_text = Message.model_construct(role="assistant", blocks=(TextBlock.model_construct(text=SURROGATE),))
    answers = {
        "nothing": None, "text": "hi", "a user's message": Completion(message=user("hi")),
        "a tool's result": Completion(message=assistant((ToolResultBlock(call_id="x", name="act"),))),
        "a surrogate": Completion.model_construct(message=odd_text),
    }  # fmt: skip
    return {
        name: Case(agent(f"model {number}", model=OddModel(answer)), "paused model call of step 1")
        for number, (name, answer) in enumerate(answers.items())
    }

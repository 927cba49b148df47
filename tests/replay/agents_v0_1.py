"""The agents whose histories of version 0.1 are kept. Never change one: an open run of that version would break too.

A new behaviour gets a new agent, in a new file, with new histories.
"""

from __future__ import annotations

from outlast import Agent, AgentOptions, HookContext, create_middleware, side_effect, tool
from outlast.errors import AuthenticationFailed, ModelError
from outlast.middleware import SubAgent, create_sub_agent_middleware, human_in_the_loop, model_retry
from outlast.model import ModelRequest
from outlast.testing.scripted import Reply, ScriptedModel, call, calls
from outlast.tools import ToolCall, ToolResult


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word of {len(word)} letters"


@tool(idempotent=False)
async def publish(title: str) -> str:
    """Publish a page."""
    return f"published {title}"


@tool
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool(local=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(name: str, script: list[Reply], *middleware: object) -> Agent:
    """An agent with every tool; a script is used once, by one run."""
    return Agent(
        AgentOptions(
            name=name,
            instructions=f"You are {name}.",
            model=ScriptedModel(script),
            tools=[look_up, publish, fail, add],
            middleware=middleware,
        )
    )


plain = agent("plain", [call("look_up", word="durable"), "It has seven letters."])

together = [
    call("look_up", word="one"),
    call("look_up", word="three"),
    call("fail", reason="no luck"),
    call("add", a=1, b=2),
]
parallel = agent("parallel", [calls(*together), call("unknown_tool"), "Done."])

gate = human_in_the_loop({"publish": {"timeout_seconds": 86_400.0}})
approvals = agent(
    "approvals",
    [
        calls(call("publish", title="first"), call("publish", title="second"), call("look_up", word="third")),
        call("publish", title="fourth"),
        "Published.",
    ],
    gate,
)

long = agent("long", [*(call("look_up", word=f"word{number}") for number in range(12)), "Read."])


@side_effect
def price_of(word: str) -> int:
    """What a word costs, somewhere else."""
    return len(word)


async def ask_price(call: ToolCall, ctx: HookContext) -> None:
    """A side effect, time, luck and a timer, in a hook."""
    ctx.invocation_state["price"] = await price_of(str(call.args.get("word", "")))
    ctx.invocation_state["seen"] = [ctx.now().isoformat(), ctx.random.random(), str(ctx.uuid())]
    await ctx.sleep(0.01)


async def mark(result: ToolResult, ctx: HookContext) -> ToolResult:
    """A side effect after the tool."""
    return result.replace(content=f"{result.text} ({await price_of(result.text)})")


effects = agent(
    "effects",
    [call("look_up", word="price"), "Paid."],
    create_middleware("prices", before_tool=ask_price, after_tool=mark),
)

paused = agent("paused", [call("look_up", word="key"), AuthenticationFailed("the key has expired"), "Back again."])


def overloaded() -> ModelError:
    """An error that may be retried."""
    return ModelError("overloaded", retryable=True)


retried = agent("retried", [overloaded(), overloaded(), "At last."], model_retry(initial_delay_ms=10))

clerk = SubAgent(
    name="clerk",
    description="Publishes.",
    instructions="You publish.",
    model=ScriptedModel([call("publish", title="report"), "The clerk is done."]),
    tools=[publish],
    middleware=[human_in_the_loop({"publish": True})],
)
parent = agent(
    "parent",
    [call("task", description="publish the report", subagent_type="clerk"), "The parent is done."],
    create_sub_agent_middleware(ScriptedModel([]), [clerk]),
)


def add_note(request: ModelRequest, ctx: HookContext) -> None:
    """Notes the step."""
    ctx.invocation_state.setdefault("steps", []).append(ctx.step)


steered = agent(
    "steered", [call("publish", title="x"), "Thank you."], gate, create_middleware("notes", before_model=add_note)
)

AGENTS = [plain, parallel, approvals, long, effects, paused, retried, parent, steered]

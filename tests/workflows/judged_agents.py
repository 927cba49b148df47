"""Agents whose middlewares hold model objects and error classes of this module, which the workflow imports anew."""

from __future__ import annotations

import re

from outlast import Agent, AgentOptions, tool
from outlast.errors import ServerFault
from outlast.middleware import (
    model_fallback,
    model_retry,
    policy_filter,
    todo_list,
    tool_call_limit,
    tool_emulator_middleware,
    tool_retry,
)
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.testing.scripted import ScriptedModel, call


class NoPaper(LookupError):
    """An error of the user's own."""


class Printer:
    """A tool's outside world."""

    attempts = 0


@tool
def print_page() -> str:
    """Print."""
    Printer.attempts += 1
    if Printer.attempts % 2:
        raise NoPaper("tray 2")
    return "printed"


class Moody:
    """A model of the user's own that raises the user's own error every other time."""

    name = "own:moody"
    calls = 0

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        Moody.calls += 1
        if Moody.calls % 2:
            raise NoPaper("in the model")
        asked = request.messages[-1].role == "user"
        return call("print_page") if asked else await ScriptedModel(["done"]).complete(request)


printer = Agent(
    AgentOptions(
        name="printer",
        model=Moody(),
        tools=[print_page],
        middleware=[
            policy_filter(allow=[re.compile("^print_")], deny=[re.compile("secret"), "print_money"]),
            tool_call_limit("print_page", 1),
            todo_list(),
            model_retry(1, 10, retry_on=NoPaper),
            tool_retry(1, 10, retry_on=LookupError),
        ],
    )
)

broken, spare, player = (
    ScriptedModel([ServerFault("x")] * 99),
    ScriptedModel(["spare"] * 99),
    ScriptedModel(["played"] * 99),
)

fallen = Agent(AgentOptions(name="fallen", model=broken, middleware=[model_fallback(broken, spare)]))

actor = Agent(
    AgentOptions(
        name="actor",
        model=ScriptedModel([call("print_page"), "done"] * 9),
        tools=[print_page],
        middleware=[tool_emulator_middleware(player)],
    )
)

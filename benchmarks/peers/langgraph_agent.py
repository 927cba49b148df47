"""LangGraph with Temporal's plugin: a tool-calling loop of two nodes that are activities, and one that asks a person.

Sources: https://github.com/temporalio/ai-integrations/tree/main/python/langgraph (nodes, execution location, the
checkpointer for interrupts); https://github.com/temporalio/samples-python/tree/main/langgraph_plugin/graph_api (the
loop in ``react_agent``, the signal in ``human_in_the_loop``). Messages are plain dicts, the cheapest that it can carry.
"""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from temporalio import workflow
from temporalio.langgraph import LangGraphPlugin, graph
from typing_extensions import TypedDict

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    messages = state["messages"]
    results = sum(message["role"] == "tool" for message in messages)
    call = next_call(messages[1]["content"], results)
    if call is None:
        return {"messages": [{"role": "assistant", "content": "done"}]}
    name, arguments = call
    calls = [{"id": f"call-{results}", "name": name, "args": arguments}]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": calls}]}


async def fetch(page: int, size: int, of: int) -> str:
    return "x" * size


async def publish(title: str) -> str:
    return "published"


async def tools(state: State) -> dict[str, Any]:
    [call] = state["messages"][-1]["tool_calls"]
    result = await {"fetch": fetch, "publish": publish}[call["name"]](**call["args"])
    return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": result}]}


async def review(state: State) -> dict[str, Any]:
    if interrupt(state["messages"][-1]["tool_calls"]) != "approve":
        raise ValueError("nobody rejects in this benchmark")
    return {}


async def route(state: State) -> str:
    calls = state["messages"][-1].get("tool_calls")
    if not calls:
        return END
    return "review" if calls[0]["name"] == "publish" else "tools"


def build() -> StateGraph[State]:
    as_activity = {"execute_in": "activity", "start_to_close_timeout": timedelta(seconds=60)}
    builder = StateGraph(State)
    builder.add_node("model", model, metadata=as_activity)
    builder.add_node("tools", tools, metadata=as_activity)
    builder.add_node("review", review, metadata={"execute_in": "workflow"})
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route, ["review", "tools", END])
    builder.add_edge("review", "tools")
    builder.add_edge("tools", "model")
    return builder


@workflow.defn
class Bench:
    def __init__(self) -> None:
        self.approved = False

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, prompt: str) -> str:
        app = graph("bench").compile(checkpointer=InMemorySaver())
        config = RunnableConfig(configurable={"thread_id": workflow.info().workflow_id}, recursion_limit=100_000)
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt}]
        result = await app.ainvoke({"messages": messages}, config)
        while "__interrupt__" in result:
            await workflow.wait_condition(lambda: self.approved)
            self.approved = False
            result = await app.ainvoke(Command(resume="approve"), config)
        return str(result["messages"][-1]["content"])


def worker() -> Served:
    return Served(workflows=[Bench], plugins=[LangGraphPlugin(graphs={"bench": build()})])

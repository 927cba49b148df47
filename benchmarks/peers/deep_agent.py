"""LangChain's Deep Agents with Temporal's plugin.

Source: https://github.com/temporalio/ai-integrations/tree/main/python/deepagents (``create_temporal_deep_agent``, a
model provider, ``tool_as_activity``, "Human-in-the-loop" with an update). Its own summarization stays switched on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from temporalio import workflow
from temporalio.deepagents import DeepAgentsPlugin, create_temporal_deep_agent, tool_as_activity

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call

LIMIT = timedelta(seconds=60)


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)

    @staticmethod
    def _answer(messages: list[BaseMessage]) -> AIMessage:
        calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
        prompt = next(message.text for message in messages if message.type == "human")
        results = sum(message.type == "tool" for message in messages)
        if calls and "of" in calls[-1]["args"] and not prompt[:1].isdigit():  # the beginning was summarized
            last = calls[-1]["args"]
            prompt, results = f"{last['of']} {last['size']} 0", last["page"] + 1
        elif not prompt[:1].isdigit():
            return AIMessage("Pages were fetched.")  # it is asked for a summary
        call = next_call(prompt, results)
        if call is None:
            return AIMessage("done")
        name, arguments = call
        return AIMessage("", tool_calls=[{"id": f"call-{results}", "name": name, "args": arguments}])


@tool
async def fetch(page: int, size: int, of: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
        of: How many pages there are.
    """
    return "x" * size


@tool
async def publish(title: str) -> str:
    """Publish a report.

    Args:
        title: Its title.
    """
    return "published"


TOOLS = [tool_as_activity(one, start_to_close_timeout=LIMIT) for one in (fetch, publish)]


@workflow.defn
class Bench:
    def __init__(self) -> None:
        self.decision: str | None = None

    @workflow.update
    async def resume(self, decision: str) -> None:
        self.decision = decision

    @workflow.run
    async def run(self, prompt: str) -> str:
        agent = create_temporal_deep_agent(
            model="scripted",
            system_prompt=INSTRUCTIONS,
            tools=TOOLS,
            interrupt_on={"publish": True},
            checkpointer=InMemorySaver(),
            activity_options={"start_to_close_timeout": LIMIT},
        )
        config = RunnableConfig(configurable={"thread_id": workflow.info().workflow_id}, recursion_limit=100_000)
        result = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]}, config=config)
        while result.get("__interrupt__"):
            await workflow.wait_condition(lambda: self.decision is not None)
            decisions, self.decision = [{"type": self.decision}], None
            result = await agent.ainvoke(Command(resume={"decisions": decisions}), config=config)
        return str(result["messages"][-1].content)


def worker() -> Served:
    plugin = DeepAgentsPlugin(model_provider=lambda name: Scripted())
    return Served(workflows=[Bench], plugins=[plugin])

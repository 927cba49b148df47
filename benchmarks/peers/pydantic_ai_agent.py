"""pydantic-ai: an agent with the ``TemporalDurability`` capability, which has replaced ``TemporalAgent``.

Sources: https://ai.pydantic.dev/durable_execution/temporal/ (agent, workflow, plugin); /models/test/ (FunctionModel);
/deferred-tools/ (a tool that requires approval); the docstring of ``TemporalDurability`` (``continue_as_new``).
"""

from __future__ import annotations

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, UsageLimits
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from temporalio import workflow

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    prompt = next(part.content for part in parts if isinstance(part, UserPromptPart))
    results = sum(isinstance(part, ToolReturnPart) for part in parts)
    call = next_call(str(prompt), results)
    if call is None:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(*call, tool_call_id=f"call-{results}")])


toolset: FunctionToolset[None] = FunctionToolset(id="pages")


@toolset.tool_plain
async def fetch(page: int, size: int, of: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
        of: How many pages there are.
    """
    return "x" * size


@toolset.tool_plain(requires_approval=True)
async def publish(title: str) -> str:
    """Publish a report.

    Args:
        title: Its title.
    """
    return "published"


def continue_as_new(ctx: RunContext[None]) -> None:
    workflow.continue_as_new(args=[ctx.prompt, ctx.messages])


agent = Agent(
    FunctionModel(answer),
    name="bench",
    instructions=INSTRUCTIONS,
    toolsets=[toolset],
    output_type=[str, DeferredToolRequests],
    capabilities=[TemporalDurability(continue_as_new=continue_as_new)],
)


@workflow.defn
class Bench(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [agent]  # noqa: RUF012 - as documented

    def __init__(self) -> None:
        self.approved = False

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, prompt: str, history: list[ModelMessage] | None = None) -> str:
        limits = UsageLimits(request_limit=None)
        result = await agent.run(None if history else prompt, message_history=history, usage_limits=limits)
        while isinstance(result.output, DeferredToolRequests):
            await workflow.wait_condition(lambda: self.approved)
            self.approved = False
            answers = DeferredToolResults(approvals={call.tool_call_id: True for call in result.output.approvals})
            result = await agent.run(
                message_history=result.all_messages(), deferred_tool_results=answers, usage_limits=limits
            )
        return result.output


def worker() -> Served:
    return Served(workflows=[Bench], plugins=[PydanticAIPlugin()])

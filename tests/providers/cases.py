"""The shared table: one conversation per row, sent to all four providers."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.messages import (
    MediaBlock,
    Message,
    OpaqueBlock,
    Origin,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    assistant,
    image,
    system,
    tool_message,
    user,
)
from outlast.model import ModelRequest, ModelSettings, ResponseFormat, ToolSpec

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = ToolSpec(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TIME = ToolSpec(name="get_time")


def call(id: str, args: str = '{"city": "Zürich"}', name: str = "get_weather") -> ToolCallBlock:
    """A call that is in the transcript."""
    return ToolCallBlock(id=id, name=name, raw_args=args)


def result(id: str, text: str = "12 °C", *, is_error: bool = False, name: str = "get_weather") -> Message:
    """The result of a call."""
    return tool_message(
        ToolResultBlock(call_id=id, name=name, content=(TextBlock(text=text),), is_error=is_error, status="executed")
    )


def request(*messages: Message, tools: tuple[ToolSpec, ...] = (WEATHER, TIME)) -> ModelRequest:
    """A request with the usual tools."""
    return ModelRequest(messages=messages, tools=tools)


ELSEWHERE = Message(
    role="assistant",
    blocks=(
        ReasoningBlock(
            text="LEAK thoughts", signature="LEAK-sig", encrypted="LEAK-enc", item_id="LEAK-rs", extra='{"LEAK":1}'
        ),
        ReasoningBlock(redacted="LEAK-redacted"),
        TextBlock(text="Let me look.", signature="LEAK-sig", citations=('{"LEAK":1}',), extra='{"item_id":"LEAK-msg"}'),
        OpaqueBlock(provider="elsewhere", raw='{"type":"LEAK"}'),
        ToolCallBlock(
            id="s0001.tool.1",
            name="get_weather",
            raw_args='{"city": "Bern"}',
            provider_call_id="LEAK-call",
            provider_item_id="LEAK-fc",
            signature="LEAK-sig",
            extra='{"LEAK":1}',
        ),
        RefusalBlock(text="I will not say more."),
    ),
    origin=Origin(provider="elsewhere", api="words", model="m"),
)

CASES: Mapping[str, ModelRequest] = {
    "plain text": ModelRequest(messages=(user("Hi"),)),
    "system and history": ModelRequest(
        messages=(system("Be brief."), user("Hi"), assistant("Hello"), user("Who are you? 🙂"))
    ),
    "several user messages in a row": ModelRequest(messages=(user("One"), user("Two"))),
    "tools are offered": request(user("Weather?")),
    "parallel calls with results in another order": request(
        user("Weather in two cities?"),
        assistant((TextBlock(text="One moment."), call("c1"), call("c2", '{"city":"Bern"}'))),
        result("c2", "11 °C"),
        result("c1"),
        user("Thanks. And tomorrow?"),
    ),
    "a tool failed": request(user("Weather?"), assistant([call("c1")]), result("c1", "no such city", is_error=True)),
    "a call without arguments": request(
        user("Time?"), assistant([call("c1", "{}", "get_time")]), result("c1", "noon", name="get_time")
    ),
    "arguments that are no JSON": request(
        user("Weather?"), assistant([call("c1", '{"city": "Zür')]), result("c1", "invalid JSON", is_error=True)
    ),
    "arguments whose text must not change": request(
        user("Weather?"),
        assistant([call("c1", '{ "b":1.0,  "a":"\\u00fc", "n": 12345678901234567890 }')]),
        result("c1"),
    ),
    "an image by data and one by address": ModelRequest(
        messages=(
            user(
                [
                    TextBlock(text="Compare."),
                    image(PIXEL, mime_type="image/png"),
                    image("https://example.com/cat.jpg", source="url", mime_type="image/jpeg"),
                ]
            ),
        )
    ),
    "a file": ModelRequest(
        messages=(
            user(
                [
                    MediaBlock(media="file", data="JVBERi0=", mime_type="application/pdf", name="a.pdf"),
                    TextBlock(text="?"),
                ]
            ),
        )
    ),
    "a result with an image": request(
        user("Map?"),
        assistant([call("c1")]),
        tool_message(
            ToolResultBlock(
                call_id="c1",
                name="get_weather",
                content=(TextBlock(text="The map:"), image(PIXEL, mime_type="image/png")),
            )
        ),
    ),
    "structured output": ModelRequest(
        messages=(user("A city?"),),
        response_format=ResponseFormat(
            name="city",
            json_schema={
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        ),
    ),
    "settings": ModelRequest(
        messages=(user("Hi"),),
        tools=(WEATHER,),
        settings=ModelSettings(
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            stop=("END",),
            seed=7,
            tool_choice="required",
            parallel_tool_calls=False,
        ),
    ),
    "reasoning effort": ModelRequest(messages=(user("Think."),), settings=ModelSettings(reasoning_effort="low")),
    "an empty assistant message": ModelRequest(messages=(user("Hi"), assistant(()), user("Hello?"))),
    "a refusal in the history": ModelRequest(
        messages=(user("Do it"), assistant([RefusalBlock(text="I will not.")]), user("Why?"))
    ),
    "history of another provider": request(user("Weather?"), ELSEWHERE, result("s0001.tool.1"), user("And now?")),
    "a conversation whose beginning was cut": request(assistant([call("c1")]), result("c1"), user("Go on")),
}

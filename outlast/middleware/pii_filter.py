"""Rules of ``pii_redact`` applied to messages, completions and results: text changes, everything else stays.

Ids, signatures, media data and the order of blocks are never touched. What a provider signed or sealed (reasoning,
blocks that only it can read) cannot be edited: it is left, or dropped whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from outlast.errors import ToolRejection, stamp_retryable
from outlast.growing import grown
from outlast.messages import AnyBlock, Json, Message, OpaqueBlock, ReasoningBlock, TextBlock
from outlast.middleware.pii_rules import Rules
from outlast.model import Completion
from outlast.tools import ToolCall, ToolResult

Blocked = Counter[str]
"""How many values the ``block`` strategy found, by type."""


@dataclass(frozen=True, eq=False)
class PiiFilter:
    """Which rules apply where.

    Attributes:
        input: Texts of users.
        output: Texts of the model.
        results: Results of tools.
        args: Arguments of tool calls.
        sealed: What cannot be edited and holds a match of these is dropped, instead of left.
    """

    input: Rules
    output: Rules
    results: Rules
    args: Rules
    sealed: Rules

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Every message, by its role; the developer's system message stays.

        Raises:
            ToolRejection: A value of a user or of the model is blocked; the text has types and counts only.
        """
        return grown(self, messages, (), self._more)

    def _more(self, before: tuple[Message, ...], messages: Sequence[Message]) -> tuple[Message, ...]:
        return (*before, *map(self._message, messages))

    def _message(self, message: Message) -> Message:
        if message.role == "system":
            return message
        rules = {"user": self.input, "assistant": self.output, "tool": self.results}[message.role]
        blocked = Blocked()
        blocks = tuple(self._blocks(message.blocks, rules, blocked))
        if blocked and message.role == "tool":
            blocks = tuple(_withheld_block(block, blocked) for block in message.blocks)
        elif blocked:
            raise refusal("a message to the model" if message.role == "user" else "an answer of the model", blocked)
        return message if blocks == message.blocks else message.model_copy(update={"blocks": blocks})

    def completion(self, completion: Completion) -> Completion:
        """What the model answered.

        Raises:
            ToolRejection: As :meth:`messages`.
        """
        message = self._message(completion.message)
        return completion if message is completion.message else completion.model_copy(update={"message": message})

    def result(self, result: ToolResult) -> ToolResult:
        """What a tool answered; a blocked value makes it a rejection without the value (AC-81)."""
        blocked = Blocked()
        if isinstance(result.content, str):
            content: Any = self.results.redact([result.content], blocked)[0]
        else:
            content = tuple(self._blocks(result.content, self.results, blocked))
        if blocked:
            return result.replace(content=_withheld(result.name, blocked), is_error=True, status="rejected")
        return result if content == result.content else result.replace(content=content)

    def check_args(self, call: ToolCall, *, search: bool = True) -> None:
        """Raise ToolRejection where the arguments hold a blocked value, or had one taken out of them."""
        blocked = Blocked()
        if search:
            redact_json(call.args, self.args, blocked)
        text = json.dumps(call.args, ensure_ascii=False)
        for rule in self.args.rules:
            if rule.strategy == "block":
                blocked[rule.pii_type] += text.count(rule.placeholder)
        if +blocked:
            raise refusal(f"the arguments of {call.name}", +blocked)

    def _blocks(self, blocks: Sequence[AnyBlock], rules: Rules, blocked: Blocked) -> Iterator[AnyBlock]:
        for kind, group in groupby(blocks, attrgetter("kind")):
            run = list(group)
            if kind == "text":  # they are read as one text
                texts = rules.redact([block.text for block in run if block.kind == "text"], blocked)
                for block, text in zip(run, texts, strict=True):
                    yield _updated(block, {"text": text, **_lists(block, rules, blocked)}, rules, blocked)
                continue
            for block in run:
                kept = self._block(block, rules, blocked)
                if kept is not None:
                    yield kept

    def _block(self, block: AnyBlock, rules: Rules, blocked: Blocked) -> AnyBlock | None:
        match block.kind:
            case "tool_call":
                return _updated(
                    block, {"raw_args": redact_json_text(block.raw_args, self.args, Blocked())}, rules, blocked
                )
            case "tool_result":
                content = tuple(self._blocks(block.content, rules, blocked))
                args = block.executed_args and redact_json_text(block.executed_args, self.args, Blocked())
                return _updated(block, {"content": content, "executed_args": args}, rules, blocked)
            case "media":
                name = block.name and rules.redact([block.name], blocked)[0]
                return _updated(block, {"name": name}, rules, blocked)
            case "refusal":
                return _updated(block, {"text": rules.redact([block.text], blocked)[0]}, rules, blocked)
            case "reasoning" if not (block.signature or block.encrypted or block.redacted):
                text = rules.redact([block.text], blocked)[0]
                return _updated(block, {"text": text, **_lists(block, rules, blocked)}, rules, blocked)
            case "reasoning" | "opaque":
                return self._sealed(block, rules, blocked)
        return block

    def _sealed(self, block: ReasoningBlock | OpaqueBlock, rules: Rules, blocked: Blocked) -> AnyBlock | None:
        """Never edited (AC-85)."""
        texts = [block.text, *block.summary] if block.kind == "reasoning" else [block.raw]
        found = [redact_json_text(text, rules, blocked) for text in texts] != texts
        dropped = found and [redact_json_text(text, self.sealed, Blocked()) for text in texts] != texts
        return None if dropped else block


def _lists(block: AnyBlock, rules: Rules, blocked: Blocked) -> dict[str, tuple[str, ...]]:
    """The lists of texts that a block has: citations, which are JSON, and summaries."""
    if block.kind == "text" and block.citations:
        return {"citations": tuple(redact_json_text(item, rules, blocked) for item in block.citations)}
    if block.kind == "reasoning" and block.summary:
        return {"summary": tuple(rules.redact([item], blocked)[0] for item in block.summary)}
    return {}


def _updated(block: AnyBlock, changes: dict[str, Any], rules: Rules, blocked: Blocked) -> AnyBlock:
    """The block with these fields; the same object where nothing changes."""
    if block.extra:
        changes["extra"] = redact_json_text(block.extra, rules, blocked)
    if all(getattr(block, name) == value for name, value in changes.items()):
        return block
    return block.model_copy(update=changes)


def redact_json_text(text: str, rules: Rules, blocked: Blocked) -> str:
    """JSON text with its values and keys redacted; the same text, to the byte, where nothing is found."""
    if not rules.rules:
        return text
    try:
        value = json.loads(text)
        changed = redact_json(value, rules, blocked)
    except (ValueError, RecursionError):
        return rules.redact([text], blocked)[0]
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def redact_json(value: Json, rules: Rules, blocked: Blocked) -> Json:
    """A JSON value with every text in it redacted, keys and whole numbers too."""
    if isinstance(value, str):
        return rules.redact([value], blocked)[0]
    if isinstance(value, int) and not isinstance(value, bool):
        [text] = rules.redact([str(value)], blocked)
        return value if text == str(value) else text
    if isinstance(value, dict):
        return {rules.redact([key], blocked)[0]: redact_json(item, rules, blocked) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_json(item, rules, blocked) for item in value]
    return value


def refusal(what: str, blocked: Blocked) -> ToolRejection:
    """Types and counts, never a value; not to be retried."""
    return stamp_retryable(ToolRejection(f"PII blocked: {what} held {_counts(blocked)}"), False)


def _withheld(tool: str, blocked: Blocked) -> str:
    return f"PII blocked: {tool} ran, but its result is withheld: it held {_counts(blocked)}"


def _withheld_block(block: AnyBlock, blocked: Blocked) -> AnyBlock:
    if block.kind != "tool_result":
        return block
    content = (TextBlock(text=_withheld(block.name, blocked)),)
    return block.model_copy(update={"content": content, "is_error": True, "status": "rejected"})


def _counts(blocked: Blocked) -> str:
    return ", ".join(f"{pii_type} ({count})" for pii_type, count in sorted(blocked.items()))

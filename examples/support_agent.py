"""A support agent: looks up an order, refunds it once a person has approved, and writes the reply.

``outlast dev examples/support_agent.py`` runs it. The model is ``SUPPORT_MODEL``: ``openai:gpt-5``,
``anthropic:claude-sonnet-4-5``, ``gemini:gemini-2.5-pro``, ``ollama:qwen3``, or a local llama.cpp server.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from outlast import Agent, AgentOptions, ToolContext, tool
from outlast.middleware import human_in_the_loop
from outlast.model import ModelSettings

MODEL = os.environ.get("SUPPORT_MODEL", "llamacpp:local")

_ORDERS = {
    "A-1001": {"item": "espresso cups", "paid": 12.50, "note": "arrived broken"},
    "B-2002": {"item": "oak tray", "paid": 40.00, "note": "late by two days"},
}


def _ledger() -> Path:
    return Path(os.environ.get("SUPPORT_LEDGER", ".outlast/refunds.jsonl"))


@tool
def look_up_order(order_id: str) -> str:
    """Look up an order by its id.

    Args:
        order_id: Like A-1001.
    """
    order = _ORDERS.get(order_id)
    if order is None:
        return f"There is no order {order_id}."
    paid = f"{order['paid']:.2f}"
    return f"Order {order_id}: {order['item']}, paid {paid}, {order['note']}. Refundable: {paid}."


@tool(idempotent=False)
def refund_order(order_id: str, amount: float, context: ToolContext) -> str:
    """Refund an amount of an order to the customer.

    Args:
        order_id: Like A-1001.
        amount: In euros.
    """
    line = {"order": order_id, "amount": amount, "key": context.idempotency_key}
    path = _ledger()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")
    return f"Refunded {amount:.2f} for order {order_id}."


support = Agent(
    AgentOptions(
        name="support",
        model=MODEL,
        instructions=(
            "You are a support agent of a shop. First look up the order. If the customer deserves a refund, refund the "
            "refundable amount. When the refund is done, write a short, kind reply to the customer."
        ),
        tools=[look_up_order, refund_order],
        middleware=[human_in_the_loop({"refund_order": {"allowed_decisions": ["approve", "edit", "reject"]}})],
        settings=ModelSettings(temperature=0.0, max_output_tokens=200),
    )
)

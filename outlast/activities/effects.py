"""The activity ``side_effect``: runs a ``@side_effect`` function that a hook called."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_json
from temporalio import activity
from temporalio.common import RawValue

from outlast.activities.failures import raise_setup_failure, raise_tool_failure, refuse_unreadable
from outlast.activities.heartbeats import heartbeats
from outlast.activities.models import json_value
from outlast.activities.sizes import max_effect_bytes, too_large
from outlast.effects import find_effect
from outlast.messages import Json

SIDE_EFFECT = "side_effect"


class EffectInput(BaseModel):
    """The one argument of ``side_effect``: ``module:qualname`` and JSON arguments."""

    function: str
    args: tuple[Json, ...] = ()
    keywords: dict[str, Json] = Field(default_factory=dict)


@activity.defn(name=SIDE_EFFECT)
async def run_side_effect(call: Any) -> RawValue:  # noqa: ANN401 - decoded JSON
    """Run the function here, on the worker."""
    refuse_unreadable(call)
    effect_input = EffectInput.model_validate(call)
    try:
        effect = find_effect(effect_input.function)
    except LookupError as error:
        raise_setup_failure(f"side effect {effect_input.function}", str(error))
    try:
        async with heartbeats():
            result = to_json(await effect.run(effect_input.args, effect_input.keywords))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        raise_tool_failure(error)
    if len(result) > max_effect_bytes():
        raise_setup_failure(f"side effect {effect_input.function}", too_large("its result", len(result)))
    return json_value(result)

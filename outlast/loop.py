"""The agent loop. Everything durable about it is in :class:`~outlast.state.RunState`; it may be entered again anywhere.

model turn:  before_model -> wrap_model around the call -> after_model -> transcript
tool turn:   before_tool per call -> decisions -> around_tool around the bodies -> after_tool -> transcript
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import traceback
from typing import NoReturn

from pydantic import ValidationError

from outlast.agent import Agent
from outlast.batch import run_batch
from outlast.errors import AgentError, HookFailure, ModelError, ToolRejection, clean_text
from outlast.events import PauseInfo
from outlast.execution import Execution, undone_on_failure
from outlast.messages import Json, user
from outlast.middleware.compose import (
    compose_model_call,
    describe,
    forget_where,
    run_after_model,
    run_before_model,
    where_of,
)
from outlast.model import Completion
from outlast.state import check_json

MAX_OUTPUT_RETRIES = 2
OVER = ("completed", "failed", "cancelled")


async def run_steps(run: Execution) -> None:
    """Turn after turn, until the model asks for no more tools.

    Raises:
        AgentError: The run is over, on purpose.
        Exception: Anything else; the run can be entered again at the same place.
    """
    state, options = run.state, run.agent.options
    while True:
        run.check_cancelled()
        if state.batch is None:
            if state.draft is None:
                await run.runtime.between_steps()
                run.take_inbox()
                if state.step >= options.max_steps:
                    raise AgentError(
                        "MAX_STEPS",
                        f"the run of {run.agent.name!r} used its {options.max_steps} steps without finishing; "
                        "raise AgentOptions.max_steps, or look at the transcript for a loop",
                    )
            completion = await model_turn(run)
            run.append(completion.message)
            if completion.message.text:
                run.record("text", text=completion.message.text)
            state.draft = None
            if completion.message.tool_calls:
                state.batch = run.open_batch(completion.message, cut_off=completion.finish == "length")
            elif completion.finish == "pause":
                state.step -= 1  # the provider wants its own turn back as it is: the same step goes on
            elif finish(run, completion):
                return
        if state.batch is not None:
            await run_batch(run)


async def model_turn(run: Execution) -> Completion:
    """One model call inside its hooks. What the model answered is kept while ``after_model`` runs."""
    state = run.state
    if state.draft is None:
        state.step += 1
        run.ids.start_step()
        run.record("step.started")
        ctx = run.context()
        try:
            with undone_on_failure(run, "a before_model or wrap_model hook"):
                request = await run_before_model(run.middleware, run.agent.request(state), ctx)
                draft = await compose_model_call(run.middleware, run.model_step, ctx)(request)
            run.check_cancelled()
        except BaseException:  # the whole turn is repeated after a resume: as if it had not begun
            state.step -= 1
            raise
        state.draft = draft
        run.record("model.completed", model=draft.model, finish=draft.finish)
    with undone_on_failure(run, "an after_model hook"):
        completion = await run_after_model(run.middleware, state.draft, run.context())
    return completion.model_copy(update={"message": run.localise(completion.message)})


def finish(run: Execution, completion: Completion) -> bool:
    """Take the final answer, unless a message arrived meanwhile or the answer does not fit the format."""
    if run.state.inbox:
        return False
    text = completion.message.text
    run.state.finish = completion.finish
    if run.agent.response_format is None:
        run.state.output = text
        return True
    try:
        run.state.output = parse_output(run.agent, text)
    except ValueError as error:
        if run.state.output_retries >= MAX_OUTPUT_RETRIES:
            raise AgentError("OUTPUT_INVALID", f"the final answer does not fit the response format: {error}") from error
        run.state.output_retries += 1
        run.append(user(f"Your answer does not fit the required format: {error}. Answer again, with the JSON alone."))
        return False
    return True


def parse_output(agent: Agent, text: str) -> Json:
    """The final text as JSON that fits the agent's response format.

    Raises:
        ValueError: It is not JSON, or does not fit; the message is short enough for a model to act on.
    """
    try:
        if agent.output_type is None:
            value = json.loads(text)
        else:
            value = agent.output_type.dump_python(agent.output_type.validate_json(text), mode="json")
        check_json(value, "answer")
    except ValidationError as error:
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        ) from error
    except (TypeError, RecursionError) as error:
        raise ValueError(describe(error)) from None
    return value


async def drive(run: Execution) -> None:
    """Run to the end. Whatever a hook or a provider does, the run finishes, parks or is cancelled; it never sticks.

    Raises:
        asyncio.CancelledError: The run was cancelled; its open calls are answered.
    """
    run.enter()
    state = run.state
    while state.status not in OVER:
        try:
            await run_steps(run)
            state.status = "completed"
        except (AgentError, ToolRejection) as error:
            if run.runtime.cancel_requested:
                _cancelled(run)
            # A refusal that reaches this far is a model hook's: there is no call to answer (AC-81).
            refused = issubclass(type(error), ToolRejection)
            end(run, "REJECTED" if refused else getattr(error, "code", ""), getattr(error, "message", ""))
        except (Exception, asyncio.CancelledError) as error:
            if run.runtime.cancel_requested:
                _cancelled(run)
            await _park(run, error)
            if state.failure is not None:  # nobody resumed it in time
                end(run, *state.failure)
    run.record("run.finished", status=state.status)


def _cancelled(run: Execution) -> NoReturn:
    end(run, "CANCELLED", "the run was cancelled")
    raise asyncio.CancelledError


def end(run: Execution, code: str, message: str) -> None:
    """Close a run that will give no answer: open calls get their results, so that the transcript stays sound."""
    state = run.state
    state.failure = (clean_text(code, 100) or "AGENT_ERROR", clean_text(message))
    state.status = "cancelled" if code == "CANCELLED" else "failed"
    with contextlib.suppress(TypeError):  # a result may hold no more than JSON
        run.memory.check()
    state.interrupted = tuple(state.pending)
    state.pending.clear()
    state.draft = None
    state.pause = None
    if state.batch is not None:
        run.close_batch(state.batch)


async def _park(run: Execution, error: BaseException) -> None:
    """Park the run, or end it where the agent's options say so."""
    pause = _pause_info(run, error)
    if run.agent.options.on_error == "fail":
        end(run, pause.code, f"{pause.where}: {pause.error}")
        return
    run.state.pause = pause
    run.state.status = "paused"
    run.record("run.paused", where=pause.where, error=pause.error, code=pause.code)
    await run.runtime.park(pause)


def _pause_info(run: Execution, error: BaseException) -> PauseInfo:
    provider = issubclass(type(error), ModelError)
    place = f"model call of step {run.state.step + 1}" if provider else f"step {run.state.step}"
    info = PauseInfo(
        where=where_of(error, place),
        error=error.error if isinstance(error, HookFailure) else describe(error),
        code="MODEL_ERROR" if provider else "HOOK_ERROR",
        since=run.runtime.now(),
    )
    forget_where(error)
    try:
        lines = traceback.format_exception(error)
    except BaseException as second:  # it reads attributes of the error, which may raise whatever they like
        lines = [f"(its traceback could not be read: {type(second).__name__})"]
    return info.replace(traceback=clean_text("".join(lines[-12:])))

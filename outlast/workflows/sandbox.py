"""Temporal's sandbox, without entering it for questions that only Temporal's own code answers.

Before and after every workflow task the SDK asks, for each payload and each of six passes, whose it is; each time it
enters the sandbox, which is a seventh of a worker's processor time. The answer is computed by the SDK from the SDK's
own data, so no user's code is let out by asking directly.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker._command_aware_visitor import CommandInfo
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox._runner import _Instance

_INNER = "__temporal_in_sandbox"


class GuardedRunner(SandboxedWorkflowRunner):
    """Runs workflows as its base class does."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Temporal calls this for every run that comes into memory."""
        return _GuardedInstance(det, self.runner_class, self.restrictions)


class RawInputRunner(UnsandboxedWorkflowRunner):
    """Runs workflows inside the sandbox; those that say so get their arguments undecoded.

    Temporal decodes arguments before any of our code runs: bytes that nobody can read would make a start stick.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Temporal calls this for every run that comes into memory."""
        if getattr(det.defn.cls, "takes_raw_input", False):
            det = dataclasses.replace(det, defn=dataclasses.replace(det.defn, name=None))
        return super().create_instance(det)


class _GuardedInstance(_Instance):
    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """One workflow task. What would end the process fails the task alone; a guarded hook parks before this."""
        try:
            return super().activate(act)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"a task that a hook started raised {type(error).__name__}: {error}") from None

    def get_serialization_context(self, command_info: CommandInfo | None) -> SerializationContext | None:
        inner: Any = self.globals_and_locals.get(_INNER)
        if not hasattr(inner, "get_serialization_context"):
            return super().get_serialization_context(command_info)
        context: SerializationContext | None = inner.get_serialization_context(command_info)
        return context

    def get_external_store_context(self, command_info: CommandInfo | None) -> StorageDriverStoreContext:
        inner: Any = self.globals_and_locals.get(_INNER)
        if not hasattr(inner, "get_external_store_context"):
            return super().get_external_store_context(command_info)
        context: StorageDriverStoreContext = inner.get_external_store_context(command_info)
        return context

"""What takes control back from workflow code and is nobody's to catch."""

from __future__ import annotations

from temporalio.workflow import ContinueAsNewError


def _sdk_signals() -> tuple[type[BaseException], ...]:
    """Classes by which the SDK takes control back from workflow code: eviction and the deadlock detector."""
    from temporalio.worker import _workflow, _workflow_instance

    names = ("_WorkflowBeingEvictedError", "_InterruptDeadlockError", "_DeadlockError")
    found = (getattr(module, name, None) for module in (_workflow, _workflow_instance) for name in names)
    return tuple(kind for kind in found if isinstance(kind, type))


CONTROL_ERRORS: tuple[type[BaseException], ...] = (ContinueAsNewError, *_sdk_signals())
"""Continue-as-new, eviction, and the deadlock detector's interrupt."""

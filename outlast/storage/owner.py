"""Whose a stored payload is: the run (or the single activity) that it is an input or an output of."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from temporalio.converter import (
    ActivitySerializationContext,
    SerializationContext,
    StorageDriverActivityInfo,
    StorageDriverWorkflowInfo,
    WorkflowSerializationContext,
)

REPLAY_NAMESPACE: Final = "ReplayNamespace"
"""What Temporal's ``Replayer`` calls the namespace unless it is told one."""

_SCHEDULED = re.compile(r"-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


@dataclass(frozen=True)
class Owner:
    """Who may read a stored payload.

    Attributes:
        namespace: Of the run.
        kind: ``workflow``, or ``activity`` for one that no workflow started.
        id: The workflow's id, or the activity's.
    """

    namespace: str
    kind: str
    id: str

    @classmethod
    def of_context(cls, context: SerializationContext) -> Self | None:
        """The owner of what is being converted, the same on both sides; None where Temporal does not say (Nexus)."""
        if isinstance(context, ActivitySerializationContext) and not context.workflow_id:
            return cls(context.namespace, "activity", context.activity_id or "")
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return cls(context.namespace, "workflow", context.workflow_id or "")
        return None

    @classmethod
    def of_target(cls, target: StorageDriverActivityInfo | StorageDriverWorkflowInfo | None) -> Self | None:
        """The owner as a storage driver is told it; a second best, since a child's result counts as its parent's."""
        if target is None or not target.id:
            return None
        return cls(
            target.namespace, "workflow" if isinstance(target, StorageDriverWorkflowInfo) else "activity", target.id
        )

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that stand for the owner: short, and fit for the name of a directory."""
        return _fingerprint(self.namespace, self.kind, self.id)

    @property
    def is_replay(self) -> bool:
        """Whether this is a replay of a stored history: it writes nothing that anybody reads."""
        return self.namespace == REPLAY_NAMESPACE

    def may_read(self, namespace: str, fingerprint: str) -> bool:
        """Whether an object stored for that owner is this one's.

        A run that a schedule started may also read what was stored for the schedule, whose id is the run's without
        the time at its end.
        """
        if namespace != self.namespace and not self.is_replay:
            return False
        ids = (self.id, _SCHEDULED.sub("", self.id))
        return any(_fingerprint(namespace, self.kind, name) == fingerprint for name in ids)


NOBODY: Final = Owner("", "", "")
"""Owns what was stored by code that did not say for whom; everybody may read it."""


def _fingerprint(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:32]

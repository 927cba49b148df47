"""What Temporal carries, and the checks that a client makes before it sends anything.

Over these limits the server refuses a value, makes the run stick, or terminates it; so nothing that large is sent.
"""

from __future__ import annotations

from outlast.errors import OutlastError, clean_text

MAX_INLINE_BYTES = 1_900_000
"""All arguments of one command together, without storage. The server's own limit is 2 MB."""

MAX_MESSAGE_BYTES = 400_000
"""What a client, or another run, may tell a run, without storage: ten such messages fit into one request of 4 MB."""

MAX_RUN_ID_BYTES = 900
"""A run's id. The server's limit is 1,000 bytes; sub-agents add a little to the id of their parent."""


def check_run_id(run_id: str) -> None:
    """Raise ValueError where the server would not take this id, or not those of the run's sub-agents."""
    size = len(run_id.encode("utf-8", "replace"))
    if not run_id or size > MAX_RUN_ID_BYTES:
        raise ValueError(
            f"a run's id has 1 to {MAX_RUN_ID_BYTES} bytes, not {size:,}: {clean_text(run_id, 80)!r}. "
            "Choose a shorter one, or give none"
        )


def check_sent(size: int, limit: int, what: str) -> None:
    """Refuse what would be refused by the server, or hold up the run.

    Raises:
        OutlastError: It is larger; the message says by how much, and the way out.
    """
    if size > limit:
        raise OutlastError(
            f"{what} has {size:,} bytes; without storage {limit:,} can be sent. Nothing was sent. "
            "Send less, or configure storage (OUTLAST_STORAGE=dir:///path) on clients and workers"
        )

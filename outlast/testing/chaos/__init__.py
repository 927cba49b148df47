"""Chaos: runs under faults, checked against a ledger that Temporal knows nothing of. ``outlast chaos`` runs it.

The agent (:mod:`.agents`) calls a model over real HTTP, uses parallel idempotent tools, tools that may run at most
once, approvals, a sub-agent, storage and many continue-as-news. Meanwhile workers and the server are killed,
connections are cut, the model fails, storage is away, full or slow, and strangers send rubbish. Every fault is counted,
and injected when the ledger has come to a place, not after a time.
"""

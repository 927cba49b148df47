"""One worker per peer: the same script, each written the way its own documentation does it."""

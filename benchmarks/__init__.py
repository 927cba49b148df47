"""What outlast costs, measured against a bare Temporal workflow: ``make bench``, or ``python -m benchmarks overhead``."""

"""What outlast costs, against a bare Temporal workflow: ``make bench``, or ``python -m benchmarks overhead``."""

"""`python -m examples.local_model`: fetch the model ahead of time, and say where it is."""

from __future__ import annotations

import sys

from .weights import WeightsError, find_model

try:
    print(find_model().path)
except WeightsError as error:
    sys.exit(str(error))

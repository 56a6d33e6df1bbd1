"""For authors of methods: a small stream to try them on, and the checks that every method must pass.

from acr.testing import check_method
print(check_method(MyMethod))
"""

from acr.testing.conformance import CHECKS, ConformanceReport, check_method
from acr.testing.toy_data import toy_data

__all__ = ["CHECKS", "ConformanceReport", "check_method", "toy_data"]

"""Fixtures of all tests, and how hypothesis searches: the same examples each time, however busy the machine is.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.services.fixtures"]

settings.register_profile("same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

"""Fixtures of all tests."""

pytest_plugins = ["tests.services.fixtures"]

"""The archives that carry steps' code."""

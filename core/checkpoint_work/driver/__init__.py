"""The driver of an attempt."""

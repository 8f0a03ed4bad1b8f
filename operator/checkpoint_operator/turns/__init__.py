"""Whose turn it is, where only so many may go at once."""

"""Removal of what ended epochs have staged and nobody needs any more."""

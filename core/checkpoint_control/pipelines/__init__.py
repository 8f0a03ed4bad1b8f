"""Writes of several stages: which of them are done, which go on, and which are done anew."""

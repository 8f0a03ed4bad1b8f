"""The jobs of the others, each in a process of its own.

A job's one argument is a JSON file (`job.py`). Run twice with the same file, the second resumes what the first has left, as far
as the engine can.
"""

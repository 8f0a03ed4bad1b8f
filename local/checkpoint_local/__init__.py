"""Control on one machine: drivers as processes, and the command line."""

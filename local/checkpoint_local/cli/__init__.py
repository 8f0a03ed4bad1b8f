"""The command line `checkpointed-write`."""

"""The loop over one write: observe, decide, act, again."""

"""The input of an epoch or a stage: fixed once, the same for every attempt."""

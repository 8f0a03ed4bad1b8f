"""What many tests need: places to write to, inputs, drivers that run in this process."""

"""What a driver and its tasks do: fix the input, plan, run the steps, stage, seal. Knows no Spark, and commits nothing."""

"""What speeds up the processes of Spark, and which GPUs they have."""

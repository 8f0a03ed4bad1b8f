"""What runs in the Spark driver and its executors: it stages and seals, and never commits. Knows no catalog and no Kubernetes."""

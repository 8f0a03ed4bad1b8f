"""The operator in a cluster: Kubernetes, pods, status. What it does for a write is in checkpoint_control."""

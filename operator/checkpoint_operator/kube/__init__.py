"""The Kubernetes API, and its client."""

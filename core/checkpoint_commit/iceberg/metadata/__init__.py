"""What a commit writes for an Iceberg snapshot: entries, manifests, their list, and the snapshot."""

"""The operator in a cluster: watches, pods, status. Only `watching` knows Kopf, only `kube` knows the Kubernetes client."""

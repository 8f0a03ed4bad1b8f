"""The operator in a cluster. Only `watch.watching` knows Kopf, and only `kube.client` the Kubernetes client."""

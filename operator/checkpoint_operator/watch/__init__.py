"""Watches of the cluster: what is known of its objects, and which of them are to be worked on."""

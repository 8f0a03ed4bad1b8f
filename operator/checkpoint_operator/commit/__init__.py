"""What commits of every format share: what is committed, how a commit can end, and whether its files are there."""

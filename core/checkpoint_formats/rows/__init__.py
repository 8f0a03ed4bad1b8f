"""What the readers and stagers of every format do with rows."""

"""What a checkpoint store holds, read for people: everything that can be read is shown, and what cannot is named."""

"""Steps in a process of their own, where what ends a process costs no more than what that one had begun."""

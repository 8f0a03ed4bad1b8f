"""What staged files of a Lance dataset say of themselves, and what may be said of them."""

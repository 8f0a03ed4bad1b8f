"""The user's steps: how they are loaded and called, what they may give, and what becomes of rows on which they raise."""

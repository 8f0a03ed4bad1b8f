"""The one function of the comparison, which each tool calls for each row. It needs nothing but Python."""

import os
import time

_CALLS = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def embed(text: str) -> list[float]:
    """Return the share of each vowel in the text. Each call adds a byte to the file `calls`."""
    os.write(_CALLS, b".")
    time.sleep(0.0005)
    if text == os.environ.get("FAILING"):
        raise ValueError(f"no vector for: {text}")
    return [text.count(vowel) / len(text) for vowel in "aeiou"]

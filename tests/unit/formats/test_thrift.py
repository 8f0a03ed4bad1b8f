"""Numbers of a Parquet footer, which anybody may have written."""

from __future__ import annotations

import pytest

from checkpoint_formats.files.parquet.thrift import varint


def test_a_number_ends_with_its_first_byte_below_128() -> None:
    assert varint(b"\xff\xff\x03\x7f", 1) == (0xFF & 127 | 3 << 7, 3)
    assert varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)


def test_a_number_that_is_longer_than_any_is_none_and_is_not_put_together() -> None:
    """A megabyte of them would take minutes."""
    with pytest.raises(ValueError, match="too long"):
        varint(b"\xff" * 10 + b"\x01", 0)

"""What a step can ask about the row that it is called with."""

from __future__ import annotations


def row_key() -> str:
    """Return a key of the row that the calling row step has been given: 32 hexadecimal digits.

    It is the same whenever this step of this write is called for this row, in a later try, attempt or epoch, in a preview, or in
    another write of this name and checkpoint, so that a service
    that takes idempotency keys does the work once. It follows from the source row (the file, its version and the position in it;
    or the values of the key columns) and, where a row step before has made several rows of that one, from the place among these.
    RuntimeError elsewhere than in a call of a row step, and for rows that a batch step has made.
    """
    from checkpoint_work.steps import row_keys

    return row_keys.row_key()

"""What a step may raise to say what becomes of its row. Any other exception is judged by what it is: see `retry` in the guide."""

from __future__ import annotations

from typing import ClassVar


class Retryable(Exception):
    """The call failed for a reason outside, and may succeed later: it is tried again, as often as the step's `retry` says.

    `retry_after`: in so many seconds; without it the pauses of the step's `retry` count.
    """

    is_passing: ClassVar[bool] = True

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RetryAfter(Retryable):
    """The same, in so many seconds, but never later than the step's `retry.mostDelay`."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"to be tried again in {seconds:g} s", retry_after=seconds)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float | None, str]]:
        # Exceptions are carried between processes, by default with the message alone.
        return type(self), (self.retry_after, str(self))


class RowError(Exception):
    """The row is at fault: it is not tried again, whatever `retry.on` says, and `onRowError` says what becomes of it."""

    is_passing: ClassVar[bool] = False


# They are known, in messages and in quarantined rows, by the name under which they are imported.
for _kind in (Retryable, RetryAfter, RowError):
    _kind.__module__ = "checkpointed_writes"

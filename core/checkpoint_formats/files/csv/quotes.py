"""Fields in quotes that go on after their closing quote, as `"say \\"hi\\""` does where nobody has said that \\ is an escape.

pyarrow reads such a field as `say \\hi\\""`, and says nothing.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from checkpoint_formats.files.csv.records import quoted_pattern, unquoted_pattern
from checkpoint_protocol.manifest.sources.source import CsvOptions

#: What Spark, MySQL and OpenCSV write before a quote.
_BACKSLASH: Final = b"\\"


class Quotes:
    """Tells whether fields end with their closing quotes."""

    def __init__(self, options: CsvOptions) -> None:
        self._quote = options.quote.encode()
        self._escape = options.escape.encode()
        if not self._quote:
            return
        quoted, quote, delimiter = quoted_pattern(options), re.escape(self._quote), re.escape(options.delimiter.encode())
        field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + unquoted_pattern(options) + rb")"
        self._records = re.compile(rb"(?:" + field + rb"(?:" + delimiter + field + rb")*+[\r\n])*+")
        self._goes_on = re.compile(rb"(?:" + field + delimiter + rb")*+(" + quoted + rb")(?!" + delimiter + rb"|[\r\n]|\Z)")

    def check(self, data: bytes, begin: int, end: int) -> int:
        """Return where the first record begins that has no end in the data. ArrowInvalid if text follows the quote of a field.

        A field without a closing quote is no matter of this check.
        """
        if not self._quote or data.find(self._quote, begin, end) < 0:
            return end
        records = self._records.match(data, begin, end)
        rest = begin if records is None else records.end()
        if rest < end and (found := self._goes_on.match(data, rest, end)) is not None:
            is_escaped = self._escape != _BACKSLASH and found[1][-2:-1] == _BACKSLASH
            if is_escaped:
                hint = "as \\ stands before it, set source.files.csv.escape: '\\'"
            else:
                hint = "a quote in a field is doubled, or has source.files.csv.escape before it"
            raise pa.ArrowInvalid(f"text follows the closing quote of a field: {hint}")
        return rest

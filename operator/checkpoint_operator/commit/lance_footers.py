"""What the data files of a Lance dataset say of themselves in their footers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from lance.file import LanceFileSession

from checkpoint_formats.lance.datasets import is_not_found
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line


class LanceFooters:
    """Of one dataset. The connection to its store is made once: for one file it would cost more than the footer."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._folder = f"{uri}/data"
        self._options = dict(options) or None

    @cached_property
    def _session(self) -> LanceFileSession:
        return LanceFileSession(self._folder, storage_options=self._options)

    def count_rows(self, path: str) -> int:
        """Return the rows of a data file, in two requests. NeedsChange if it is gone, or no file of Lance's."""
        whole = f"{self._folder}/{path}"
        try:
            return int(self._session.open_reader(path).num_rows())
        except (ValueError, OSError) as error:
            text = one_line(error)
            if is_not_found(error):
                raise NeedsChange(reasons.STAGED_FILE_MISSING, f"the staged file {whole} is gone") from error
            if "LanceError(IO)" in text:
                raise Retryable(reasons.STORE_UNAVAILABLE, f"the staged file {whole} could not be read: {text}") from error
            raise NeedsChange(
                reasons.STAGED_RESULT_REFUSED, f"the staged file {whole} is no data file of Lance: {text}"
            ) from error

"""CSV whose delimiter is another one than the source says: all of the header is one name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpoint_formats.files.csv.reader import likely_delimiter
from checkpoint_protocol.errors import NeedsChange
from tests.support.reading import open_reader


@pytest.mark.parametrize(("delimiter", "said"), [(";", "';'"), ("\t", '"\\t"'), ("|", "'|'")])
@pytest.mark.parametrize("asked", [{"columns": ["id"]}, {"types": {"id": "int64"}}, {"where": "id = 1"}])
def test_a_column_that_is_missing_because_of_the_delimiter_is_refused_with_the_delimiter(
    tmp_path: Path, delimiter: str, said: str, asked: Mapping[str, Any]
) -> None:
    (tmp_path / "x.csv").write_text(f"id{delimiter}name\n1{delimiter}a\n")

    with pytest.raises(NeedsChange) as refused:
        open_reader("csv", **asked).describe([str(tmp_path)])
    assert f", or set source.files.csv.delimiter: {said} if that is between the columns" in refused.value.message

    _, schema = open_reader("csv", options={"delimiter": delimiter}, **asked).describe([str(tmp_path)])
    assert "id" in schema.names


@pytest.mark.parametrize(
    ("names", "delimiter", "likely"),
    [
        (["id;name"], ",", "';'"),
        (["id,name"], ";", "','"),
        (["a;b|c;d"], ",", "';'"),
        (["id;name"], ";", None),
        (["id"], ",", None),
        (["a;b", "c"], ",", None),
        ([], ",", None),
    ],
)
def test_a_delimiter_is_likely_where_the_only_name_has_it(names: list[str], delimiter: str, likely: str | None) -> None:
    assert likely_delimiter(names, delimiter) == likely


def test_a_column_that_is_missing_beside_others_is_refused_without_a_delimiter(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,a;b\n1,2\n")

    with pytest.raises(NeedsChange) as refused:
        open_reader("csv", columns=["name"]).describe([str(tmp_path)])
    assert "delimiter" not in refused.value.message

"""JSON, one object a line."""

from __future__ import annotations

import datetime
import gzip
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_formats.files.json import reader as json_reader
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from tests.support.effort import examples
from tests.support.reading import Row, check_exactly_once, chunks_of, open_reader, read_whole, rows_of, scales, whole


def put(folder: Path, name: str, data: bytes | str) -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def read(*paths: str, **source: Any) -> list[Row]:
    reader = open_reader("json", **source)
    files, schema = reader.describe(paths)
    return read_whole(reader, files, schema)


def schema_of(*paths: str, **source: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in open_reader("json", **source).describe(paths)[1]}


def refusal(*paths: str, **source: Any) -> NeedsChange:
    with pytest.raises(NeedsChange) as refused:
        read(*paths, **source)
    return refused.value


_texts = st.none() | st.lists(st.sampled_from(["a", "é", "日", "\n", '"', "\\", "{", "}", " ", "x" * 150]), max_size=4).map(
    "".join
)
_nested = st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9), "y": _texts}), max_size=3)


@st.composite
def json_files(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    """A file with a number, a text and a list of objects in each row, and what is in it. The first row shows all fields."""
    rows: list[Row] = [{"n": 0, "text": "", "list": [{"x": 1, "y": "z"}]}]
    rows += [{"n": number, "text": draw(_texts), "list": draw(_nested)} for number in range(1, draw(st.integers(1, 10)))]
    parts = [draw(st.sampled_from(["", "\ufeff"]))]
    for row in rows:
        given = {name: value for name, value in row.items() if value is not None or draw(st.booleans())}
        if draw(st.booleans()):
            given["unknown" if row["n"] else "n"] = 0
        parts += [draw(st.sampled_from(["", "", "\n", " "])), json.dumps(given, ensure_ascii=draw(st.booleans()))]
        parts += [draw(st.sampled_from(["\n", "\r\n", " \n"]))]
    text = "".join(parts)
    return (text.rstrip() if draw(st.booleans()) else text).encode(), rows


@settings(deadline=None, max_examples=examples(200))
@given(file=json_files(), positions=st.lists(st.integers(0, 2_000), max_size=5), paces=scales, gzipped=st.booleans())
def test_every_row_comes_once_however_the_file_is_cut(
    file: tuple[bytes, list[Row]], positions: list[int], paces: list[float], gzipped: bool
) -> None:
    data, rows = file
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), "é #.json.gz", gzip.compress(data)) if gzipped else put(Path(folder), "é #.json", data)
        reader = open_reader("json", columns=["n", "text", "list"])
        (described,), schema = reader.describe([path])
        assert described.unit == ("records" if gzipped else "bytes")
        check_exactly_once(reader, described, schema, positions, paces, rows)


@pytest.mark.parametrize("scale", [1.0, 2**-20])
@pytest.mark.parametrize("first", ["", '{"a": 1}\n', " \n"])
def test_null_in_place_of_an_object_is_a_row_of_nulls(tmp_path: Path, scale: float, first: str) -> None:
    """By itself too, where pyarrow would end the process."""
    path = put(tmp_path, "x.json", f'{first}null\nnull\n{{"a": 2}}\nnull')
    reader = open_reader("json", types={"a": "int64"})
    (file,), schema = reader.describe([path])
    expected = [1, None, None, 2, None] if "a" in first else [None, None, 2, None]
    assert [row["a"] for row in rows_of(chunks_of(reader, file, whole(file), schema, [scale]))] == expected
    assert schema_of(path) == {"a": "int64"}


def test_types_are_inferred_over_the_first_files_at_any_depth(tmp_path: Path) -> None:
    put(tmp_path, "0.json", "\n")
    put(tmp_path, "1.json", '{"n": 1, "t": "2024-01-01", "l": [], "o": {"x": null}}')
    put(tmp_path, "2.json", '{"n": 1.5, "l": [null, [1]], "o": {"y": [{"z": true}]}, "new": null}')
    assert schema_of(str(tmp_path)) == {
        "n": "double",
        "t": "string",
        "l": "list<item: list<item: int64>>",
        "o": "struct<x: string, y: list<item: struct<z: bool>>>",
        "new": "string",
    }
    assert [row["n"] for row in read(str(tmp_path))] == [1.0, 1.5]


def test_types_that_are_given_win_and_add_columns(tmp_path: Path) -> None:
    path = put(
        tmp_path,
        "x.json",
        '{"z": 1, "d": "1.10", "day": "2024-01-02", "t": "10:11:12.5", "at": "2024-01-01T01:00:00+01:00"}\n'
        '{"z": 2, "later": 7}\n',
    )
    types = {
        "d": "decimal(5,2)",
        "day": "date",
        "t": "time",
        "at": "timestamp[us, UTC]",
        "later": "int8",
        "never": "string",
    }
    assert read(path, types=types) == [
        {
            "z": 1,
            "d": Decimal("1.10"),
            "day": datetime.date(2024, 1, 2),
            "t": datetime.time(10, 11, 12, 500_000),
            "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
            "later": None,
            "never": None,
        },
        {"z": 2, "d": None, "day": None, "t": None, "at": None, "later": 7, "never": None},
    ]
    assert list(schema_of(path, types=types)) == ["z", "d", "day", "t", "at", "later", "never"]


def test_columns_are_pruned_in_the_order_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "x.json", '{"a": 1, "b": "x", "c": 2}\n')
    assert [list(row.items()) for row in read(path, columns=["c", "a"])] == [[("c", 2), ("a", 1)]]


def test_column_that_is_not_in_the_first_rows_is_named(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.json", '{"a": 1}\n'), columns=["a", "x"])
    assert "has no column 'x' (it has a)" in error.message
    assert "source.files.types" in error.message


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"a": "text"}', "Column(/a) changed from number to string"),
        ('{"a": 1.5}', "couldn't parse:1.5"),
        ("{", "JSON parse error"),
        ("[1]", "changed from object to array"),
        ('"text"', "changed from object to string"),
        ('{"a": 1}{"a": 2}', "a line does not hold exactly one object"),
        ('{"a":\n1}', "JSON parse error"),
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_later_line_that_is_wrong_names_file_and_byte(tmp_path: Path, bad: str, problem: str, gzipped: bool) -> None:
    start = b'{"a": 1}\n' * 600_000
    data = start + f'{bad}\n{{"a": 2}}\n'.encode()
    path = put(tmp_path, "x.json.gz", gzip.compress(data, 1)) if gzipped else put(tmp_path, "x.json", data)
    error = refusal(path)
    assert error.reason == reasons.SOURCE_UNREADABLE
    for part in (path, f"line at byte {len(start)}", problem):
        assert part in error.message


def test_object_over_several_lines_is_refused_also_if_it_could_be_read(tmp_path: Path) -> None:
    assert "x.json: line at byte 9" in refusal(put(tmp_path, "x.json", '{"a": 1}\n{"a":\n2}\n')).message


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.json", b'{"a": "x"}\n{"a": "\xe9"}\n'))
    assert "line at byte 11" in error.message
    assert "UTF8" in error.message


def test_value_that_is_no_date_names_the_column(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, "x.json", '{"a": "2024-01-01"}\n{"a": "soon"}\n'), types={"a": "date"})
    assert "line at byte 20: column 'a'" in error.message
    assert "soon" in error.message


def test_time_with_a_zone_is_refused_where_the_type_has_none(tmp_path: Path) -> None:
    assert "zone" in refusal(put(tmp_path, "x.json", '{"a": "2024-01-01T00:00:00Z"}'), types={"a": "timestamp"}).message


def test_files_whose_fields_have_no_common_type_are_named(tmp_path: Path) -> None:
    put(tmp_path, "1.json", '{"a": 1}')
    put(tmp_path, "2.json", '{"a": "x"}')
    error = refusal(str(tmp_path))
    for part in ("1.json", "2.json", "/a"):
        assert part in error.message


def test_source_without_any_object_is_refused_because_its_columns_are_unknown(tmp_path: Path) -> None:
    path = put(tmp_path, "x.json", "\n{}\n")
    assert "the columns are not known" in refusal(path).message
    assert read(path, types={"a": "int64"}) == [{"a": None}]


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    for name, data in (("1.json", b""), ("2.json.gz", b""), ("3.json.gz", gzip.compress(b" \n")), ("4.json", b'{"a": 1}')):
        put(tmp_path, name, data)
    assert read(str(tmp_path)) == [{"a": 1}]


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_replaced_file_is_noticed_when_it_is_opened(tmp_path: Path, name: str) -> None:
    def data(number: int) -> bytes:
        text = f'{{"a": {number}}}\n'.encode()
        return gzip.compress(text) if name.endswith(".gz") else text

    path = put(tmp_path, name, data(1))
    reader = open_reader("json")
    (file,), schema = reader.describe([path])
    (tmp_path / "new").write_bytes(data(2))
    (tmp_path / "new").rename(path)
    with pytest.raises(NeedsChange) as noticed:
        chunks_of(reader, file, whole(file), schema)
    assert noticed.value.reason == reasons.SOURCE_CHANGED


LATE_LINE = '{"a": 1, "late": 2}\n'
LATE = "".join(json.dumps({"a": number, "pad": "x" * 1000}) + "\n" for number in range(5_000)) + LATE_LINE


def test_a_field_that_comes_up_after_the_sample_is_refused_and_not_dropped(tmp_path: Path) -> None:
    refused = refusal(put(tmp_path, "a.json", LATE))

    assert refused.reason == reasons.SOURCE_UNREADABLE
    assert "unexpected field" in refused.message
    assert f"line at byte {LATE.index(LATE_LINE)}" in refused.message
    assert "source.files.types" in refused.message


def test_a_field_that_comes_up_late_is_passed_over_where_columns_are_chosen_and_read_where_it_is_typed(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", LATE)

    assert read(path, columns=["a"])[-1] == {"a": 1}
    assert read(path, columns=["a", "late"], types={"late": "int64"})[-1] == {"a": 1, "late": 2}


@pytest.mark.parametrize(
    ("late", "name"),
    [
        ('{"a": 1, "late": 2}', "late"),
        ('{"pad": "", "u": {"x": 1, "y": 2}}', "u.y"),
        ('{"u": {"v": [{"w": 1, "z": 2}]}}', "u.v.z"),
    ],
)
@pytest.mark.parametrize("after", [0, 1, 1_000])
def test_a_field_that_comes_up_late_is_named_with_its_way_out(tmp_path: Path, late: str, name: str, after: int) -> None:
    known = json.dumps({"a": 1, "u": {"x": 1, "v": [{"w": 1}]}, "pad": "x" * 1000}) + "\n"

    refused = refusal(put(tmp_path, "a.json", known * 5_000 + late + "\n" + known * after))

    assert f"unexpected field {name!r}" in refused.message
    assert f"a.json: line at byte {5_000 * len(known)}" in refused.message
    assert "source.files.types" in refused.message


@pytest.mark.parametrize("mark", ["", "\ufeff", " \n"])
@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": 2}]', '[\n  {"a": 1},\n  {"a": 2}\n]\n', "[]", "[\n"])
@pytest.mark.parametrize("gzipped", [False, True])
def test_an_array_of_objects_is_refused_with_how_to_make_lines_of_it(tmp_path: Path, mark: str, text: str, gzipped: bool) -> None:
    data = (mark + text).encode()
    path = put(tmp_path, "x.json.gz", gzip.compress(data, mtime=0)) if gzipped else put(tmp_path, "x.json", data)

    refused = refusal(path)

    assert refused.reason == reasons.SOURCE_UNREADABLE
    for part in (path, "JSON array", "one object a line", "jq -c '.[]'"):
        assert part in refused.message


@pytest.mark.parametrize("inside", ['{"x": 2, "y": "lost"}', '{"x": 2, "v": [{"w": 1, "y": "lost"}]}'])
@pytest.mark.parametrize("other", ['"text"', "7"])
def test_a_field_that_comes_up_late_inside_of_a_column_is_refused_also_where_columns_are_chosen(
    tmp_path: Path, inside: str, other: str
) -> None:
    """`z` is not chosen, and may have values of no common type."""
    known = json.dumps({"u": {"x": 1, "v": [{"w": 1}]}, "z": 1, "pad": "x" * 1000}) + "\n"
    late = f'{{"u": {inside}, "z": {other}}}\n'

    refused = refusal(put(tmp_path, "a.json", known * 5_000 + late), columns=["u"])

    assert "y is not known" in refused.message
    assert f"line at byte {5_000 * len(known)}" in refused.message


def test_columns_with_fields_are_read_beside_others_that_were_not_chosen(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '{"u": {"x": 1}}\n\n{"u": null, "late": {"y": 1}}\n{"late": {}}\n{"u": {}}\n')
    assert read(path, columns=["u"], types={})[1:] == [{"u": None}, {"u": None}, {"u": {"x": None}}]


@pytest.mark.parametrize(
    ("values", "kind", "read_as"),
    [
        (["1", "12345678901234567891"], "decimal128(38, 0)", [Decimal(1), Decimal(12345678901234567891)]),
        (["-12345678901234567891", "null"], "decimal128(38, 0)", [Decimal(-12345678901234567891), None]),
        (["1.5", "12345678901234567891"], "decimal128(38, 1)", [Decimal("1.5"), Decimal(12345678901234567891)]),
        (
            ["9007199254740993", "1.25", "1e-3"],
            "decimal128(38, 3)",
            [Decimal(9007199254740993), Decimal("1.25"), Decimal("0.001")],
        ),
        (["9007199254740993", "1"], "int64", [9007199254740993, 1]),
        (["9007199254740992", "1.5"], "double", [9007199254740992.0, 1.5]),
        (["1e20", "1"], "double", [1e20, 1.0]),
    ],
)
def test_whole_numbers_that_no_double_holds_are_not_rounded(
    tmp_path: Path, values: list[str], kind: str, read_as: list[Any]
) -> None:
    path = put(tmp_path, "a.json", "".join(f'{{"n": {value}}}\n' for value in values))
    assert schema_of(path)["n"] == kind
    assert [row["n"] for row in read(path)] == read_as


def test_objects_that_lie_too_deep_are_refused(tmp_path: Path) -> None:
    assert "too deep" in refusal(put(tmp_path, "a.json", '{"a":' * 1_200 + "1" + "}" * 1_200 + "\n")).message


def test_whole_numbers_that_no_double_holds_are_not_rounded_at_any_depth(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '{"o": {"x": [1.5, null], "y": 1.5}}\n{"o": {"x": [9007199254740993]}}\n{"o": null}\n')
    assert schema_of(path) == {"o": "struct<x: list<item: decimal128(38, 1)>, y: double>"}
    assert read(path)[1] == {"o": {"x": [Decimal(9007199254740993)], "y": None}}


@pytest.mark.parametrize("values", [["9" * 39, "1"], ["12345678901234567891", "1e-30"]])
def test_numbers_that_no_type_holds_are_refused_unless_a_type_is_given(tmp_path: Path, values: list[str]) -> None:
    path = put(tmp_path, "a.json", "".join(f'{{"n": {value}}}\n' for value in values))
    refused = refusal(path)
    assert f"field 'n': no type holds {values[0]}" in refused.message
    assert "source.files.types" in refused.message
    assert [row["n"] for row in read(path, types={"n": "float64"})] == [float(value) for value in values]


@pytest.mark.parametrize(("inside", "path_of_it"), [("{}", "n"), ('{{"x": [{}]}}', "n.x")])
@pytest.mark.parametrize("gzipped", [False, True])
def test_a_later_whole_number_that_no_double_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, path_of_it: str, gzipped: bool
) -> None:
    monkeypatch.setattr(json_reader, "_SAMPLE_BYTES", 30)
    data = "".join(f'{{"n": {inside.format(number)}}}\n' for number in ("1.5", "1e300", "9007199254740993", "2")).encode()
    path = put(tmp_path, "x.json.gz", gzip.compress(data)) if gzipped else put(tmp_path, "x.json", data)

    refused = refusal(path)

    assert f"field '{path_of_it}': 9007199254740993 lies beyond 2^53" in refused.message
    start_of_line = data.rindex(b"\n", 0, data.index(b"9007")) + 1
    assert f"line at byte {start_of_line}" in refused.message
    if path_of_it == "n":
        assert [row["n"] for row in read(path, types={"n": "double"})] == [1.5, 1e300, 9007199254740992.0, 2.0]


#: Values of one field that have no common type, with the text that each is as `string`.
_OF_ALL_KINDS: dict[str, str | None] = {
    "7": "7",
    "7.10": "7.10",
    "-1e400": "-1e400",
    "9" * 5000: "9" * 5000,
    "NaN": "NaN",
    "true": "true",
    "null": None,
    '"seven \\n \\u00e9"': "seven \n é",
    '{"b": [1, "x", null], "c": "\\n"}': '{"b": [1, "x", null], "c": "\\n"}',
    '["é", {}]': '["é", {}]',
}


@pytest.mark.parametrize("scale", [1e-6, 1])
@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_any_value_of_a_field_that_is_to_be_text_is_read_as_it_is_written(tmp_path: Path, name: str, scale: float) -> None:
    lines = [f' {{"n" : {number},"a":{value}, "z": "{number}"}}' for number, value in enumerate(_OF_ALL_KINDS)]
    data = "\n\n".join([*lines, "{}", ""]).encode()
    path = put(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
    texts = [*_OF_ALL_KINDS.values(), None]
    expected = [{"n": number, "a": text, "z": str(number)} for number, text in enumerate(texts[:-1])]
    reader = open_reader("json", types={"a": "string"})
    [file], schema = reader.describe([path])
    chunks = chunks_of(reader, file, whole(file), schema, (scale,))
    assert rows_of(chunks) == [*expected, {"n": None, "a": None, "z": None}]


@pytest.mark.parametrize(
    "values", [["7", '"seven"'], ["7", "8"], ['"seven"', "7"], ['{"b": 7}', '{"b": "seven"}'], ["true", "[]"]]
)
def test_what_is_told_of_values_without_a_common_type_is_a_way_out(tmp_path: Path, values: list[str]) -> None:
    path = put(tmp_path, "x.json", "".join(f'{{"a": {value}, "n": 1}}\n' for value in values))
    assert [row["a"] for row in read(path, types={"a": "string"})] == [value.strip('"') for value in values]
    assert [row["a"] for row in read(path, types={"a": "string"}, columns=["a"])] == [value.strip('"') for value in values]


def test_a_field_of_text_is_the_one_at_the_top_and_others_stay_what_they_are(tmp_path: Path) -> None:
    path = put(tmp_path, "x.json", '{"a": 7, "o": {"a": 8}, "l": [{"a": 9}]}\n')
    assert read(path, types={"a": "string"}) == [{"a": "7", "o": {"a": 8}, "l": [{"a": 9}]}]


@pytest.mark.parametrize(
    "bad",
    ['{"a": 7 8}', '{"a": 7} {"a": 8}', '{"a": 7', '{"a": 7, "a": "x"}', '{"a": 7, "n": "x"}', "7", '{"a": [7}', '{"a" 7}'],
)
def test_a_line_that_is_no_object_is_refused_beside_a_field_of_text_too(tmp_path: Path, bad: str) -> None:
    path = put(tmp_path, "x.json", f'{{"a": 7, "n": 1}}\n{bad}\n{{"a": "seven", "n": 3}}\n')
    error = refusal(path, types={"a": "string"})
    assert error.reason == reasons.SOURCE_UNREADABLE
    assert "line at byte 17" in str(error)

"""Conditions for `source.where`, as texts, over columns of every kind that can be compared."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from hypothesis import strategies as st

COLUMNS: Final = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
    ]
)
_LITERALS: Final = {
    "i": ["-3", "0", "2", "7"],
    "f": ["-1.5", "0.0", "0.1", "2.5"],
    "d": ["-1.50", "0.00", "1.25"],
    "s": ["''", "'a'", "'ab'", "'ä'", "'it''s'"],
    "day": ["'2026-01-30'", "'2026-01-31'"],
    "moment": ["'2026-01-31T12:00:00.000005+00:00'", "'1970-01-01T00:00:00+00:00'"],
    "flag": ["true", "false"],
}


@st.composite
def _predicates(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(COLUMNS.names))
    literals = st.sampled_from(_LITERALS[column])
    kinds = ["is null", "is not null", "=", "!=", "in", "not in"]
    kinds += [] if column == "flag" else ["<", "<=", ">", ">=", "between"]
    kinds += ["like", "not like"] if column == "s" else ["is nan", "is not nan"] if column == "f" else []
    kind = draw(st.sampled_from(kinds))
    if kind.startswith("is"):
        return f"{column} {kind}"
    if kind.endswith("in"):
        # Of one value pyiceberg makes a comparison, and of equal ones one.
        values = draw(st.lists(literals, min_size=2, max_size=3, unique=True)) if column != "flag" else ["true", "false"]
        return f"{column} {kind} ({', '.join(values)})"
    if kind == "between":
        return f"{column} between {draw(literals)} and {draw(literals)}"
    if kind.endswith("like"):
        return f"{column} {kind} '{draw(st.sampled_from(['a', 'ab', 'ä']))}%'"
    return f"{column} {kind} {draw(literals)}"


def conditions() -> st.SearchStrategy[str]:
    """Texts of conditions over COLUMNS."""
    return st.recursive(
        _predicates(),
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} and {b})", inner, inner),
            st.builds(lambda a, b: f"({a} or {b})", inner, inner),
            st.builds(lambda a: f"not ({a})", inner),
        ),
        max_leaves=5,
    )

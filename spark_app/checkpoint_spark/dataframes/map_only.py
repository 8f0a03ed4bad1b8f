"""The check that there is nothing but row by row work between source and sink.

A row of the source must give the same result whichever other rows are there, because a resume takes only some of them. Spark's
analysed plan is walked from the sink down to our sources, by an allow list: what is not known to be row by row is refused with
its name. The key columns are followed through the plan: a key that was computed is not the key that is skipped by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_BATCH_FUNCTIONS: Final = frozenset({"MapInArrow", "MapInPandas", "PythonMapInArrow"})
_BEFORE: Final = "do it before the source (in a table that this write then reads), or after the commit, on the table"
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "Aggregate": ("an aggregate (GROUP BY, DISTINCT or a function like count)", _BEFORE),
    "Join": ("a join", f"look values up in a step instead, or {_BEFORE}"),
    "AsOfJoin": ("a join", f"look values up in a step instead, or {_BEFORE}"),
    "LateralJoin": ("a lateral join", "use LATERAL VIEW or explode() of the row's own columns"),
    "Window": ("a window function (OVER)", _BEFORE),
    "WindowInPandas": ("a window function (OVER)", _BEFORE),
    "Sort": ("a sort (ORDER BY, SORT BY)", "leave it out: a table has no order; sort when reading"),
    "Distinct": ("DISTINCT", _BEFORE),
    "Deduplicate": ("dropDuplicates", _BEFORE),
    "GlobalLimit": ("LIMIT", "use WHERE on the key columns"),
    "LocalLimit": ("LIMIT", "use WHERE on the key columns"),
    "Tail": ("tail", "use WHERE on the key columns"),
    "Offset": ("OFFSET", "use WHERE on the key columns"),
    "Sample": ("a sample (TABLESAMPLE)", "use WHERE on a hash of the key columns, e.g. pmod(xxhash64(id), 100) < 5"),
    "Repartition": ("a repartition or coalesce", "leave it out; set the number of tasks by source.spark.options or sparkConf"),
    "RepartitionByExpression": (
        "a repartition (DISTRIBUTE BY, CLUSTER BY)",
        "leave it out; set the number of tasks by sparkConf",
    ),
    "RebalancePartitions": ("a rebalance", "leave it out; set the number of tasks by sparkConf"),
    "Except": ("EXCEPT", "use WHERE"),
    "Intersect": ("INTERSECT", "use WHERE"),
    "Pivot": ("PIVOT", _BEFORE),
    # The aggregate of GROUPING SETS, CUBE and ROLLUP stands above theirs, and is met first.
    "Expand": ("UNPIVOT", "use explode() of an array of structs"),
    "WithCTE": ("WITH", "write the named query as a subquery: SELECT ... FROM (SELECT ... FROM input)"),
    "FlatMapGroupsInPandas": ("applyInPandas on groups", "use a batch function (mapInPandas), or a step"),
    "FlatMapGroupsInArrow": ("applyInArrow on groups", "use a batch function (mapInArrow), or a step"),
}
_NOW: Final = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurrentBatchTimestamp"})
_SUBQUERIES: Final = frozenset({"ScalarSubquery", "ListQuery", "InSubquery", "Exists", "LateralSubquery"})


@dataclass(slots=True)
class Checked:
    """What the walk has found. `expands`: a row of the source may give several rows, or none that stand where it stood.

    `reorders`: a function of the user's may give them anywhere in its partition, those of one row also apart.
    """

    expands: bool = False
    reorders: bool = False
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Columns:
    """By name, which attributes of a node's output are that key column of the source; and which are not the same each time."""

    keys: dict[str, frozenset[int]]
    unstable: frozenset[int]


def check_map_only(frame: Any, sources: Mapping[str, Sequence[str]]) -> Checked:
    """Refuse a DataFrame that is more than row by row work on our sources, or that loses their key columns.

    `sources` maps the alias of each source to its key columns; all have the same ones.
    """
    plan = frame._jdf.queryExecution().analyzed()
    checked = Checked()
    columns = _walk(plan, sources, checked)
    for alias in sources:
        if checked.sources.count(alias) > 1:
            raise NeedsChange(
                reasons.PLAN_NOT_MAP_ONLY,
                "the source is read twice (UNION with itself?), so that two rows have one key; read it once, and use explode() "
                "of an array to make several rows of one",
            )
    outputs = {attribute.name(): attribute.exprId().id() for attribute in _items(plan.output())}
    for name in next(iter(sources.values())):
        if outputs.get(name) not in columns.keys.get(name, frozenset()):
            what = "gives something else under its name" if name in outputs else "does not give it"
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE,
                f"the key column {name!r} must come through to the steps as it is, and what stands between {what}; "  # noqa: S608 a message, not a statement
                f"select it unchanged: SELECT {name}, ... FROM input",
            )
    return checked


def refuse_chance(frame: Any, key_names: Sequence[str]) -> None:
    """Refuse a source whose rows depend on chance: what is a key in one attempt would be another row's in the next.

    Keys of monotonically_increasing_id() are the worst of it: the same set each time, for other rows. Those of row_number() are
    like them, where rows share a place in its order, or come later.
    """
    plan = frame._jdf.queryExecution().analyzed()
    windowed = _made_by_windows(plan)
    for attribute in _items(plan.output()):
        if attribute.name() in key_names and attribute.exprId().id() in windowed:
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE,
                f"the key column {attribute.name()!r} is made by a window function, which may number other rows so in the next "
                "attempt; take columns of the rows themselves as keys, or compute it before, in a table",
            )
    for node in _nodes(plan):
        for expression in _items(node.expressions()):
            if not expression.deterministic():
                raise NeedsChange(
                    reasons.KEYS_UNSUITABLE,
                    f"the source depends on chance ({expression.sql()}), so its rows are not known again by their keys; compute "
                    "such columns after the source (in sql, after job.read, or in a step), and keys before it, in a table",
                )


def _made_by_windows(plan: Any) -> set[int]:
    """Return the attributes that are made of what window functions give."""
    made: set[int] = set()
    for node in reversed(list(_nodes(plan))):
        name = node.getClass().getSimpleName()
        if name == "Window":
            made.update(expression.exprId().id() for expression in _items(node.windowExpressions()))
        elif name == "Project":
            for expression in _items(node.projectList()):
                if any(attribute.exprId().id() in made for attribute in _items(expression.references().toSeq())):
                    made.add(expression.exprId().id())
    return made


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _items(node.children()):
        yield from _nodes(child)


def _walk(node: Any, sources: Mapping[str, Sequence[str]], checked: Checked) -> _Columns:
    name = node.getClass().getSimpleName()
    if name == "SubqueryAlias" and (alias := node.alias()) in sources:
        checked.sources.append(alias)
        outputs = {attribute.name(): attribute.exprId().id() for attribute in _items(node.output())}
        return _Columns({key: frozenset({outputs[key]}) for key in sources[alias]}, frozenset())
    if name in _REFUSED:
        what, instead = _REFUSED[name]
        raise NeedsChange(
            reasons.PLAN_NOT_MAP_ONLY,
            f"{what} stands between source and sink (Spark's {name}): its result depends on several rows, and a resume has only "
            f"those that are not sealed; {instead}",
        )
    for expression in _items(node.expressions()):
        _refuse_subqueries(expression)
    children = list(_items(node.children()))
    match name:
        case "Filter":
            below = _walk(children[0], sources, checked)
            _refuse_unstable_filter(node.condition(), below.unstable)
            return below
        case "Project":
            return _through_project(node, _walk(children[0], sources, checked))
        case "SubqueryAlias" | "View":
            return _walk(children[0], sources, checked)
        case "Generate":
            checked.expands = True
            below = _walk(children[0], sources, checked)
            if not _is_unstable(node.generator(), below.unstable):
                return below
            made = frozenset(attribute.exprId().id() for attribute in _items(node.generatorOutput()))
            return _Columns(below.keys, below.unstable | made)
        case "Union":
            return _through_union(node, [_walk(child, sources, checked) for child in children])
        case _ if name in _BATCH_FUNCTIONS:
            checked.expands = checked.reorders = True
            return _through_function(node, children[0], _walk(children[0], sources, checked))
        case _ if not children:
            raise NeedsChange(
                reasons.PLAN_NOT_MAP_ONLY,
                f"rows come from beside the source (Spark's {name}), and have no key that is sealed with them; read only what is "
                "declared as source: in sql from input, in a program through job.read",
            )
        case _:
            raise NeedsChange(
                reasons.PLAN_NOT_MAP_ONLY,
                f"Spark's {name} stands between source and sink, and is not known to work row by row; use projections, filters, "
                "explode, union and batch functions (mapInArrow, mapInPandas), or a step",
            )


def _through_project(node: Any, below: _Columns) -> _Columns:
    found: dict[str, set[int]] = {key: set() for key in below.keys}
    unstable: set[int] = set()
    for expression in _items(node.projectList()):
        number = expression.exprId().id()
        is_alias = expression.getClass().getSimpleName() == "Alias"
        inner = expression.child() if is_alias else expression
        if inner.getClass().getSimpleName() == "AttributeReference":
            for key, numbers in below.keys.items():
                if inner.exprId().id() in numbers:
                    found[key].add(number)
        if _is_unstable(inner, below.unstable):
            unstable.add(number)
    return _Columns({key: frozenset(numbers) for key, numbers in found.items()}, frozenset(unstable))


def _through_function(node: Any, child: Any, below: _Columns) -> _Columns:
    """What a function does with a column nobody sees: it is taken at its name and type."""
    given = {attribute.exprId().id(): attribute.dataType().simpleString() for attribute in _items(child.output())}
    outputs = {attribute.name(): attribute for attribute in _items(node.output())}
    found: dict[str, frozenset[int]] = {}
    for key, numbers in below.keys.items():
        if key not in outputs:
            continue
        kind = outputs[key].dataType().simpleString()
        if other := next((given[number] for number in numbers if given[number] != kind), None):
            raise NeedsChange(
                reasons.KEYS_UNSUITABLE,
                f"a batch function declares the key column {key!r} as {kind}, and in the source it is {other}: as another type "
                f"it would not be known again; declare it as {other}",
            )
        found[key] = frozenset({outputs[key].exprId().id()})
    return _Columns(found, frozenset())


def _through_union(node: Any, branches: list[_Columns]) -> _Columns:
    outputs = [attribute.exprId().id() for attribute in _items(node.output())]
    given = [[attribute.exprId().id() for attribute in _items(child.output())] for child in _items(node.children())]
    keys: dict[str, frozenset[int]] = {}
    for key in branches[0].keys:
        keys[key] = frozenset(
            number
            for place, number in enumerate(outputs)
            if all(ids[place] in branch.keys.get(key, ()) for ids, branch in zip(given, branches, strict=True))
        )
    unstable = frozenset(
        number
        for place, number in enumerate(outputs)
        if any(ids[place] in branch.unstable for ids, branch in zip(given, branches, strict=True))
    )
    return _Columns(keys, unstable)


def _refuse_unstable_filter(condition: Any, unstable: frozenset[int]) -> None:
    if _is_unstable(condition, unstable):
        raise NeedsChange(
            reasons.PLAN_NOT_MAP_ONLY,
            f"the filter {condition.sql()} is not the same each time (it depends on chance or on the time): a row that one "
            "attempt passes over the next may take; write fixed values, or filter by a hash of the key columns",
        )


def _is_unstable(expression: Any, unstable: frozenset[int]) -> bool:
    """Whether an expression may give another value at another time, by itself or by a column that it is made of."""
    if not expression.deterministic():
        return True
    if any(part.getClass().getSimpleName() in _NOW for part in _parts(expression)):
        return True
    return any(attribute.exprId().id() in unstable for attribute in _items(expression.references().toSeq()))


def _refuse_subqueries(expression: Any) -> None:
    for part in _parts(expression):
        if part.getClass().getSimpleName() in _SUBQUERIES:
            raise NeedsChange(
                reasons.PLAN_NOT_MAP_ONLY,
                "a subquery in an expression (IN (SELECT ...), EXISTS, a scalar subquery) stands between source and sink: "
                f"what it gives may change between attempts; look values up in a step instead, or {_BEFORE}",
            )


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _items(expression.children()):
        yield from _parts(child)


def _items(sequence: Any) -> Iterator[Any]:
    """Give the items of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)

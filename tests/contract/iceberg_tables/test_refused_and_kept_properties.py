"""Tables that are refused before any work, and properties of a table that its files are written by."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import (
    IdentityTransform,
)

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_commit.outcomes import Landed, Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from tests.contract.iceberg_tables.worlds import (
    FLAT,
    RealWorld,
    changed,
    refused,
)
from tests.support.records import KEY, appended
from tests.support.rest_tables import ask


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"write.format.default": "orc"}, "write.format.default is 'orc'"),
        ({"write.parquet.compression-codec": "lzo"}, "'lzo'"),
        ({"write.target-file-size-bytes": "big"}, "write.target-file-size-bytes is 'big'"),
    ],
)
def test_a_table_with_a_feature_that_we_do_not_write_is_refused(bare: RealWorld, properties: dict[str, str], says: str) -> None:
    bare.create(FLAT, properties=properties)

    assert says in refused(bare)


@pytest.fixture
def class_to_import(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A class whose import leaves a trace."""
    trace, module = tmp_path / "was imported", f"hostile_{new_token()}"
    (tmp_path / f"{module}.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Hostile: pass\n")
    sys.path.insert(0, str(tmp_path))
    yield f"{module}.Hostile", trace
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
def test_a_table_that_asks_for_a_class_to_be_imported_is_refused_and_nothing_is_imported(
    on_rest: RealWorld, class_to_import: tuple[str, Path], name: str
) -> None:
    hostile, trace = class_to_import
    on_rest.create(FLAT)
    target, files = on_rest.target(), on_rest.stage(1)
    table = on_rest.place.table()
    table.catalog.commit_table(table, (), (SetPropertiesUpdate(updates={name: hostile}),))

    assert name in refused(on_rest)
    port, state = on_rest.loaded()
    with pytest.raises(NeedsChange, match=re.escape(name)):
        port.find_incompatibility(state, [target], appended(files))
    assert not trace.exists()


def test_a_table_partitioned_by_a_transform_that_nobody_knows_is_refused_and_the_field_is_named(on_rest: RealWorld) -> None:
    on_rest.create(FLAT)
    field = {"source-id": 2, "field-id": 1000, "name": "z", "transform": "zorder"}
    updates = [
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    _, table = on_rest.place.name.split(".")
    ask(on_rest.place, f"/{table}", {"requirements": [], "updates": updates})

    message = refused(on_rest)

    assert "'z'" in message


@pytest.mark.parametrize(
    "properties", [{"write.parquet.compression-codec": "snappy"}, {"write.parquet.compression-codec": "gzip"}]
)
def test_the_codec_of_the_table_is_used(bare: RealWorld, properties: dict[str, str]) -> None:
    bare.create(FLAT, properties=properties)

    assert bare.target().codec == properties["write.parquet.compression-codec"]
    bare.commit(1, 2)
    assert bare.ids() == [1, 2]


def test_data_goes_where_the_table_wants_it(bare: RealWorld) -> None:
    wanted = f"file://{bare.place.folder}/somewhere-else"
    bare.create(FLAT, properties={"write.data.path": f"{wanted}/"})
    (staged,) = bare.stage(1)
    port, state = bare.loaded()

    assert staged.path.startswith(f"{wanted}/cw-{KEY.uid}/")
    assert port.find_incompatibility(state, [bare.target()], appended([staged])) is None
    assert isinstance(port.swap(state, KEY, appended([staged])), Landed)
    assert bare.ids() == [1]


@pytest.mark.parametrize(
    ("properties", "folder"),
    [
        ({"write.object-storage.enabled": "true"}, None),
        ({"write.object-storage.enabled": "true", "write.object-storage.path": "objects"}, "objects"),
        ({"write.object-storage.path": "objects"}, None),
        ({"write.folder-storage.path": "folders"}, "folders"),
        ({"write.object-storage.enabled": "true", "write.folder-storage.path": "folders"}, "folders"),
        ({"write.data.path": "data-path", "write.folder-storage.path": "folders"}, "data-path"),
    ],
)
def test_data_goes_below_the_folder_that_iceberg_would_choose_whatever_its_layout(
    bare: RealWorld, properties: dict[str, str], folder: str | None
) -> None:
    place = f"file://{bare.place.folder}"
    bare.create(FLAT, properties={n: f"{place}/{v}" if n.endswith(".path") else v for n, v in properties.items()})

    table = bare.place.table().location()
    assert bare.target().data_location == (f"{table.rstrip('/')}/data" if folder is None else f"{place}/{folder}")
    bare.commit(1, 2)
    assert bare.ids() == [1, 2]


def test_the_properties_that_files_are_written_by_are_told_to_the_stagers_and_others_are_not(bare: RealWorld) -> None:
    own = {"write.metadata.metrics.default": "counts", "write.parquet.row-group-size-bytes": "1000000"}
    bare.create(FLAT, properties={**own, "write.target-file-size-bytes": "4000000", "owner": "somebody"})

    target = bare.target()
    (file,) = bare.stage(1)

    assert dict(target.write_properties) == own
    assert target.target_file_size_bytes == 4_000_000
    assert all(metrics[5] is None for metrics in file.metrics), "no bounds"


def sorted_by(bare: RealWorld, *fields: SortField) -> RealWorld:
    catalog = bare.place.opened()
    catalog.create_namespace_if_not_exists(bare.place.name.split(".")[0])
    catalog.create_table(bare.place.name, FLAT, sort_order=SortOrder(*fields))
    return bare


def test_rows_of_a_sorted_table_are_sorted_and_the_manifest_names_the_order(real: RealWorld) -> None:
    real.place.opened().drop_table(real.place.name)
    world = sorted_by(real, SortField(source_id=1, transform=IdentityTransform(), direction=SortDirection.DESC))

    world.commit(2, 9, 4, 7)

    table = world.place.table()
    assert [row["id"] for row in world.place.rows()] == [9, 7, 4, 2]
    (task,) = table.scan().plan_files()
    assert task.file.sort_order_id == table.sort_order().order_id == 1


def test_a_seal_that_names_a_sort_order_that_the_table_has_not_is_refused(bare: RealWorld) -> None:
    bare.create(FLAT)
    (honest,) = bare.stage(1)
    port, state = bare.loaded()

    refused = port.find_incompatibility(state, [bare.target()], appended([changed(honest, sort_order_id=7)]))

    assert isinstance(refused, Rejected)
    assert refused.reason == reasons.STAGED_RESULT_REFUSED
    assert "unknown sort order 7" in refused.message


def test_files_that_were_staged_before_the_sort_order_changed_are_committed_under_their_own(bare: RealWorld) -> None:
    world = sorted_by(bare, SortField(source_id=1, transform=IdentityTransform()))
    target, files = world.target(), world.stage(3, 1)
    with world.place.table().update_sort_order() as update:
        update.desc("id", IdentityTransform())
    later, more = world.target(), world.stage(2, 4)
    port, state = world.loaded()

    assert port.find_incompatibility(state, [target, later], appended([*files, *more])) is None
    assert isinstance(port.swap(state, KEY, appended([*files, *more])), Landed)
    assert [file.sort_order_id for file in (*files, *more)] == [1, 2]
    assert world.ids() == [1, 2, 3, 4]


def test_a_catalog_that_is_not_in_the_settings_is_named_with_those_that_are(bare: RealWorld) -> None:
    with pytest.raises(NeedsChange, match=r"there is no catalog 'other' .*settings file") as caught:
        open_catalog("other", bare.place.settings)
    assert "there are: test" in caught.value.message

"""The AWS Glue Data Catalog, by pyiceberg. Needs boto3, so this is imported only where there is such a catalog.

A commit is Glue's UpdateTable with the VersionId of the table that was loaded, which Glue refuses if the table has another one by
then. It is never sent twice: the second one would be refused because the first one has landed.
"""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException
from pyiceberg.table import Table

from checkpoint_commit.catalogs.aws import session_of
from checkpoint_commit.catalogs.format_3 import WritesFormat3
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, one_line
from checkpoint_protocol.places.setting_values import SettingsPlace
from checkpoint_protocol.places.settings import GlueCatalogSettings


class BoundedGlueCatalog(WritesFormat3, GlueCatalog):
    """Its requests end. A table that is not one of Iceberg is refused: NeedsChange."""

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        try:
            return super()._convert_glue_to_iceberg({"Parameters": {}, **glue_table})
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            # To pyiceberg the former is a table that is missing: it would be made, and be there already.
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the catalog {self.name!r} has a table of that name that is not Iceberg: {one_line(error)}",
            ) from error


def open_glue(
    name: str,
    entry: GlueCatalogSettings,
    place: SettingsPlace,
    connect_within_s: float,
    answer_within_s: float,
    **properties: str,
) -> BoundedGlueCatalog:
    """Return the catalog of an entry; nothing is asked yet. Each request is sent once, and given up after silence."""
    config = Config(
        connect_timeout=connect_within_s,
        read_timeout=answer_within_s,
        retries={"total_max_attempts": 1},
        # The settings say where Glue is, not a variable or a file of whoever runs this.
        ignore_configured_endpoint_urls=True,
    )
    client = session_of(entry, place, f"catalogs.{name}").client("glue", endpoint_url=entry.endpoint, config=config)
    if entry.catalog_id is not None:

        def name_catalog(params: dict[str, Any], **_: Any) -> None:
            params["CatalogId"] = entry.catalog_id

        client.meta.events.register("provide-client-params.glue", name_catalog)
    return BoundedGlueCatalog(name, client, **properties)

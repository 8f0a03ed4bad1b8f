"""Iceberg tables that pyiceberg cannot make, asked for at a REST catalog: defaults, types and transforms of format version 3."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.support.places import IcebergPlace


def ask(place: IcebergPlace, path: str, body: Mapping[str, Any]) -> None:
    """Ask the server; `path` is below the tables of the place's namespace."""
    catalog = place.settings.catalogs[place.catalog]
    namespace, _ = place.name.split(".")
    url = f"{catalog.uri}/v1/namespaces/{namespace}/tables{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 of the test
    urllib.request.urlopen(request).close()  # noqa: S310 a server of the test


def create_3(place: IcebergPlace, *fields: Mapping[str, Any]) -> None:
    """Make the place's table in format version 3; fields have ids from 1 on and are optional unless they say else."""
    namespace, name = place.name.split(".")
    place.opened().create_namespace_if_not_exists(namespace)
    numbered = [{"id": number, "required": False, **field} for number, field in enumerate(fields, 1)]
    schema = {"type": "struct", "schema-id": 0, "fields": numbered}
    ask(place, "", {"name": name, "schema": schema, "properties": {"format-version": "3"}})

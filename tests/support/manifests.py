"""Manifests that are right and manifests that are wrong. The models and the CRD have to agree about each.

Paths are dotted with `__`; ... removes a field.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from checkpoint_protocol.manifest.spec import API_VERSION, KIND

SMALLEST: Final[dict[str, Any]] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "flights"},
    "spec": {
        "source": {"files": {"format": "csv", "paths": ["/in/*.csv"]}},
        "sink": {"iceberg": {"catalog": "local", "table": "db.flights"}},
        "checkpoint": {"uri": "/checkpoints"},
    },
}


def manifest(**changes: Any) -> dict[str, Any]:
    """Return the smallest manifest with other values at some paths."""
    document = copy.deepcopy(SMALLEST)
    for path, value in changes.items():
        *folders, last = path.split("__")
        section = document
        for folder in folders:
            section = section.setdefault(folder, {})
        if value is ...:
            del section[last]
        else:
            section[last] = copy.deepcopy(value)
    return document


_ICEBERG: Final = {"catalog": "c", "table": "a.b"}
_STEPS: Final = [{"call": "a:b", "input": "row"}]
_ADDED: Final = {"lance": {"uri": "/x"}, "mode": "AddColumns", "columns": ["a"]}
_ICEBERG_SOURCE: Final = {"iceberg": {"catalog": "c", "table": "a.b"}}
_STEP: Final = {"call": "m:f"}

_CSV: Final = {"format": "csv", "paths": ["/in"]}
_PARQUET: Final = {"format": "parquet", "paths": ["/in"]}
_BINARY: Final = {"format": "binary", "paths": ["/in"]}
_ORC: Final = {"format": "orc", "paths": ["/in"], "keyColumns": ["id"]}
_KAFKA: Final = {"bootstrapServers": ["broker-1:9092", "[::1]:9093"], "topics": ["orders"], "format": "raw"}
_KAFKA_JSON: Final = {**_KAFKA, "format": "json"}
_PATTERN: Final = {"bootstrapServers": ["b:1"], "pattern": "orders-.*", "format": "json"}
_JDBC: Final = {"format": "jdbc", "keyColumns": ["id"]}
_PROGRAM: Final = {"call": "jobs.nightly:main", "keyColumns": ["id", "day"]}

_STREAM: Final = {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}

_STAGES: Final = [{"name": "parse", "steps": [_STEP]}, {"name": "embed", "steps": [_STEP]}]
_ALL: Final = {"name": "sum", "kind": "Aggregate", "steps": [{"call": "m:f", "input": "pandas"}]}
_AGGREGATE: Final = {**_ALL, "keyBy": ["author", "year"], "buckets": 50}

GOOD: Final[dict[str, dict[str, Any]]] = {
    "the smallest": {},
    "stages": {"spec__stages": _STAGES},
    "a trigger of stages": {"spec__trigger": {"every": "5m", "keepDriver": "10m"}, "spec__stages": [*_STAGES, _AGGREGATE]},
    "stages that are done together": {
        "spec__stages": [{"name": "clean", "steps": [_STEP], "checkpoint": False, "code": ["docs", "a.b"]}, *_STAGES]
    },
    "rows of a key together": {
        "spec__stages": [*_STAGES, _AGGREGATE, {"name": "c", "steps": [{"call": "m:f", "input": "row"}]}],
        "spec__onRowError": "Quarantine",
    },
    "all rows together, in the table's stage": {"spec__stages": [{**_STAGES[0], "checkpoint": False}, {**_ALL, "buckets": None}]},
    "changed rows": {
        "spec__source": {"lance": {"uri": "/in.lance"}, "changes": "Upserts"},
        "spec__sink": {"lance": {"uri": "/out.lance"}, "mode": "Upsert", "upsertKeys": ["id"]},
    },
    "changed rows of Iceberg": {
        "spec__source": {"iceberg": {"catalog": "local", "table": "db.in"}, "changes": "Upserts"},
        "spec__sink": {"lance": {"uri": "/out.lance"}, "mode": "Upsert", "upsertKeys": ["id"]},
    },
    "rows that are done anew": {"spec__reset": {"nonce": "2"}},
    "stages that are done anew": {"spec__stages": _STAGES, "spec__reset": {"stages": ["embed"], "nonce": "2"}},
    "results of another write": {"spec__stages": _STAGES, "spec__inherit": "other"},
    "results of calls kept after a stage of batches": {
        "spec__stages": [
            {"name": "a", "steps": [_STEP]},
            {"name": "b", "steps": [{"call": "m:f", "input": "row", "memo": True}]},
        ]
    },
    "a name as long as may be": {"metadata__name": "a" * 45},
    "arguments of many digits": {"spec__steps": [{"call": "m:f", "arguments": {"n": -(1 << 70)}}]},
    "results of calls kept": {"spec__steps": [{"call": "m:f", "input": "row", "memo": True}]},
    "several paths": {"spec__source__files__paths": ["/a", "s3://b/c"]},
    "null where a field is optional": {
        "spec__source__columns": None,
        "spec__code": {"path": None, "configMap": None, "uri": None},
        "spec__image": None,
        "spec__serviceAccountName": None,
        "spec__storageSecretName": None,
        "spec__activeDeadlineSeconds": None,
        "spec__ttlSecondsAfterFinished": None,
        "spec__driver": {"memoryOverhead": None},
        "spec__steps": [{"call": "m:f", "name": None}],
    },
    "null in place of the other sources": {
        "spec__source": {
            "files": _CSV,
            "iceberg": None,
            "lance": None,
            "kafka": None,
            "spark": None,
            "program": None,
            "union": None,
        }
    },
    "null in place of the other sinks": {"spec__sink": {"iceberg": None, "lance": {"uri": "/x"}, "none": None}},
    "topics": {"spec__source": {"kafka": _KAFKA, "columns": ["key", "value"], "where": "offset > 3"}},
    "topics that are JSON": {
        "spec__source": {
            "kafka": {
                **_KAFKA_JSON,
                "types": {"at": "timestamp[us]"},
                "metadata": ["offset", "key"],
                "startingOffsets": "Latest",
                "maxOffsets": 1000,
                "splitSize": "1Mi",
            }
        }
    },
    "topics of Avro": {"spec__source": {"kafka": {**_KAFKA, "format": "avro", "metadata": ["offset"]}}},
    "topics of Protobuf": {"spec__source": {"kafka": {**_KAFKA, "format": "protobuf", "metadata": ["offset"]}}},
    "topics of JSON with schemas": {"spec__source": {"kafka": {**_KAFKA, "format": "jsonSchema", "types": {"a": "string"}}}},
    "topics by a pattern": {"spec__source": {"kafka": {**_PATTERN, "onLost": "Skip"}}, "spec__onRowError": "Quarantine"},
    "what only Spark reads": {"spec__source": {"spark": _ORC}},
    "files by keys": {"spec__source": {"spark": {"format": "csv", "paths": ["/in"], "keyColumns": ["id"]}}},
    "several paths for Spark": {"spec__source": {"spark": {**_ORC, "paths": ["/a", "/b"]}}},
    "some columns of what Spark reads": {"spec__source": {"spark": _ORC, "columns": ["id"]}},
    "sql and secrets": {
        "spec__source": {
            "spark": {
                **_JDBC,
                "sql": "SELECT id FROM input",
                "options": {
                    "url": "jdbc:x://${env:USER}:${env:PW}@host/db?password=${env:PW}",
                    "password": "${env:PASSWORD}",
                    "dbtable": "rows",
                },
            }
        }
    },
    "a table of Spark": {"spec__source": {"spark": {"table": "lake.db.rows", "keyColumns": ["id"]}}},
    "a program": {"spec__source": {"program": _PROGRAM}},
    "a stream with a volume": {"spec__source": {"program": _STREAM}, "spec__checkpoint": {"uri": "s3://b/ck"}},
    "several sources": {
        "spec__source": {
            "union": [
                {"files": _PARQUET},
                {"files": {**_CSV, "types": {"a": "int64"}}, "iceberg": None},
                _ICEBERG_SOURCE,
                {"iceberg": {"catalog": "c", "table": "a.c"}},
                {"lance": {"uri": "/in.lance"}},
            ],
            "columns": ["a"],
            "where": "a > 1",
        }
    },
    "all about text": {
        "spec__source__files": {
            **_CSV,
            "csv": {
                "header": False,
                "delimiter": "\t",
                "quote": "",
                "escape": "\\",
                "nullValues": [],
                "multiLine": True,
            },
            "compression": "Gzip",
            "types": {"delay": "int64", "price": "decimal(10,2)"},
            "schema": "Same",
        },
        "spec__source__columns": ["id", "größe", ""],
    },
    "files that are a row each": {
        "spec__source": {
            "files": {"format": "binary", "paths": ["s3://b/images/*.png"], "splitSize": "64Mi", "compression": "Auto"},
            "columns": ["path", "content"],
            "where": "size > 0",
        }
    },
    "compressed JSON": {"spec__source__files": {"format": "json", "paths": ["/in"], "compression": "None"}},
    "rows that fail": {
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"maxRows": 0, "maxShare": "0.0001%", "retry": "Also"},
    },
    "rows known by keys that fail": {
        "spec__source": {"spark": _ORC},
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"retry": "Only"},
    },
    "all rows may fail": {"spec__quarantine": {"maxRows": 1_000_000, "maxShare": "100%"}},
    "a share with zeros in front": {"spec__quarantine": {"maxShare": "007.50%"}},
    "a delimiter that is one character of three bytes": {"spec__source__files__csv": {"delimiter": "│"}},
    "a table": {"spec__source": _ICEBERG_SOURCE},
    "a table at a snapshot": {
        "spec__source": {"iceberg": {"catalog": "c", "table": "a.b", "snapshotId": 9223372036854775807, "splitSize": "64Mi"}}
    },
    "a branch of a table, and null for what is not meant": {
        "spec__source": {
            "iceberg": {"catalog": "c", "table": "a.b", "snapshotId": None, "branch": "audit"},
            "files": None,
            "lance": None,
            "where": None,
        }
    },
    "secrets of Spark by variables": {
        "spec__sparkConf": {
            "spark.hadoop.fs.s3a.secret.key": "${env:KEY}",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.Provider",
            "spark.security.credentials.hive.enabled": "false",
            "spark.authenticate.secretBitLength": "256",
            "spark.sql.catalog.a.url": "jdbc:x://${env:USER}:${env:PW}@host/db?password=${env:PW}",
            "spark.kubernetes.executor.request.cores": "100m",
        }
    },
    "paths with colons": {"spec__source__files__paths": ["/a:b", "./a:b", "day=1/12:00.csv", ":a", "file:/a", "file:///a"]},
    "paths of a file system that Spark knows": {
        "spec__source": {"spark": {"format": "orc", "paths": ["hdfs://host/a"], "keyColumns": ["id"]}}
    },
    "a dataset to read": {"spec__source": {"lance": {"uri": "s3://bucket/in.lance"}}},
    "a version of a dataset": {"spec__source": {"lance": {"uri": "/in.lance", "version": 7}, "columns": ["a"], "where": "a > 1"}},
    "a condition on files": {"spec__source__where": "größe >= 1 and x = 'a'"},
    "one dataset to another": {
        "spec__source": {"lance": {"uri": "/in.lance"}},
        "spec__sink": {"lance": {"uri": "/out.lance"}},
    },
    "steps of all kinds": {
        "spec__steps": [
            {"call": "package.module:Class", "input": "row", "name": "predict"},
            {"call": "m:f", "input": "pandas", "arguments": {"size": 3, "on": ["a", None, {"b": 0.5}], "no": None}},
            {"call": "modulo_größe.été:f", "input": "arrow", "output": {"größe": "decimal(10,2)", "id": "int64"}},
        ]
    },
    "code in a folder": {"spec__code": {"path": "/code"}},
    "code in a ConfigMap": {"spec__code": {"configMap": {"name": "flights.code-1"}}},
    "code in a file of one machine": {"spec__code": {"uri": "/code/größe 1/flights.py"}},
    "code in an object": {"spec__code": {"uri": "s3://bucket/code/flights-1.0-py3-none-any.whl"}},
    "a dataset": {"spec__sink": {"lance": {"uri": "s3://bucket/flights.lance"}, "create": True}},
    "a dataset on disk with a percent sign": {"spec__sink": {"lance": {"uri": "/data/100%.lance"}}},
    "no table": {"spec__sink": {"none": {}}},
    "a table to be made": {
        "spec__sink": {
            "iceberg": _ICEBERG,
            "create": True,
            "mode": "Append",
            "partitionBy": [
                {"column": "day", "transform": "month"},
                {"column": "origin"},
                {"column": "flight", "transform": "bucket[16]"},
                {"column": "tailnum", "transform": "truncate[4]"},
            ],
            "targetFileSize": "64Mi",
        }
    },
    "a table that is upserted": {"spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["day", "straße"]}},
    "a dataset that is upserted": {"spec__sink": {"lance": {"uri": "/x"}, "mode": "Upsert", "upsertKeys": ["id"]}},
    "an upsert that takes the last of several rows": {
        "spec__sink": {
            "iceberg": _ICEBERG,
            "mode": "Upsert",
            "upsertKeys": ["id"],
            "whenMatched": "Ignore",
            "onDuplicate": "Last",
            "orderBy": "changed",
        }
    },
    "rows that are deleted by their keys": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["id"], "whenMatched": "Delete"}
    },
    "a branch and a tag of a table": {
        "spec__sink": {
            "iceberg": {
                **_ICEBERG,
                "branch": "prüfung/täglich",
                "tag": "lauf-{epoch}",
                "snapshotProperties": {"owner": "team a", "added": "Österreich"},
            }
        }
    },
    "a dataset with a tag that is made in a way of its own": {
        "spec__sink": {
            "lance": {
                "uri": "s3://bucket/images.lance",
                "tag": "v1.{epoch}-images",
                "layout": {
                    "dataStorageVersion": "2.1",
                    "enableStableRowIds": True,
                    "blobColumns": ["image"],
                    "vectorColumns": {"embedding": {"dimension": 768}, "hash": {"dimension": 16, "type": "uint8"}},
                },
            },
            "create": True,
        }
    },
    "a table that is overwritten": {"spec__sink": {"iceberg": _ICEBERG, "mode": "OverwriteAll", "onConcurrent": "Replace"}},
    "rows that are audited": {"spec__sink": {"iceberg": _ICEBERG, "audit": "checks.flights:no_gaps"}},
    "partitions that are overwritten": {"spec__sink": {"iceberg": _ICEBERG, "mode": "OverwritePartitions"}},
    "rows that are overwritten": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "OverwriteWhere", "where": "land = 'Österreich' and not day is null"}
    },
    "columns that rows get": {
        "spec__source": {"lance": {"uri": "s3://b/rows.lance"}, "where": "day >= '2026-11-24'"},
        "spec__steps": [{"call": "a:b", "input": "row"}],
        "spec__sink": {
            "lance": {"uri": "s3://b/rows.lance", "layout": {"vectorColumns": {"vektor": {"dimension": 768}}}},
            "mode": "AddColumns",
            "columns": ["vektor", "länge"],
            "only": "All",
        },
    },
    "sizes in all units": {
        "spec__source__files__splitSize": "1",
        "spec__sink__targetFileSize": "8388607Ti",
        "spec__checkpoint__minimumBytes": "0",
        "spec__driver": {"memory": "1500M", "memoryOverhead": "0Mi"},
        "spec__executor": {"memory": "007Gi"},
    },
    "a size without quotes": {"spec__source__files__splitSize": 1048576, "spec__driver": {"memory": 1 << 30}},
    "no size in several spellings": {"spec__checkpoint__minimumBytes": 0},
    "no size with a unit": {"spec__checkpoint__minimumBytes": "0Mi"},
    "sizes as Kubernetes has them": {
        "spec__source__files__splitSize": "1.5Gi",
        "spec__sink__targetFileSize": "128e6",
        "spec__checkpoint__minimumBytes": ".5",
        "spec__driver": {"memory": "1E9", "memoryOverhead": "1.Ki"},
    },
    "the largest size": {"spec__sink__targetFileSize": "7Ei"},
    "durations": {"spec__checkpoint__interval": "1h30m0.5s"},
    "milliseconds": {"spec__checkpoint__interval": "500ms"},
    "a broken number of hours": {"spec__checkpoint__interval": "1.5h"},
    "microseconds with their sign": {"spec__checkpoint__interval": "250000\u00b5s"},
    "durations in any order": {"spec__checkpoint__interval": "30s5m"},
    "the shortest duration": {"spec__checkpoint__interval": "0.000000001s"},
    "the shortest progress deadline": {"spec__checkpoint__interval": "1m30s", "spec__progressDeadlineSeconds": 1800},
    "the shortest progress deadline where any size is sealed": {
        "spec__checkpoint__interval": "1m30s",
        "spec__checkpoint__minimumBytes": "0",
        "spec__progressDeadlineSeconds": 180,
    },
    "pods": {
        "spec__image": "registry.example.com:5000/spark@sha256:" + "0" * 64,
        "spec__serviceAccountName": "driver",
        "spec__storageSecretName": "storage.v2",
        "spec__driver": {
            "cores": 2,
            "memory": "2Gi",
            "memoryOverhead": "1Gi",
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {"containers": [{"name": "driver", "env": [{"name": "A", "value": None}]}], "tolerations": []},
            },
        },
        "spec__executor": {"instances": 10_000, "cores": 1, "template": {"spec": {}}},
        "spec__sparkConf": {"spark.speculation": "true"},
    },
    "executors with GPUs that some tasks share": {"spec__executor": {"gpus": 2, "tasksPerExecutor": 8, "cores": 4}},
    "tasks with several GPUs each": {"spec__executor": {"gpus": 4, "tasksPerExecutor": 2, "gpuResource": "amd.com/gpu"}},
    "more tasks than cores": {"spec__executor": {"cores": 1, "tasksPerExecutor": 1024, "gpus": 0}},
    "executors by need": {"spec__executor": {"minInstances": 0, "instances": 4, "gpus": 64}},
    "executors by need, as many as ever": {"spec__executor": {"minInstances": 4, "instances": 4}},
    "null for what is not said of executors": {
        "spec__executor": {"instances": None, "minInstances": None, "tasksPerExecutor": None, "gpus": 1}
    },
    "a trigger by time": {"spec__trigger": {"every": "10s", "atMost": {"files": 5, "bytes": "5Gi"}}},
    "a trigger by cron": {
        "spec__trigger": {
            "cron": "*/5 3-6 * * MON",
            "timeZone": "America/Argentina/Ushuaia",
            "atLeast": {"bytes": 1, "orAfter": "1h"},
            "keepDriver": "10m",
        }
    },
    "all the switches": {
        "spec__suspend": True,
        "spec__backoffLimit": 0,
        "spec__activeDeadlineSeconds": 1,
        "spec__progressDeadlineSeconds": 10,
        "spec__checkpoint__interval": "0.5s",
        "spec__ttlSecondsAfterFinished": 0,
        "spec__runNonce": "2026-01-02",
        "spec__onCodeChange": "Restart",
        "spec__onReplaced": "Skip",
    },
}

BAD: Final[dict[str, dict[str, Any]]] = {
    # triggers
    "a trigger without a schedule": {"spec__trigger": {"atMost": {"files": 1}}},
    "a trigger with two schedules": {"spec__trigger": {"every": "5m", "cron": "0 3 * * *"}},
    "a trigger without a pause": {"spec__trigger": {"every": "0.5s"}},
    "a schedule of four fields": {"spec__trigger": {"cron": "0 3 * *"}},
    "a time zone without cron": {"spec__trigger": {"every": "5m", "timeZone": "UTC"}},
    "a driver that is kept for no time": {"spec__trigger": {"every": "5m", "keepDriver": "0s"}},
    "at most of nothing": {"spec__trigger": {"every": "5m", "atMost": {}}},
    "at most no files": {"spec__trigger": {"every": "5m", "atMost": {"files": 0}}},
    "at least of nothing": {"spec__trigger": {"every": "5m", "atLeast": {"orAfter": "1h"}}},
    "a trigger and a time to live": {"spec__trigger": {"every": "5m"}, "spec__ttlSecondsAfterFinished": 5},
    "a trigger of a write that overwrites": {"spec__trigger": {"every": "5m"}, "spec__sink__mode": "OverwriteAll"},
    "at most of a table": {
        "spec__source": {"lance": {"uri": "s3://b/x.lance"}},
        "spec__trigger": {"every": "5m", "atMost": {"files": 1}},
    },
    "at least of rows known by keys": {
        "spec__source": {"spark": {"format": "orc", "paths": ["/a"], "keyColumns": ["id"]}},
        "spec__trigger": {"every": "5m", "atLeast": {"files": 1}},
    },
    # stages
    "stages beside steps": {"spec__stages": _STAGES, "spec__steps": [_STEP]},
    "two stages of one name": {"spec__stages": [*_STAGES, _STAGES[0]]},
    "a last stage that keeps nothing": {"spec__stages": [*_STAGES, {"name": "c", "steps": [_STEP], "checkpoint": False}]},
    "a stage without steps": {"spec__stages": [{"name": "a", "steps": []}]},
    "a stage with capitals": {"spec__stages": [{"name": "Parse", "steps": [_STEP]}]},
    "a stage of too long a name": {"spec__stages": [{"name": "a" * 33, "steps": [_STEP]}]},
    "a file in place of a module": {"spec__stages": [{"name": "a", "steps": [_STEP], "code": ["a/b.py"]}]},
    "too many stages": {"spec__stages": [{"name": f"a{number}", "steps": [_STEP]} for number in range(17)]},
    "a stage of unknown kind": {"spec__stages": [{**_STAGES[0], "kind": "Reduce"}]},
    "keys of rows that do not come together": {"spec__stages": [{**_STAGES[0], "keyBy": ["a"]}]},
    "buckets of rows that do not come together": {"spec__stages": [{**_STAGES[0], "buckets": 5}]},
    "buckets without keys": {"spec__stages": [{**_ALL, "buckets": 5}]},
    "no buckets": {"spec__stages": [{**_AGGREGATE, "buckets": 0}]},
    "a key named twice": {"spec__stages": [{**_AGGREGATE, "keyBy": ["a", "a"]}]},
    "rows that come together and are not kept": {"spec__stages": [{**_AGGREGATE, "checkpoint": False}, *_STAGES]},
    "rows of a key one by one": {"spec__stages": [{**_AGGREGATE, "steps": [{"call": "m:f", "input": "row"}]}]},
    "rows of a key in parts": {"spec__stages": [{**_AGGREGATE, "steps": [{"call": "m:f", "batchSize": 5}]}]},
    "the name of a shuffle": {"spec__stages": [{"name": "sum-shuffle", "steps": [_STEP]}, _AGGREGATE]},
    "results of another write without stages": {"spec__inherit": "other"},
    "results of another write that read a topic": {
        "spec__stages": _STAGES,
        "spec__source": {"kafka": {"bootstrapServers": ["b:9092"], "topics": ["t"], "format": "raw"}},
        "spec__inherit": "other",
    },
    "a reset of no stage": {"spec__stages": _STAGES, "spec__reset": {"stages": ["other"], "nonce": "2"}},
    "a reset without stages": {"spec__reset": {"stages": ["parse"], "nonce": "2"}},
    "changed rows that are appended": {"spec__source": {"lance": {"uri": "/in.lance"}, "changes": "Upserts"}},
    "changed rows of files": {
        "spec__source": {"files": {"format": "csv", "paths": ["/in"]}, "changes": "Upserts"},
        "spec__sink": {"lance": {"uri": "/out.lance"}, "mode": "Upsert", "upsertKeys": ["id"]},
    },
    "changed rows that are tried again": {
        "spec__source": {"lance": {"uri": "/in.lance"}, "changes": "Upserts"},
        "spec__sink": {"lance": {"uri": "/out.lance"}, "mode": "Upsert", "upsertKeys": ["id"]},
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"retry": "Also"},
    },
    "a reset that names no stages": {"spec__stages": _STAGES, "spec__reset": {"nonce": "2"}},
    "a reset without a nonce": {"spec__stages": _STAGES, "spec__reset": {"stages": ["parse"], "nonce": ""}},
    "rows of stages tried again": {
        "spec__stages": _STAGES,
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"retry": "Also"},
    },
    # names
    "a name that is too long": {"metadata__name": "a" * 46},
    "a name with a dot": {"metadata__name": "a.b"},
    "a name with capitals": {"metadata__name": "Flights"},
    # what is not known
    "an unknown field": {"spec__backoffLimt": 3},
    "an unknown field of the source": {"spec__source__flies": {}},
    "an unknown field of files": {"spec__source__files__pahts": ["/a"]},
    "an unknown option": {"spec__source__files__csv": {"delimeter": ";"}},
    "results of batches kept": {"spec__steps": [{"call": "m:f", "memo": True}]},
    "an unknown field of a step": {"spec__steps": [{"call": "m:f", "argument": {}}]},
    "an unknown field of a sink": {"spec__sink": {"none": {"table": "x"}}},
    "an unknown field of the driver": {"spec__driver": {"xyzzy": 1}},
    "an unknown part of a pod template": {"spec__driver": {"template": {"sepc": {}}}},
    "an unknown field of a ConfigMap": {"spec__code": {"configMap": {"name": "a", "key": "b"}}},
    "an unknown section": {"spce": {}},
    # what is missing
    "no spec": {"spec": ...},
    "no source": {"spec__source": ...},
    "no sink": {"spec__sink": ...},
    "no checkpoint": {"spec__checkpoint": ...},
    "no checkpoint uri": {"spec__checkpoint": {"interval": "5s"}},
    "no format": {"spec__source": {"files": {"paths": ["/a"]}}},
    "no paths": {"spec__source": {"files": {"format": "csv"}}},
    "no key columns": {"spec__source": {"spark": {"format": "orc", "paths": ["/a"]}}},
    "no key columns of a program": {"spec__source": {"program": {"call": "m:f"}}},
    "no callable": {"spec__steps": [{"name": "x"}]},
    "no table name": {"spec__sink": {"iceberg": {"catalog": "c"}}},
    "a ConfigMap without a name": {"spec__code": {"configMap": {}}},
    # wrong types
    "a number in quotes": {"spec__backoffLimit": "3"},
    "a truth for a number": {"spec__backoffLimit": True},
    "a fraction": {"spec__backoffLimit": 0.5},
    "a number for a text": {"spec__runNonce": 2},
    "a text for a truth": {"spec__sink__create": "yes"},
    "a mapping for a list": {"spec__steps": _STEP},
    "a list for a mapping": {"spec__source__files__types": ["a"]},
    "a truth for a property": {"spec__sparkConf": {"spark.x": True}},
    "a number for a type": {"spec__source__files__types": {"a": 1}},
    "null for a required field": {"spec__checkpoint__uri": None},
    "null for a section": {"spec__sink__iceberg": {"catalog": None, "table": "a.b"}},
    "a list for arguments": {"spec__steps": [{"call": "m:f", "arguments": [1]}]},
    "a text for a template": {"spec__driver": {"template": "x"}},
    "a text in a template": {"spec__driver": {"template": {"spec": "x"}}},
    # sizes and durations
    "a broken size without quotes": {"spec__source__files__splitSize": 0.5},
    "a negative size without quotes": {"spec__checkpoint__minimumBytes": -1},
    "no size without quotes": {"spec__source__files__splitSize": 0},
    "no size with an exponent": {"spec__source__files__splitSize": "0e5"},
    "a truth for a size": {"spec__source__files__splitSize": True},
    "thousandths of a byte": {"spec__checkpoint__minimumBytes": "100m"},
    "a size that overflows by its exponent": {"spec__sink__targetFileSize": "1e19"},
    "a size in bytes of its own": {"spec__checkpoint__minimumBytes": "8MB"},
    "a size with a sign": {"spec__checkpoint__minimumBytes": "-8Mi"},
    "a size of nothing": {"spec__source__files__splitSize": "0"},
    "a size of no Mi": {"spec__driver": {"memory": "0Mi"}},
    "a size that no number holds": {"spec__sink__targetFileSize": "9999999999Ti"},
    "a size just too large": {"spec__sink__targetFileSize": "8388608Ti"},
    "a duration without a unit": {"spec__checkpoint__interval": "60"},
    "a duration without quotes": {"spec__checkpoint__interval": 60},
    "a duration in days": {"spec__checkpoint__interval": "1d"},
    "a duration with a sign": {"spec__checkpoint__interval": "-5m"},
    "a duration below a nanosecond": {"spec__checkpoint__interval": "0.0000001us"},
    "a duration of three hundred years": {"spec__checkpoint__interval": "2628000h"},
    "a duration of nothing": {"spec__checkpoint__interval": "0s"},
    "a duration without text": {"spec__checkpoint__interval": ""},
    "a duration with a line break": {"spec__checkpoint__interval": "5m\n"},
    "a duration with too many digits": {"spec__checkpoint__interval": "9" * 400 + "s"},
    # bounds
    "too few executors": {"spec__executor": {"instances": -1}},
    "too many executors": {"spec__executor": {"instances": 10_001}},
    "no cores": {"spec__driver": {"cores": 0}},
    "fewest executors and no most": {"spec__executor": {"minInstances": 1}},
    "more executors at the least than at the most": {"spec__executor": {"minInstances": 3, "instances": 2}},
    "fewer executors than none": {"spec__executor": {"minInstances": -1, "instances": 2}},
    "GPUs without executors": {"spec__executor": {"gpus": 1, "instances": 0}},
    "fewer GPUs than none": {"spec__executor": {"gpus": -1}},
    "GPUs that tasks cannot share": {"spec__executor": {"gpus": 2, "tasksPerExecutor": 3}},
    "tasks that GPUs cannot be given to": {"spec__executor": {"gpus": 3, "tasksPerExecutor": 2}},
    "executors without tasks": {"spec__executor": {"tasksPerExecutor": 0}},
    "a GPU resource without a domain": {"spec__executor": {"gpus": 1, "gpuResource": "gpu"}},
    "a GPU resource whose name has a dot": {"spec__executor": {"gpus": 1, "gpuResource": "nvidia.com/mig-1g.5gb"}},
    "a negative limit": {"spec__backoffLimit": -1},
    "a limit that is too large": {"spec__backoffLimit": 1001},
    "no deadline at all": {"spec__activeDeadlineSeconds": 0},
    "a hasty progress deadline": {"spec__progressDeadlineSeconds": 9},
    "a progress deadline below two seals": {"spec__checkpoint__interval": "1m30s", "spec__progressDeadlineSeconds": 1799},
    "a progress deadline below two seals of any size": {
        "spec__checkpoint__interval": "1m30s",
        "spec__checkpoint__minimumBytes": "0",
        "spec__progressDeadlineSeconds": 179,
    },
    "a progress deadline at the default interval": {"spec__progressDeadlineSeconds": 600},
    "a progress deadline in quotes": {"spec__progressDeadlineSeconds": "600"},
    "a negative time to live": {"spec__ttlSecondsAfterFinished": -1},
    "a time to live of centuries": {"spec__ttlSecondsAfterFinished": 1 << 31},
    "a path without text": {"spec__source__files__paths": [""]},
    "a path that is too long": {"spec__source__files__paths": ["a" * 1025]},
    "too many paths": {"spec__source__files__paths": ["a"] * 1025},
    "an empty list of paths": {"spec__source__files__paths": []},
    "no columns": {"spec__source__columns": []},
    "a column name that is too long": {"spec__source__columns": ["a" * 513]},
    "too many key columns": {"spec__source": {"spark": {**_ORC, "keyColumns": ["a"] * 17}}},
    "an empty list of key columns": {"spec__source": {"spark": {**_ORC, "keyColumns": []}}},
    "a union of one": {"spec__source": {"union": [{"files": _CSV}]}},
    "a union of too many": {"spec__source": {"union": [{"files": _CSV}] * 17}},
    "a delimiter of two": {"spec__source__files__csv": {"delimiter": "||"}},
    "no delimiter": {"spec__source__files__csv": {"delimiter": ""}},
    "too many texts for NULL": {"spec__source__files__csv": {"nullValues": ["a"] * 65}},
    "too many steps": {"spec__steps": [_STEP] * 65},
    "a nonce that is too long": {"spec__runNonce": "a" * 129},
    "too many properties": {"spec__sparkConf": {f"spark.{number}": "" for number in range(257)}},
    "a property that is too long": {"spec__sparkConf": {"spark.x": "a" * 8193}},
    "too many partition fields": {
        "spec__sink": {"iceberg": _ICEBERG, "create": True, "partitionBy": [{"column": str(n)} for n in range(17)]}
    },
    # words
    "a format of files that only Spark reads": {"spec__source__files__format": "orc"},
    "a format in the wrong case": {"spec__source__files__format": "CSV"},
    "a format that is no word": {"spec__source": {"spark": {**_ORC, "format": "x ml"}}},
    "a program of rows by key and of a stream": {"spec__source": {"program": {**_PROGRAM, "stream": {}}}},
    "a stream without a volume": {
        "spec__source": {"program": {**_STREAM, "stream": {}}},
        "spec__checkpoint": {"uri": "s3://b/ck"},
    },
    "a volume without a claim": {
        "spec__source": {"program": {**_STREAM, "stream": {"checkpointVolume": {}}}},
        "spec__checkpoint": {"uri": "s3://b/ck"},
    },
    "a program without keys": {"spec__source": {"program": {"call": "jobs:main"}}},
    "neither format nor table": {"spec__source": {"spark": {"paths": ["/a"], "keyColumns": ["a"]}}},
    "both format and table": {"spec__source": {"spark": {**_JDBC, "table": "a.b"}}},
    "a table with paths": {"spec__source": {"spark": {"table": "a.b", "paths": ["/a"], "keyColumns": ["a"]}}},
    "a table name with a space": {"spec__source": {"spark": {"table": "a b", "keyColumns": ["a"]}}},
    "a program that is no callable": {"spec__source": {"program": {**_PROGRAM, "call": "m.f"}}},
    "columns of a program": {"spec__source": {"program": _PROGRAM, "columns": ["id"]}},
    "a condition on what Spark reads": {"spec__source": {"spark": _ORC, "where": "id > 1"}},
    "a condition on a program": {"spec__source": {"program": _PROGRAM, "where": "id > 1"}},
    "a literal password": {"spec__source": {"spark": {**_JDBC, "options": {"password": "geheim"}}}},
    "a literal secret in another case": {"spec__source": {"spark": {**_JDBC, "options": {"fs.s3a.Secret.key": "geheim"}}}},
    "a literal pwd": {"spec__source": {"spark": {**_JDBC, "options": {"pwd": "geheim"}}}},
    "a literal apiKey": {"spec__source": {"spark": {**_JDBC, "options": {"es.apiKey": "geheim"}}}},
    "a password with a variable in it": {"spec__source": {"spark": {**_JDBC, "options": {"password": "x${env:PASSWORD}"}}}},
    "a password in a url": {"spec__source": {"spark": {**_JDBC, "options": {"url": "jdbc:x://h/db?user=a&Password=geheim"}}}},
    "a password before the host": {"spec__source": {"spark": {**_JDBC, "options": {"url": "mongodb://me:geheim@host/db"}}}},
    "an unknown compression": {"spec__source__files__compression": "Zip"},
    "a compression in the wrong case": {"spec__source__files__compression": "gzip"},
    "an unknown rule for columns": {"spec__source__files__schema": "Merge"},
    "how to read CSV, of JSON": {"spec__source__files": {"format": "json", "paths": ["/a"], "csv": {}}},
    "types of Parquet": {"spec__source__files": {**_PARQUET, "partitions": "Ignore", "types": {"a": "int64"}}},
    "types of binary files": {"spec__source__files": {**_BINARY, "partitions": "Ignore", "types": {"content": "string"}}},
    "a compression of binary files": {"spec__source__files": {**_BINARY, "compression": "Gzip"}},
    "options of CSV for binary files": {"spec__source__files": {**_BINARY, "csv": {}}},
    "a compression of Parquet": {"spec__source__files": {**_PARQUET, "compression": "Gzip"}},
    "an output without columns": {"spec__steps": [{"call": "m:f", "output": {}}]},
    "an output without types": {"spec__steps": [{"call": "m:f", "output": ["id"]}]},
    "an unknown input": {"spec__steps": [{"call": "m:f", "input": "polars"}]},
    "a callable without a colon": {"spec__steps": [{"call": "module.function"}]},
    "a callable that begins with a digit": {"spec__steps": [{"call": "1m:f"}]},
    "a callable with a space": {"spec__steps": [{"call": "m m:f"}]},
    "a table without a namespace": {"spec__sink__iceberg": {"catalog": "c", "table": "flights"}},
    "a table with an empty part": {"spec__sink__iceberg": {"catalog": "c", "table": "a..b"}},
    "no catalog": {"spec__sink__iceberg": {"catalog": "", "table": "a.b"}},
    "a word in the wrong case": {"spec__onCodeChange": "continue"},
    "a share above 100 %": {"spec__quarantine": {"maxShare": "100.1%"}},
    "a share far above 100 %": {"spec__quarantine": {"maxShare": "250%"}},
    "a share without its sign": {"spec__quarantine": {"maxShare": "0.1"}},
    "a share as a number": {"spec__quarantine": {"maxShare": 0.1}},
    "a share that is too fine": {"spec__quarantine": {"maxShare": "0.00001%"}},
    "a negative number of rows": {"spec__quarantine": {"maxRows": -1}},
    "too many rows that may fail": {"spec__quarantine": {"maxRows": 1_000_001}},
    "an unknown retry": {"spec__quarantine": {"retry": "Always"}},
    "an unknown policy for rows": {"spec__onRowError": "Skip"},
    "an unknown word": {"spec__onReplaced": "Ignore"},
    "an unknown transform": {
        "spec__sink": {"iceberg": _ICEBERG, "create": True, "partitionBy": [{"column": "a", "transform": "bucket"}]}
    },
    "a bucket transform without buckets": {
        "spec__sink": {"iceberg": _ICEBERG, "create": True, "partitionBy": [{"column": "a", "transform": "bucket[0]"}]}
    },
    "an image with a space": {"spec__image": "a b"},
    "an image without a name": {"spec__image": ""},
    "an image name that is too long": {"spec__image": "a" * 513},
    "a service account with capitals": {"spec__serviceAccountName": "Driver"},
    "a Secret with a slash": {"spec__storageSecretName": "a/b"},
    "a ConfigMap with capitals": {"spec__code": {"configMap": {"name": "Code"}}},
    "code of another kind": {"spec__code": {"uri": "s3://bucket/flights.jar"}},
    "code in a bucket without a key": {"spec__code": {"uri": "s3://flights.py"}},
    # what does not go together
    "no kind of source": {"spec__source": {"columns": ["a"]}},
    "a null source": {"spec__source": {"files": None}},
    "files and a table": {"spec__source": {"files": _CSV, **_ICEBERG_SOURCE}},
    "two source tables": {"spec__source": {**_ICEBERG_SOURCE, "lance": {"uri": "/a"}}},
    "topics beside files": {"spec__source": {"files": _CSV, "kafka": _KAFKA}},
    "topics in a union": {"spec__source": {"union": [{"files": _CSV}, {"kafka": _KAFKA}]}},
    "neither topics nor a pattern": {"spec__source": {"kafka": {"bootstrapServers": ["b:1"], "format": "raw"}}},
    "topics and a pattern": {"spec__source": {"kafka": {**_KAFKA, "pattern": "x"}}},
    "a topic twice": {"spec__source": {"kafka": {**_KAFKA, "topics": ["a", "a"]}}},
    "a topic of another name than topics have": {"spec__source": {"kafka": {**_KAFKA, "topics": ["a b"]}}},
    "no broker": {"spec__source": {"kafka": {**_KAFKA, "bootstrapServers": []}}},
    "a broker without a port": {"spec__source": {"kafka": {**_KAFKA, "bootstrapServers": ["broker"]}}},
    "types of raw records": {"spec__source": {"kafka": {**_KAFKA, "types": {"a": "int64"}}}},
    "types of Avro": {"spec__source": {"kafka": {**_KAFKA, "format": "avro", "types": {"a": "int64"}}}},
    "metadata of raw records": {"spec__source": {"kafka": {**_KAFKA, "metadata": ["offset"]}}},
    "metadata that records do not have": {"spec__source": {"kafka": {**_KAFKA_JSON, "metadata": ["age"]}}},
    "lost records that are passed over in silence": {"spec__source": {"kafka": {**_KAFKA, "onLost": "Skip"}}},
    "no offsets at all": {"spec__source": {"kafka": {**_KAFKA, "maxOffsets": 0}}},
    "a union beside files": {"spec__source": {"files": _CSV, "union": [{"files": _CSV}, _ICEBERG_SOURCE]}},
    "a member of nothing": {"spec__source": {"union": [{"files": _CSV}, {}]}},
    "a member of two": {"spec__source": {"union": [{"files": _CSV}, {"files": _CSV, **_ICEBERG_SOURCE}]}},
    "a member that only Spark reads": {"spec__source": {"union": [{"files": _CSV}, {"spark": _ORC}]}},
    "a union of a table with itself": {"spec__source": {"union": [_ICEBERG_SOURCE, _ICEBERG_SOURCE]}},
    "a union of a dataset with itself": {"spec__source": {"union": [{"lance": {"uri": "/a"}}, {"lance": {"uri": "/a"}}]}},
    "a union that feeds itself": {
        "spec__source": {"union": [{"files": _CSV}, _ICEBERG_SOURCE]},
        "spec__sink": {"iceberg": _ICEBERG},
    },
    "a snapshot and a branch": {"spec__source": {"iceberg": {"catalog": "c", "table": "a.b", "snapshotId": 1, "branch": "x"}}},
    "a snapshot in quotes": {"spec__source": {"iceberg": {"catalog": "c", "table": "a.b", "snapshotId": "1"}}},
    "a source table without a namespace": {"spec__source": {"iceberg": {"catalog": "c", "table": "b"}}},
    "version 0 of a dataset": {"spec__source": {"lance": {"uri": "/a", "version": 0}}},
    "a source dataset with an escaped name": {"spec__source": {"lance": {"uri": "s3://bucket/a%20b.lance"}}},
    "a condition without text": {"spec__source__where": ""},
    "a condition that is too long": {"spec__source__where": "a" * 4097},
    "a table that feeds itself": {"spec__source": _ICEBERG_SOURCE, "spec__sink": {"iceberg": _ICEBERG}},
    "a dataset that feeds itself": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__sink": {"lance": {"uri": "/x"}},
    },
    "columns for rows of another dataset": {
        "spec__source": {"lance": {"uri": "/y"}},
        "spec__steps": _STEPS,
        "spec__sink": _ADDED,
    },
    "columns for rows of files": {"spec__steps": _STEPS, "spec__sink": _ADDED},
    "columns for rows of an old version": {
        "spec__source": {"lance": {"uri": "/x", "version": 3}},
        "spec__steps": _STEPS,
        "spec__sink": _ADDED,
    },
    "columns that nothing makes": {"spec__source": {"lance": {"uri": "/x"}}, "spec__sink": _ADDED},
    "columns without names": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {"lance": {"uri": "/x"}, "mode": "AddColumns"},
    },
    "a column that is named twice to be added": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {**_ADDED, "columns": ["a", "a"]},
    },
    "columns of an append": {"spec__sink": {"iceberg": _ICEBERG, "columns": ["a"]}},
    "only some rows of an append": {"spec__sink": {"iceberg": _ICEBERG, "only": "All"}},
    "columns for rows of an Iceberg table": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {"iceberg": _ICEBERG, "mode": "AddColumns", "columns": ["a"]},
    },
    "columns for rows that are made": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {**_ADDED, "create": True},
    },
    "columns in place of those of others": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {**_ADDED, "onConcurrent": "Replace"},
    },
    "columns in a storage version of their own": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": {**_ADDED, "lance": {"uri": "/x", "layout": {"dataStorageVersion": "2.1"}}},
    },
    "columns for rows that failed": {
        "spec__source": {"lance": {"uri": "/x"}},
        "spec__steps": _STEPS,
        "spec__sink": _ADDED,
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"retry": "Also"},
    },
    "two places of code": {"spec__code": {"path": "/code", "uri": "s3://bucket/flights.py"}},
    "three places of code": {"spec__code": {"path": "/c", "configMap": {"name": "c"}, "uri": "s3://bucket/flights.py"}},
    "no kind of sink": {"spec__sink": {"create": True}},
    "a null sink": {"spec__sink": {"iceberg": None}},
    "two sinks": {"spec__sink": {"iceberg": _ICEBERG, "none": {}}},
    "two other sinks": {"spec__sink": {"lance": {"uri": "/x"}, "none": {}}},
    "a tag with the name of the branch": {"spec__sink": {"iceberg": {**_ICEBERG, "branch": "a", "tag": "a"}}},
    "a tag with the name of main": {"spec__sink": {"iceberg": {**_ICEBERG, "branch": "a", "tag": "main"}}},
    "an unknown variable in a tag": {"spec__sink": {"iceberg": {**_ICEBERG, "tag": "run-{attempt}"}}},
    "a branch with the name of an audit": {"spec__sink": {"iceberg": {**_ICEBERG, "branch": "cw-audit-a"}}},
    "a tag with the name of an audit": {"spec__sink": {"iceberg": {**_ICEBERG, "tag": "cw-audit-{epoch}"}}},
    "an audit that is no function": {"spec__sink": {"iceberg": _ICEBERG, "audit": "checks.py"}},
    "an audit of a dataset": {"spec__sink": {"lance": {"uri": "/x"}, "audit": "checks:run"}},
    "an audit of no table": {"spec__sink": {"none": {}, "audit": "checks:run"}},
    "a branch without a name": {"spec__sink": {"iceberg": {**_ICEBERG, "branch": ""}}},
    "a count of Iceberg's as a property": {"spec__sink": {"iceberg": {**_ICEBERG, "snapshotProperties": {"added-records": "5"}}}},
    "the key of the commit as a property": {
        "spec__sink": {"iceberg": {**_ICEBERG, "snapshotProperties": {"checkpointed-write.key": "a/1"}}}
    },
    "a property without a name": {"spec__sink": {"iceberg": {**_ICEBERG, "snapshotProperties": {"": "x"}}}},
    "a tag with a character that Lance refuses": {"spec__sink": {"lance": {"uri": "/x", "tag": "a/b"}}},
    "a tag with two dots": {"spec__sink": {"lance": {"uri": "/x", "tag": "a..b"}}},
    "a tag with the end of a lock": {"spec__sink": {"lance": {"uri": "/x", "tag": "a.lock"}}},
    "how a dataset is made that is not to be": {"spec__sink": {"lance": {"uri": "/x", "layout": {"enableStableRowIds": True}}}},
    "a storage version that may not be read later": {
        "spec__sink": {"lance": {"uri": "/x", "layout": {"dataStorageVersion": "2.3"}}, "create": True}
    },
    "blobs that no version is chosen for": {
        "spec__sink": {"lance": {"uri": "/x", "layout": {"blobColumns": ["image"]}}, "create": True}
    },
    "blobs in a version that puts them elsewhere": {
        "spec__sink": {
            "lance": {"uri": "/x", "layout": {"dataStorageVersion": "2.2", "blobColumns": ["image"]}},
            "create": True,
        }
    },
    "vectors without numbers": {
        "spec__sink": {"lance": {"uri": "/x", "layout": {"vectorColumns": {"a": {"dimension": 0}}}}, "create": True}
    },
    "overwriting": {"spec__sink__mode": "Overwrite"},
    "a mode in the wrong case": {"spec__sink__mode": "append"},
    "a mode that a dataset has not": {"spec__sink": {"lance": {"uri": "/x"}, "mode": "OverwritePartitions"}},
    "an upsert without keys": {"spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert"}},
    "an upsert of no keys": {"spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": []}},
    "an upsert with a key twice": {"spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["id", "id"]}},
    "keys of an append": {"spec__sink": {"iceberg": _ICEBERG, "upsertKeys": ["id"]}},
    "matched rows of an append": {"spec__sink": {"iceberg": _ICEBERG, "whenMatched": "Ignore"}},
    "the last row of an append": {"spec__sink": {"iceberg": _ICEBERG, "onDuplicate": "Last", "orderBy": "a"}},
    "the last row without an order": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["id"], "onDuplicate": "Last"}
    },
    "an order without the last row": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["id"], "orderBy": "a"}
    },
    "the last row of those that are deleted": {
        "spec__sink": {
            "iceberg": _ICEBERG,
            "mode": "Upsert",
            "upsertKeys": ["id"],
            "whenMatched": "Delete",
            "onDuplicate": "Last",
            "orderBy": "a",
        }
    },
    "rows of others that an upsert is to replace": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "Upsert", "upsertKeys": ["id"], "onConcurrent": "Replace"}
    },
    "a mode without a table": {"spec__sink": {"none": {}, "mode": "OverwriteAll"}},
    "a condition without its mode": {"spec__sink": {"iceberg": _ICEBERG, "where": "a = 1"}},
    "a condition that is missing": {"spec__sink": {"iceberg": _ICEBERG, "mode": "OverwriteWhere"}},
    "rows of others that an append is to replace": {"spec__sink": {"iceberg": _ICEBERG, "onConcurrent": "Replace"}},
    "quarantined rows of a source that is read as a whole": {
        "spec__sink": {"iceberg": _ICEBERG, "mode": "OverwriteAll"},
        "spec__onRowError": "Quarantine",
        "spec__quarantine": {"retry": "Also"},
    },
    "partitions of a dataset": {"spec__sink": {"lance": {"uri": "/x"}, "create": True, "partitionBy": [{"column": "a"}]}},
    "partitions of a table that exists": {"spec__sink": {"iceberg": _ICEBERG, "partitionBy": [{"column": "a"}]}},
    "checks of no table": {"spec__sink": {"none": {}, "verify": "Footers"}},
    "making no table": {"spec__sink": {"none": {}, "create": True}},
    "a dataset on disk in capitals": {"spec__sink": {"lance": {"uri": "FILE:///data/a.lance"}}},
    "a dataset by the name of a file system": {"spec__sink": {"lance": {"uri": "file-object-store:///data/a.lance"}}},
    "a dataset in memory": {"spec__sink": {"lance": {"uri": "shared-memory://a.lance"}}},
    "a dataset of another host": {"spec__sink": {"lance": {"uri": "goosefs://10.0.0.1/a.lance"}}},
    "a dataset of another service": {"spec__source": {"lance": {"uri": "hf://datasets/a/b"}}},
    "a checkpoint in memory": {"spec__checkpoint__uri": "memory://a"},
    "a checkpoint in a bucket in capitals": {"spec__checkpoint__uri": "S3://bucket/a"},
    "a checkpoint without a bucket": {"spec__checkpoint__uri": "s3:///a"},
    "a checkpoint with one slash": {"spec__checkpoint__uri": "s3:/bucket/a"},
    "files of another host": {"spec__source__files__paths": ["/a", "hdfs://host/a"]},
    "code of another host": {"spec__code": {"path": "http://host/a"}},
    "a dataset with an escaped name": {"spec__sink": {"lance": {"uri": "s3://bucket/a%20b.lance"}}},
    "a master as a property": {"spec__sparkConf": {"spark.master": "x"}},
    "a driver's master as a property": {"spec__sparkConf": {"spark.kubernetes.driver.master": "x"}},
    "a namespace as a property": {"spec__sparkConf": {"spark.kubernetes.namespace": "x"}},
    "a template of executors as a property": {"spec__sparkConf": {"spark.kubernetes.executor.podTemplateFile": "x"}},
    "an annotation of executors as a property": {"spec__sparkConf": {"spark.kubernetes.executor.annotation.a.b/role": "x"}},
    "a label of the driver as a property": {"spec__sparkConf": {"spark.kubernetes.driver.label.team": "x"}},
    "a template of the driver as a property": {"spec__sparkConf": {"spark.kubernetes.driver.podTemplateContainerName": "x"}},
    "a step that changes pods as a property": {"spec__sparkConf": {"spark.kubernetes.executor.pod.featureSteps": "x"}},
    "a volume of the node as a property": {
        "spec__sparkConf": {"spark.kubernetes.executor.volumes.hostPath.root.mount.path": "x"}
    },
    "a Secret as a file as a property": {"spec__sparkConf": {"spark.kubernetes.driver.secrets.other": "x"}},
    "a Secret in the environment as a property": {"spec__sparkConf": {"spark.kubernetes.executor.secretKeyRef.X": "x"}},
    "pull Secrets as a property": {"spec__sparkConf": {"spark.kubernetes.container.image.pullSecrets": "x"}},
    "an account as a property": {"spec__sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "x"}},
    "an account of executors as a property": {
        "spec__sparkConf": {"spark.kubernetes.authenticate.executor.serviceAccountName": "x"}
    },
    "a token file as a property": {"spec__sparkConf": {"spark.kubernetes.authenticate.oauthTokenFile": "x"}},
    "a key as a property": {"spec__sparkConf": {"spark.hadoop.fs.s3a.secret.key": "geheim"}},
    "an id as a property": {"spec__sparkConf": {"spark.hadoop.fs.s3a.access.key": "geheim"}},
    "an account's key as a property": {"spec__sparkConf": {"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "geheim"}},
    "a passwd as a property": {"spec__sparkConf": {"spark.mysql.passwd": "geheim"}},
    "a pwd as a property": {"spec__sparkConf": {"spark.mysql.pwd": "geheim"}},
    "an apikey as a property": {"spec__sparkConf": {"spark.executorEnv.OPENAI_API_KEY": "geheim"}},
    "a pwd in a property": {"spec__sparkConf": {"spark.sql.catalog.a.url": "jdbc:x://h/db?user=a&pwd=geheim"}},
    "a password as a property": {"spec__sparkConf": {"spark.ssl.keyPassword": "geheim"}},
    "a token as a property": {"spec__sparkConf": {"spark.sql.catalog.a.TOKEN": "geheim"}},
    "a password in a property": {"spec__sparkConf": {"spark.sql.catalog.a.url": "jdbc:x://h/db?user=a&Password=geheim"}},
    "a password before the host in a property": {"spec__sparkConf": {"spark.sql.catalog.a.uri": "http://me:geheim@host/"}},
    "another property within a name": {"spec__sparkConf": {"spark.master=k8s://elsewhere:443;spark.x": "y"}},
    "a line within a name": {"spec__sparkConf": {"spark.x\nspark.master": "y"}},
    "a password of a server as a property": {"spec__sparkConf": {"spark.redis.auth": "geheim"}},
    "a signature of Azure as a property": {"spec__sparkConf": {"spark.hadoop.fs.azure.sas.container.account.host": "geheim"}},
    "a property that is not Spark's": {"spec__sparkConf": {"executor.memory": "1g"}},
}

#: Edits of GOOD["the smallest"] after it was applied: what a write is cannot be changed, ...
FORBIDDEN_EDITS: Final[dict[str, dict[str, Any]]] = {
    "another path": {"spec__source__files__paths": ["/b"]},
    "a path added": {"spec__source__files__paths": ["/in/*.csv", "/b"]},
    "another format": {"spec__source__files__format": "json"},
    "another compression": {"spec__source__files__compression": "Gzip"},
    "another option": {"spec__source__files__csv": {"header": False}},
    "columns added": {"spec__source__columns": ["a"]},
    "a condition added": {"spec__source__where": "a > 1"},
    "a table instead of files": {"spec__source": _ICEBERG_SOURCE},
    "a dataset instead of files": {"spec__source": {"lance": {"uri": "/a"}}},
    "files by keys": {"spec__source": {"spark": {"format": "csv", "paths": ["/in/*.csv"], "keyColumns": ["a"]}}},
    "a program instead of files": {"spec__source": {"program": _PROGRAM}},
    "a stream instead of files": {"spec__source": {"program": _STREAM}},
    "a source more": {"spec__source": {"union": [{"files": {"format": "csv", "paths": ["/in/*.csv"]}}, _ICEBERG_SOURCE]}},
    "another catalog": {"spec__sink__iceberg__catalog": "other"},
    "another table": {"spec__sink__iceberg__table": "db.flights2"},
    "another branch": {"spec__sink__iceberg__branch": "staging"},
    "another kind of sink": {"spec__sink": {"lance": {"uri": "/x"}}},
    "no sink any more": {"spec__sink": {"none": {}}},
    "another checkpoint": {"spec__checkpoint__uri": "/other"},
}

#: ... and all else can, also where it is added or spelled out only now.
ALLOWED_EDITS: Final[dict[str, dict[str, Any]]] = {
    "a table that is missing is made": {"spec__sink__create": True},
    "sizes": {
        "spec__source__files__splitSize": "1Mi",
        "spec__sink__targetFileSize": "1Mi",
        "spec__checkpoint__interval": "5s",
        "spec__checkpoint__minimumBytes": "1",
    },
    "a tag and what the snapshot says": {
        "spec__sink__iceberg__tag": "run-{epoch}",
        "spec__sink__iceberg__snapshotProperties": {"owner": "team-a"},
    },
    "an audit": {"spec__sink__audit": "checks:run"},
    "an emptied option": {"spec__source__files__csv": {"nullValues": []}},
    "how columns are united": {"spec__source__files__schema": "Same"},
    "types added": {"spec__source__files__types": {"a": "int64"}},
    "rows that fail": {"spec__onRowError": "Quarantine", "spec__quarantine": {"maxRows": 5, "retry": "Only"}},
    "steps": {"spec__steps": [{"call": "m:f", "arguments": {"a": 1}, "output": {"a": "int64"}}]},
    "code": {"spec__code": {"configMap": {"name": "code"}}},
    "pods": {
        "spec__image": "spark:2",
        "spec__driver": {"memory": "3Gi", "template": {"spec": {"nodeSelector": {"a": "b"}}}},
        "spec__executor": {"instances": 4, "minInstances": 1, "gpus": 1, "tasksPerExecutor": 2},
        "spec__sparkConf": {"spark.x": "y"},
    },
    "switches": {"spec__suspend": True, "spec__backoffLimit": 9, "spec__runNonce": "2", "spec__ttlSecondsAfterFinished": 5},
    "defaults spelled out": {
        "spec__source__files__csv": {"header": True, "delimiter": ","},
        "spec__source__files__schema": "Unite",
        "spec__source__files__types": {},
        "spec__source__columns": None,
        "spec__source__where": None,
        "spec__source__iceberg": None,
        "spec__sink__lance": None,
        "spec__sink__iceberg__branch": "main",
        "spec__sink__iceberg__tag": None,
        "spec__sink__iceberg__snapshotProperties": {},
        "spec__sink__mode": "Append",
        "spec__sink__where": None,
        "spec__sink__onConcurrent": "Fail",
        "spec__sink__create": False,
        "spec__sink__partitionBy": [],
    },
}

"""What a refused manifest becomes when somebody does what the message says: the models and the CRD have to take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.manifests import BAD, manifest


@dataclass(frozen=True, slots=True)
class Correction:
    """A wrong manifest, what is said of it, and a change for each thing that one is told to do.

    `wrong`: its name in BAD, or the changes that make it; `says`: a piece of what the models say, and the CRD too, unless
    `cluster_says` is what that one says, or "" where it refuses it in words that tell no way out, or not at all.
    """

    wrong: str | Mapping[str, Any]
    says: str
    ways: Sequence[Mapping[str, Any]]
    cluster_says: str | None = None

    @property
    def refused(self) -> dict[str, Any]:
        return dict(BAD[self.wrong] if isinstance(self.wrong, str) else self.wrong)

    def corrected(self) -> list[dict[str, Any]]:
        return [manifest(**_without_gaps(self.refused | dict(way))) for way in self.ways]


def _without_gaps(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes without those that are taken back."""
    return {path: value for path, value in changes.items() if value is not ...}


_CSV: Final = {"format": "csv", "paths": ["/in"]}
_PARQUET: Final = {"format": "parquet", "paths": ["/in"]}
_ICEBERG: Final = {"catalog": "c", "table": "a.b"}
_ICEBERG_SOURCE: Final = {"iceberg": _ICEBERG}
_KAFKA: Final = {"bootstrapServers": ["broker-1:9092"], "topics": ["orders"], "format": "raw"}
_ORC: Final = {"format": "orc", "paths": ["/in"], "keyColumns": ["id"]}
_JDBC: Final = {"format": "jdbc", "keyColumns": ["id"]}
_PROGRAM: Final = {"call": "jobs.nightly:main", "keyColumns": ["id", "day"]}
_STREAM: Final = {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}
_STEP: Final = {"call": "m:f"}
_ROW: Final = {"call": "m:f", "input": "row"}
_STAGES: Final = [{"name": "parse", "steps": [_STEP]}, {"name": "embed", "steps": [_STEP]}]
_AGGREGATE: Final = {"name": "sum", "kind": "Aggregate", "keyBy": ["a"], "steps": [_STEP]}
_DATASET: Final = {"lance": {"uri": "/x"}}
_NAMED: Final = {"namespace": "lake", "table": "raw.events"}
_ADDED: Final = {**_DATASET, "mode": "AddColumns", "columns": ["a"]}
_TEMPLATE: Final = {"template": {"spec": {"nodeSelector": {"a": "b"}}}}
_KEY_OF_A_SECRET: Final = {"name": "other", "key": "x"}
_EVERY: Final = {"every": "5m"}

_SECRET: Final = "is a secret; say ${env:NAME}, a variable of the driver's environment"
_PASSWORD: Final = " a password in it; say ${env:NAME} in its place, a variable of the driver's environment"
_TYPES: Final = (
    "types belong to CSV and JSON: Parquet files have types of their own, and so have the columns of binary files; leave them "
    "out, or cast in a step"
)
_COMPRESSION: Final = (
    "compression belongs to CSV and JSON: a Parquet file says how it is compressed, and the content of binary files is taken as "
    "it is; leave it out"
)
_FEEDS_ITSELF: Final = (
    "source and sink are one table: what a run appends would be the next one's input; use another table, or add columns to its "
    "rows (sink.mode: AddColumns)"
)
_OF_WHOLE_SOURCES: Final = (
    "with an overwriting sink.mode each epoch reads the whole source, quarantined rows too, and with AddColumns they are NULL, "
    "so that a write of another name takes them; leave it out"
)
_OF_STAGES: Final = (
    "with stages, rows that failed are known by the results of stages, which end with their epoch; leave it out, and reset the "
    "stage instead"
)

CORRECTIONS: Final = (
    # the source
    Correction(
        "a topic twice",
        "the topic a is named twice, so that its rows would come twice; name it once",
        [{"spec__source": {"kafka": {**_KAFKA, "topics": ["a"]}}}],
    ),
    Correction(
        "types of raw records",
        "types belong to format: json and jsonSchema; leave them out, or cast in a step",
        [{"spec__source": {"kafka": _KAFKA}}, {"spec__source": {"kafka": _KAFKA}, "spec__steps": [_STEP]}],
    ),
    Correction(
        "metadata of raw records",
        "metadata does not go with format: raw, which has these columns; leave it out",
        [{"spec__source": {"kafka": _KAFKA}}],
    ),
    Correction(
        "a stream without a volume",
        "in a cluster name a PersistentVolumeClaim here (claimName), on one machine say a folder on a disk in checkpoint.uri",
        [{"spec__source": {"program": _STREAM}}],
        "in a cluster Spark needs a volume for its own checkpoint of a stream; add source.program.stream.checkpointVolume, with "
        "the claimName of a PersistentVolumeClaim",
    ),
    Correction(
        {"spec__source__columns": ["a", "b", "a"]},
        "the column 'a' is named twice; name it once",
        [{"spec__source__columns": ["a", "b"]}],
        "",
    ),
    Correction(
        "a union of a table with itself",
        "is named twice, so that its rows would come twice; name it once",
        [{"spec__source": _ICEBERG_SOURCE}, {"spec__source": {"union": [_ICEBERG_SOURCE, {"files": _CSV}]}}],
    ),
    Correction(
        "a dataset that feeds itself",
        _FEEDS_ITSELF,
        [{"spec__sink": {"lance": {"uri": "/y"}}}, {"spec__sink": _ADDED, "spec__steps": [_ROW]}],
    ),
    Correction(
        "how to read CSV, of JSON",
        "csv belongs to format: csv; leave it out",
        [{"spec__source__files": {"format": "json", "paths": ["/a"]}}],
    ),
    Correction(
        "types of Parquet",
        _TYPES,
        [{"spec__source__files": _PARQUET}, {"spec__source__files": _PARQUET, "spec__steps": [_STEP]}],
    ),
    Correction("a compression of Parquet", _COMPRESSION, [{"spec__source__files": _PARQUET}]),
    Correction(
        "a table with paths",
        "a table has no paths; leave them out, or name a format instead of the table",
        [{"spec__source": {"spark": {"table": "a.b", "keyColumns": ["a"]}}}, {"spec__source": {"spark": _ORC}}],
    ),
    Correction(
        "a condition on what Spark reads",
        "where does not go with spark and program; say it in sql, or in the program",
        [
            {"spec__source": {"spark": {**_ORC, "sql": "SELECT * FROM input WHERE id > 1"}}},
            {"spec__source": {"program": _PROGRAM}},
        ],
    ),
    Correction(
        "a literal password",
        "password " + _SECRET,
        [{"spec__source": {"spark": {**_JDBC, "options": {"password": "${env:PASSWORD}"}}}}],
    ),
    Correction(
        "a password in a url",
        "url has" + _PASSWORD,
        [{"spec__source": {"spark": {**_JDBC, "options": {"url": "jdbc:x://h/db?user=a&password=${env:PASSWORD}"}}}}],
    ),
    # URIs
    Correction(
        "a checkpoint in a bucket in capitals", "write the scheme in lower case", [{"spec__checkpoint__uri": "s3://bucket/a"}], ""
    ),
    Correction(
        "a checkpoint in memory",
        "use a path, file: or one of s3://, s3a://, gs://, gcs://, az://, abfs://, abfss:// with a bucket "
        "(a path may begin with ./)",
        [
            {"spec__checkpoint__uri": uri}
            for uri in ("/a", "./a:b", "file:///a", "s3://b/a", "s3a://b/a", "gs://b/a", "gcs://b/a", "az://b/a", "abfs://b/a")
        ],
        "",
    ),
    Correction(
        {"spec__checkpoint__uri": "s3://bucket/a/../b"},
        ". and .. are no folders of a bucket, and lead elsewhere; write the path without them",
        [{"spec__checkpoint__uri": "s3://bucket/b"}],
        "",
    ),
    Correction(
        "a dataset with an escaped name",
        "Lance takes %20 and the like in a URI for other characters; use a name without %",
        [{"spec__sink": {"lance": {"uri": "s3://bucket/a-b.lance"}}}],
    ),
    # steps and stages
    Correction(
        {"spec__steps": [{"call": "m:f", "input": "row", "batchSize": 10}]},
        "a row step receives one row at a time; leave it out, and see concurrency",
        [{"spec__steps": [{"call": "m:f", "input": "row", "concurrency": 10}]}],
    ),
    Correction(
        {"spec__steps": [_STEP, {**_ROW, "memo": True}]},
        "a batch step before this one hides which source row a result comes from; move this step before it",
        [{"spec__steps": [{**_ROW, "memo": True}, _STEP]}],
        "",
    ),
    Correction(
        {"spec__steps": [{"call": "m:f", "arguments": {"it": "x" * 300_000}}]},
        "at most; put more into a file",
        [{"spec__steps": [{"call": "m:f", "arguments": {"it": "/code/it.json"}}]}],
        "",
    ),
    Correction(
        "stages beside steps",
        "stages replace steps: put the steps into a stage, or leave the stages out",
        [{"spec__steps": ..., "spec__stages": [*_STAGES, {"name": "last", "steps": [_STEP]}]}, {"spec__stages": ...}],
    ),
    Correction(
        "two stages of one name",
        "two stages are called 'parse'; give each a name of its own",
        [{"spec__stages": [*_STAGES, {"name": "third", "steps": [_STEP]}]}],
    ),
    Correction(
        {
            "spec__stages": _STAGES,
            "spec__onRowError": "Quarantine",
            "spec__quarantine": {"retry": "Also"},
        },
        _OF_STAGES,
        [{"spec__quarantine": {}, "spec__reset": {"stages": ["parse"], "nonce": "2"}}],
    ),
    Correction(
        "changed rows that are appended",
        "so that the table would have them twice; set sink.mode: Upsert",
        [{"spec__sink": {"lance": {"uri": "/out.lance"}, "mode": "Upsert", "upsertKeys": ["id"]}}],
    ),
    Correction(
        "changed rows of files",
        "changes: Upserts applies to source.lance and source.iceberg; leave it out",
        [{"spec__source": {"files": _CSV}}],
    ),
    Correction(
        "changed rows that are tried again",
        "with source.changes: Upserts, a row that failed is taken again when it changes; leave it out",
        [{"spec__quarantine": {}}],
    ),
    Correction(
        "a reset that names no stages",
        "say which stages are computed again: reset.stages names them",
        [{"spec__reset": {"stages": ["embed"], "nonce": "2"}}],
    ),
    Correction(
        "results of another write without stages",
        "only results of stages are taken over, and that of the last one is in the table of the other write; divide the steps "
        "into stages",
        [{"spec__stages": _STAGES, "spec__steps": ...}],
    ),
    Correction(
        "results of another write that read a topic",
        "inherit applies to source.files and source.lance; leave it out",
        [{"spec__inherit": ...}],
    ),
    Correction(
        {"spec__source": _DATASET, "spec__stages": _STAGES, "spec__sink": _ADDED},
        "AddColumns adds columns to the rows of the source, but stages replace these rows; use steps",
        [{"spec__stages": ..., "spec__steps": [_STEP]}],
    ),
    Correction(
        "keys of rows that do not come together",
        "rows come together in an Aggregate only; add kind: Aggregate",
        [{"spec__stages": [_AGGREGATE]}],
    ),
    Correction(
        "buckets without keys",
        "without keyBy all rows are in one; leave it out, or add keyBy",
        [{"spec__stages": [{**_AGGREGATE, "keyBy": []}]}, {"spec__stages": [{**_AGGREGATE, "buckets": 5}]}],
    ),
    Correction(
        "rows that come together and are not kept",
        "the result of an Aggregate is kept, as rows came together for it; leave it out",
        [{"spec__stages": [_AGGREGATE, *_STAGES]}],
    ),
    Correction(
        "rows of a key in parts",
        "an Aggregate's steps get all rows of a key at once: arrow or pandas, without batchSize; what is done row by row "
        "belongs to a stage before or after it",
        [{"spec__stages": [_AGGREGATE]}],
    ),
    Correction(
        "rows of a key one by one",
        "an Aggregate's steps get all rows of a key at once: arrow or pandas, without batchSize; what is done row by row "
        "belongs to a stage before or after it",
        [{"spec__stages": [{"name": "before", "steps": [_ROW]}, _AGGREGATE, {"name": "after", "steps": [_ROW]}]}],
    ),
    Correction(
        "the name of a shuffle",
        "'sum-shuffle' is the name of the pass before the Aggregate; give the stage another name",
        [{"spec__stages": [{"name": "add", "steps": [_STEP]}, _AGGREGATE]}],
    ),
    # triggers
    Correction(
        "a trigger and a time to live",
        "a write with a trigger never finishes; leave one of them out",
        [{"spec__trigger": ...}, {"spec__ttlSecondsAfterFinished": ...}],
    ),
    Correction(
        "a trigger of a write that overwrites",
        "each epoch of a write that overwrites reads the whole source, so that none of it is new; leave it out",
        [{"spec__trigger": ..., "spec__runNonce": "2"}],
    ),
    Correction(
        "at least of rows known by keys",
        "atMost and atLeast count files, and this source has none that can be counted; leave them out",
        [{"spec__trigger": _EVERY}],
    ),
    Correction(
        "at most of a table",
        "atMost applies only to files; from a table, an epoch takes all new rows: leave it out",
        [{"spec__trigger": _EVERY}],
    ),
    Correction(
        "a time zone without cron",
        "timeZone goes with cron; leave it out",
        [{"spec__trigger": _EVERY}],
    ),
    Correction(
        "a progress deadline at the default interval",
        "twice what a seal may take: attempts at work would be given up; leave it out, or raise it, or lower the interval",
        [
            {"spec__progressDeadlineSeconds": ...},
            {"spec__progressDeadlineSeconds": 1200},
            {"spec__checkpoint__interval": "30s"},
        ],
    ),
    # rows that fail
    Correction(
        "columns for rows that failed",
        _OF_WHOLE_SOURCES,
        [{"spec__quarantine": {}}, {"spec__quarantine": {}, "metadata__name": "another"}],
    ),
    Correction(
        "quarantined rows of a source that is read as a whole",
        _OF_WHOLE_SOURCES,
        [{"spec__quarantine": {}}],
    ),
    # tables of namespaces
    Correction(
        {"spec__sink": {"lance": {"uri": "/x", "table": "a"}}},
        "namespace and table are given together; name both, or a uri instead",
        [{"spec__sink": _DATASET}, {"spec__sink": {"lance": _NAMED}}],
    ),
    Correction(
        {"spec__sink": {"lance": {"uri": "/x", **_NAMED}}},
        "exactly one of uri and namespace is expected",
        [{"spec__sink": _DATASET}, {"spec__sink": {"lance": _NAMED}}],
    ),
    Correction(
        {"spec__source": {"lance": _NAMED}, "spec__sink": {"lance": _NAMED}},
        "source and sink are one table: what a run appends would be the next one's input; use another table, or add columns",
        [{"spec__source": _DATASET}, {"spec__sink": {**_ADDED, "lance": _NAMED}, "spec__steps": [_STEP]}],
    ),
    # columns for rows that are there
    Correction(
        "columns for rows of an old version",
        "sink.mode: AddColumns adds columns to the rows that are read: name the dataset of the sink as the source, too "
        "(source.lance), without a version",
        [{"spec__source": _DATASET}],
    ),
    Correction(
        "columns for rows of files",
        "sink.mode: AddColumns adds columns to the rows that are read: name the dataset of the sink as the source, too "
        "(source.lance), without a version",
        [{"spec__source": _DATASET}],
    ),
    Correction(
        "columns that nothing makes",
        "nothing makes the columns of sink.columns; add a step",
        [{"spec__steps": [_STEP]}],
    ),
    Correction(
        "a column that is named twice to be added",
        "the column 'a' is named twice; name it once",
        [{"spec__sink": _ADDED}],
    ),
    # the sink
    Correction(
        "an audit of a dataset",
        "lance has nothing that holds rows which readers do not see; check rows in a step",
        [{"spec__sink": _DATASET, "spec__steps": [_STEP]}],
    ),
    Correction(
        "how a dataset is made that is not to be",
        "lance.layout needs create: true (an existing dataset stays as it was made)",
        [{"spec__sink__create": True}],
    ),
    Correction(
        "a tag with the name of the branch",
        "tag and branch are one name; give the tag another",
        [{"spec__sink": {"iceberg": {**_ICEBERG, "branch": "a", "tag": "b"}}}],
    ),
    Correction(
        "a tag with the name of main",
        "main is a branch of each table; give the tag another name",
        [{"spec__sink": {"iceberg": {**_ICEBERG, "branch": "a", "tag": "b"}}}],
    ),
    Correction(
        "a branch with the name of an audit",
        "names that begin with cw-audit- are those of audits; take another",
        [{"spec__sink": {"iceberg": {**_ICEBERG, "branch": "audit"}}}],
    ),
    Correction(
        "a count of Iceberg's as a property",
        "'added-records' is what Iceberg or the commit says by itself; take another name",
        [{"spec__sink": {"iceberg": {**_ICEBERG, "snapshotProperties": {"rows-of-mine": "5"}}}}],
    ),
    Correction(
        "a tag with the end of a lock",
        "Lance takes no tag that ends with .lock; take another name",
        [{"spec__sink": {"lance": {"uri": "/x", "tag": "a.locked"}}}],
    ),
    # pods and Spark
    Correction(
        "fewest executors and no most",
        "minInstances is the minimum number of pods; also set instances, the maximum",
        [{"spec__executor": {"minInstances": 1, "instances": 2}}],
    ),
    Correction(
        "more executors at the least than at the most",
        "minInstances is the minimum number of pods; also set instances, the maximum, which must not be less",
        [{"spec__executor": {"minInstances": 2, "instances": 2}}, {"spec__executor": {"minInstances": 3, "instances": 3}}],
    ),
    Correction(
        "GPUs without executors",
        "gpus are for executors, and with instances: 0 there are none (the driver pod has no GPU); leave one of them out",
        [{"spec__executor": {"gpus": 1}}, {"spec__executor": {"instances": 0}}],
    ),
    Correction(
        "GPUs that tasks cannot share",
        "tasks do not share gpus evenly: each task must have whole GPUs, or each GPU must have the same number of tasks; let "
        "one of tasksPerExecutor and gpus be a multiple of the other",
        [{"spec__executor": {"gpus": 2, "tasksPerExecutor": 4}}, {"spec__executor": {"gpus": 6, "tasksPerExecutor": 3}}],
    ),
    Correction(
        "a master as a property",
        "the master is the API server of the pod's own cluster (on one machine, this process); leave it out",
        [{"spec__sparkConf": {}}],
    ),
    Correction(
        "a namespace as a property",
        "pods are made in the namespace of the write; leave it out",
        [{"spec__sparkConf": {}}],
    ),
    Correction(
        "a template of executors as a property",
        "say driver.template or executor.template",
        [{"spec__sparkConf": {}, "spec__driver": _TEMPLATE}, {"spec__sparkConf": {}, "spec__executor": _TEMPLATE}],
    ),
    Correction(
        "a volume of the node as a property",
        "say volumes and volumeMounts in driver.template or executor.template",
        [
            {
                "spec__sparkConf": {},
                f"spec__{role}": {
                    "template": {
                        "spec": {
                            "volumes": [{"name": "a", "emptyDir": {}}],
                            "containers": [{"name": role, "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
                        }
                    }
                },
            }
            for role in ("driver", "executor")
        ],
    ),
    Correction(
        "a Secret in the environment as a property",
        "say env with valueFrom, or a volume, in driver.template or executor.template",
        [
            {
                "spec__sparkConf": {},
                f"spec__{role}": {
                    "template": {
                        "spec": {
                            "volumes": [{"name": "a", "secret": {"secretName": "other"}}],
                            "containers": [
                                {
                                    "name": role,
                                    "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "other", "key": "x"}}}],
                                }
                            ],
                        }
                    }
                },
            }
            for role in ("driver", "executor")
        ],
    ),
    Correction(
        "pull Secrets as a property",
        "say imagePullSecrets in driver.template and executor.template",
        [
            {
                "spec__sparkConf": {},
                "spec__driver": {"template": {"spec": {"imagePullSecrets": [{"name": "a"}]}}},
                "spec__executor": {"template": {"spec": {"imagePullSecrets": [{"name": "a"}]}}},
            }
        ],
    ),
    Correction(
        "an account as a property",
        "say serviceAccountName of the spec; executors have no token",
        [{"spec__sparkConf": {}, "spec__serviceAccountName": "driver"}],
    ),
    Correction(
        "a key as a property",
        "spark.hadoop.fs.s3a.secret.key " + _SECRET,
        [{"spec__sparkConf": {"spark.hadoop.fs.s3a.secret.key": "${env:KEY}"}}],
    ),
    Correction(
        "a password in a property",
        "spark.sql.catalog.a.url has" + _PASSWORD,
        [{"spec__sparkConf": {"spark.sql.catalog.a.url": "jdbc:x://h/db?user=a&password=${env:PASSWORD}"}}],
    ),
)

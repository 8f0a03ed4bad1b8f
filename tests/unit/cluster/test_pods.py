"""The driver's pod: what stands in it, what a template may change and what not."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from checkpoint_operator.config import WorkloadDefaults
from checkpoint_operator.pods.capacity import memory_overhead
from checkpoint_operator.pods.driver_pod import EDIT_ANNOTATION, Owner, driver_pod, keys_secret, merge, pod_name
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, ManifestInvalid, Spec, parse_manifest
from checkpoint_protocol.store.macs import WriteKeys
from checkpoint_work.process.code import FOLDER_VARIABLE
from checkpoint_work.process.settings import RECORD_KEYS_VARIABLE

OWNER = Owner("team", "daily", "0b8c3f6e-8d0a-4c55-9f3e-0a4a7e1d2c3b", 7)
KEY = EpochKey(OWNER.uid, 2)
DEFAULTS = WorkloadDefaults(image="spark:1", storage_secret_name="storage")


def spec_of(**sections: Any) -> Spec:
    spec = {
        "source": {"files": {"format": "parquet", "paths": ["s3://b/in"]}},
        "sink": {"iceberg": {"catalog": "c", "table": "db.t"}},
        "checkpoint": {"uri": "s3://b/cw"},
        **sections,
    }
    return parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "daily"}, "spec": spec}).spec


def pod_of(defaults: WorkloadDefaults = DEFAULTS, **sections: Any) -> dict[str, Any]:
    return driver_pod(OWNER, spec_of(**sections), KEY, 3, "s3://b/cw", defaults)


def driver_of(pod: dict[str, Any]) -> dict[str, Any]:
    return next(container for container in pod["spec"]["containers"] if container["name"] == "driver")


def conf_of(pod: dict[str, Any]) -> dict[str, str]:
    arguments = driver_of(pod)["args"]
    pairs = (arguments[at + 1] for at, argument in enumerate(arguments) if argument == "--conf")
    return dict(pair.split("=", 1) for pair in pairs)


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def executor_template_of(pod: dict[str, Any]) -> dict[str, Any]:
    template: dict[str, Any] = json.loads(environment_of(driver_of(pod))["CHECKPOINTED_WRITE_EXECUTOR_TEMPLATE"])
    return template


KEYS = WriteKeys(current="2", keys={"1": "11" * 32, "2": "22" * 32}, control={"1": "33" * 32, "2": "44" * 32})


def test_driver_and_executors_get_the_keys_for_records_by_reference_whatever_templates_say() -> None:
    templates = {
        role: {"template": {"spec": {"containers": [{"name": role, "env": [{"name": RECORD_KEYS_VARIABLE, "value": "mine"}]}]}}}
        for role in ("driver", "executor")
    }
    name = keys_secret(OWNER, KEY.uid, KEYS)["metadata"]["name"]
    pod = driver_pod(OWNER, spec_of(**templates), KEY, 3, "s3://b/cw", DEFAULTS, name)
    unsigned = driver_pod(OWNER, spec_of(**templates), KEY, 3, "s3://b/cw", DEFAULTS)

    reference = {"secretKeyRef": {"name": name, "key": "record-keys.json"}}
    (executor,) = executor_template_of(pod)["spec"]["containers"]
    assert environment_of(driver_of(pod))[RECORD_KEYS_VARIABLE] == reference
    assert environment_of(executor)[RECORD_KEYS_VARIABLE] == reference
    assert RECORD_KEYS_VARIABLE not in json.dumps(unsigned)


STREAM: dict[str, Any] = {
    "source": {"program": {"call": "jobs:main", "stream": {"checkpointVolume": {"claimName": "spark-state"}}}}
}
MOUNT = "/var/lib/checkpointed-write"


@pytest.mark.parametrize(
    "templates",
    [
        {},
        {
            role: {
                "template": {
                    "spec": {
                        "volumes": [{"name": "spark-checkpoint", "emptyDir": {}}, {"name": "mine", "emptyDir": {}}],
                        "containers": [{"name": role, "volumeMounts": [{"name": "mine", "mountPath": f"{MOUNT}/"}]}],
                    }
                }
            }
            for role in ("driver", "executor")
        },
    ],
)
def test_driver_and_executors_have_the_volume_of_a_stream_at_one_path_whatever_templates_say(templates: dict[str, Any]) -> None:
    pod = pod_of(**STREAM, **templates)

    for made in (pod, executor_template_of(pod)):
        (container,) = made["spec"]["containers"]
        claims = [one for one in made["spec"]["volumes"] if one["name"] == "spark-checkpoint"]
        mounts = [one for one in container["volumeMounts"] if one["mountPath"].rstrip("/") == MOUNT]
        assert claims == [{"name": "spark-checkpoint", "persistentVolumeClaim": {"claimName": "spark-state"}}]
        assert mounts == [{"name": "spark-checkpoint", "mountPath": MOUNT}]
        assert made["spec"]["securityContext"]["fsGroup"] == 10001
    arguments = driver_of(pod)["args"]
    assert arguments[arguments.index("--checkpoint-volume") + 1] == MOUNT


def test_a_write_that_is_no_stream_has_no_such_volume() -> None:
    pod = pod_of()

    for made in (pod, executor_template_of(pod)):
        assert [one["name"] for one in made["spec"]["volumes"]] == ["scratch"]
        assert "fsGroup" not in made["spec"]["securityContext"]
    assert "--checkpoint-volume" not in driver_of(pod)["args"]


def test_the_secret_has_what_drivers_may_have_and_goes_with_the_object() -> None:
    secret = keys_secret(OWNER, KEY.uid, KEYS)

    given = base64.b64decode(secret["data"]["record-keys.json"]).decode()
    assert WriteKeys.model_validate_json(given) == KEYS.model_copy(update={"control": None})
    assert "33" * 32 not in given
    assert secret["immutable"]
    assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [OWNER.uid]


def test_a_secret_has_another_name_for_other_keys_or_for_another_object_and_none_of_a_key_in_it() -> None:
    """One that is there stays as it is; and one of an object that was made anew may still be on its way out."""
    others = [
        keys_secret(OWNER, KEY.uid, KEYS.model_copy(update={"current": "1"})),
        keys_secret(OWNER, KEY.uid, KEYS.model_copy(update={"keys": {"2": "22" * 32}})),
        keys_secret(OWNER, KEY.uid, KEYS.model_copy(update={"accepts_unsigned": True})),
        keys_secret(replace(OWNER, uid="another"), KEY.uid, KEYS),
        keys_secret(OWNER, "another", KEYS),
        keys_secret(OWNER, KEY.uid, KEYS),
    ]

    assert len({secret["metadata"]["name"] for secret in others}) == len(others)
    assert keys_secret(replace(OWNER, generation=9), KEY.uid, KEYS)["metadata"]["name"] == others[-1]["metadata"]["name"]
    assert (
        others[-1]["metadata"]
        == keys_secret(OWNER, KEY.uid, KEYS.model_copy(update={"keys": {"1": "aa" * 32, "2": "bb" * 32}}))["metadata"]
    )


def test_the_name_is_the_same_whoever_makes_it_and_another_for_another_attempt_epoch_or_uid() -> None:
    names = {
        pod_name("daily", EpochKey(OWNER.uid, 1), 1),
        pod_name("daily", EpochKey(OWNER.uid, 1), 2),
        pod_name("daily", EpochKey(OWNER.uid, 2), 1),
        pod_name("daily", EpochKey("another-uid", 1), 1),
    }
    assert len(names) == 4
    assert pod_name("daily", EpochKey(OWNER.uid, 1), 1) in names


def test_a_later_object_of_the_write_has_the_same_pods_and_owns_them() -> None:
    later = Owner("team", "daily", "uid-of-a-later-object", 1)

    pod, earlier = (driver_pod(owner, spec_of(), KEY, 3, "s3://b/cw", DEFAULTS) for owner in (later, OWNER))

    assert pod["metadata"]["name"] == earlier["metadata"]["name"]
    assert pod["metadata"]["labels"] == earlier["metadata"]["labels"]
    assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == [later.uid]


def test_a_long_name_fits_a_host_name() -> None:
    assert len(pod_name("x" * 45, EpochKey(OWNER.uid, 999), 9999)) <= 63


def test_the_write_owns_the_pod_and_is_told_what_to_drive() -> None:
    pod = pod_of()

    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (KIND, OWNER.uid, True)
    arguments = driver_of(pod)["args"]
    assert arguments[0] == "driver"
    told = {name: arguments[arguments.index(name) + 1] for name in ("--uri", "--uid", "--epoch", "--attempt", "--parallelism")}
    assert told == {"--uri": "s3://b/cw", "--uid": OWNER.uid, "--epoch": "2", "--attempt": "3", "--parallelism": "2"}
    assert pod["spec"]["restartPolicy"] == "Never"


def test_driver_and_executors_satisfy_pod_security_restricted() -> None:
    pod = pod_of()
    for made in (pod, executor_template_of(pod)):
        assert made["spec"]["securityContext"]["runAsNonRoot"] is True
        assert made["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in made["spec"]["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True


def test_executors_have_no_token_of_the_api_server() -> None:
    assert executor_template_of(pod_of())["spec"]["automountServiceAccountToken"] is False


def test_storage_settings_come_from_a_secret_by_name_and_no_value_stands_in_the_pod() -> None:
    pod = pod_of()
    reference = {"secretKeyRef": {"name": "storage", "key": "storage.json"}}
    assert environment_of(driver_of(pod))["CHECKPOINTED_WRITE_STORAGE"] == reference
    executor = executor_template_of(pod)["spec"]["containers"][0]
    assert environment_of(executor)["CHECKPOINTED_WRITE_STORAGE"] == reference

    own = pod_of(storageSecretName="own")
    assert environment_of(driver_of(own))["CHECKPOINTED_WRITE_STORAGE"]["secretKeyRef"]["name"] == "own"
    none = pod_of(WorkloadDefaults(image="spark:1"))
    assert "CHECKPOINTED_WRITE_STORAGE" not in environment_of(driver_of(none))


def test_image_and_account_are_the_manifests_or_the_operators() -> None:
    assert driver_of(pod_of())["image"] == "spark:1"
    assert conf_of(pod_of())["spark.kubernetes.container.image"] == "spark:1"
    mine = pod_of(image="mine:2", serviceAccountName="me")
    assert driver_of(mine)["image"] == conf_of(mine)["spark.kubernetes.container.image"] == "mine:2"
    assert mine["spec"]["serviceAccountName"] == "me"


def test_memory_for_python_is_sized_explicitly() -> None:
    pod = pod_of(driver={"memory": "2Gi"}, executor={"memory": "4Gi", "memoryOverhead": "3Gi"})

    assert driver_of(pod)["resources"]["limits"]["memory"] == f"{2048 + 819}Mi"
    assert conf_of(pod)["spark.driver.memory"] == "2048m"
    assert conf_of(pod)["spark.executor.memoryOverhead"] == "3072m"


def test_the_overhead_is_never_below_384_mebibytes() -> None:
    assert memory_overhead(spec_of(driver={"memory": "256Mi"}).driver) == 384 << 20


def test_spark_conf_of_the_manifest_wins_over_ours_and_says_nothing_of_labels() -> None:
    assert conf_of(pod_of(sparkConf={"spark.ui.enabled": "true"}))["spark.ui.enabled"] == "true"
    with pytest.raises(ManifestInvalid, match=r"say driver\.template or executor\.template"):
        pod_of(sparkConf={"spark.kubernetes.executor.label.checkpointed.dev/uid": "another"})


def test_a_template_adds_to_the_pod() -> None:
    template = {
        "metadata": {"annotations": {"a": "b"}, "labels": {"team": "x"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "containers": [
                {
                    "name": "driver",
                    "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                },
                {"name": "sidecar", "image": "proxy:1"},
            ],
        },
    }
    pod = pod_of(driver={"template": template})

    assert pod["metadata"]["annotations"]["a"] == "b"
    assert pod["metadata"]["labels"]["team"] == "x"
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["scratch", "models"]
    assert [container["name"] for container in pod["spec"]["containers"]] == ["driver", "sidecar"]
    driver = driver_of(pod)
    assert "TOKEN" in environment_of(driver)
    assert "POD_IP" in environment_of(driver)
    assert [mount["mountPath"] for mount in driver["volumeMounts"]] == ["/tmp", "/models"]


PROTECTED = {
    "name": {"metadata": {"name": "mine"}},
    "namespace": {"metadata": {"namespace": "kube-system"}},
    "owner": {"metadata": {"ownerReferences": []}},
    "labels": {"metadata": {"labels": {"checkpointed.dev/uid": "another"}}},
    "restart policy": {"spec": {"restartPolicy": "Always"}},
    "command": {"spec": {"containers": [{"name": "driver", "command": ["sh"]}]}},
    "arguments": {"spec": {"containers": [{"name": "driver", "args": ["-c", "true"]}]}},
}


@pytest.mark.parametrize("part", PROTECTED)
def test_a_template_does_not_change_what_the_protocol_rests_on(part: str) -> None:
    plain = pod_of()
    pod = pod_of(driver={"template": PROTECTED[part]})

    assert without_digest(pod["metadata"]) == without_digest(plain["metadata"])
    assert pod["spec"]["restartPolicy"] == "Never"
    assert driver_of(pod)["args"] == driver_of(plain)["args"]
    assert "command" not in driver_of(pod)


def without_digest(metadata: dict[str, Any]) -> dict[str, Any]:
    """The digest tells manifests apart, and these are two."""
    return {**metadata, "annotations": {**metadata["annotations"], EDIT_ANNOTATION: ""}}


def test_an_executor_template_is_merged_into_ours() -> None:
    pod = pod_of(executor={"template": {"spec": {"priorityClassName": "low", "containers": [{"name": "executor", "tty": True}]}}})

    template = executor_template_of(pod)
    assert template["spec"]["priorityClassName"] == "low"
    (container,) = template["spec"]["containers"]
    assert container["tty"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_code_in_the_image_is_named_to_the_driver_that_looks_at_it_first_and_on_the_import_path_of_executors() -> None:
    pod = pod_of(code={"path": "/opt/code"})

    assert environment_of(driver_of(pod))[FOLDER_VARIABLE] == "/opt/code"
    assert "PYTHONPATH" not in environment_of(driver_of(pod))
    assert environment_of(executor_template_of(pod)["spec"]["containers"][0])["PYTHONPATH"] == "/opt/code"


def test_merging_changes_neither_side() -> None:
    ours, theirs = {"a": {"b": [1]}, "env": [{"name": "x", "value": "1"}]}, {"a": {"c": 2}, "env": [{"name": "x", "value": "2"}]}
    merged = merge(ours, theirs)

    assert merged == {"a": {"b": [1], "c": 2}, "env": [{"name": "x", "value": "2"}]}
    assert ours == {"a": {"b": [1]}, "env": [{"name": "x", "value": "1"}]}


def arguments_of(pod: dict[str, Any]) -> dict[str, str]:
    arguments = driver_of(pod)["args"]
    return {
        name: arguments[number + 1] for number, name in enumerate(arguments[:-1]) if name.startswith("--") and name != "--conf"
    }


def test_without_executors_the_driver_runs_as_many_tasks_as_it_has_cores() -> None:
    pod = pod_of(driver={"cores": 3}, executor={"instances": 0})

    told = arguments_of(pod)
    assert (told["--in-driver"], told["--parallelism"]) == ("3", "3")
    assert "--small-input" not in told


def test_small_input_may_run_in_the_driver_only_where_the_manifest_does_not_ask_for_executors() -> None:
    assert arguments_of(pod_of(executor={"cores": 4}))["--small-input-cores"] == "4"
    assert "--small-input" not in arguments_of(pod_of(executor={"instances": 1}))

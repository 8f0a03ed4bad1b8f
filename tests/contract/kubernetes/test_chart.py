"""The chart through Helm: what it renders, what it refuses, and, on an API server, which rights it gives and no more."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client, config

from checkpoint_operator.config import OperatorConfig
from checkpoint_operator.pods.driver_pod import HANDED_KEYS_SECRET
from checkpoint_protocol.manifest.spec import validate_model
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageSettings
from devtools.kubernetes import binaries
from devtools.kubernetes.api_server_only import ApiServer, start_api_server_only
from devtools.kubernetes.kube_client import CommandFailed
from tests.support.manifests import manifest
from tests.support.waiting import patience, until
from tests.unit.cluster.test_pods import conf_of, pod_of

ROOT: Final = Path(__file__).resolve().parents[3]
CHART: Final = ROOT / "charts" / "checkpointed-write-operator"
NAMESPACE: Final = "checkpointed-writes-system"
WORKLOADS: Final = "checkpointed-writes"
RELEASE: Final = "cw"
NAME: Final = f"{RELEASE}-checkpointed-write-operator"

Object = dict[str, Any]

CREDENTIALS: Final[Object] = {
    "settings": {
        "catalogs": {
            "lakehouse": {"type": "rest", "uri": "https://catalog.example.com", "credential": {"env": "CATALOG_CREDENTIAL"}},
            "local": {"type": "sql", "uri": "postgresql+psycopg2://u:p@db/c", "warehouse": "s3://lake/"},
        },
        "storage": [{"prefix": "s3://lake/", "region": "eu-central-1", "secret_access_key": {"file": "/run/secrets/key"}}],
    },
    "workloads": {"storage": [{"prefix": "s3://lake/", "access_key_id": "id", "secret_access_key": 'key"with: odd\n%chars'}]},
}
EVERYTHING: Final[Object] = {
    "image": {"repository": "registry.example.com/operator", "digest": "sha256:" + "a" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 2,
    "logLevel": "debug",
    "clusterName": "prod",
    "commitWorkers": 4,
    "verify": "Footers",
    "resyncSeconds": 60,
    "watch": {"namespaces": ["team-a", "team-b"]},
    "workloads": {
        "createNamespaces": False,
        "image": {"repository": "registry.example.com/spark", "tag": "4.1"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"name": "driver", "annotations": {"cloud/role": "drivers"}},
        "storageSecretName": "made-elsewhere",
    },
    "settings": {"existingSecret": "made-elsewhere-too"},
    "extraEnv": [{"name": "CATALOG_CREDENTIAL", "valueFrom": {"secretKeyRef": {"name": "catalog", "key": "credential"}}}],
    "extraVolumes": [{"name": "key", "secret": {"secretName": "key"}}],
    "extraVolumeMounts": [{"name": "key", "mountPath": "/run/secrets/key", "readOnly": True}],
    "serviceAccount": {"annotations": {"cloud/role": "operator"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "data"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "pdb": {"maxUnavailable": "50%"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "admissionPolicy": {"pods": True, "catalogs": True},
    "networkPolicies": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
}
#: What a user has to give.
REPOSITORIES: Final[Object] = {
    "image": {"repository": "registry.example.com/operator"},
    "workloads": {"image": {"repository": "registry.example.com/spark"}},
}
SET_REPOSITORIES: Final = (
    "--set=image.repository=registry.example.com/operator,workloads.image.repository=registry.example.com/spark"
)
ALL_NAMESPACES: Final[Object] = {"watch": {"allNamespaces": True}}
NOTHING_MADE: Final[Object] = {
    "serviceAccount": {"create": False, "name": "made-elsewhere"},
    "workloads": {"serviceAccount": {"create": False}, "createNamespaces": False},
    "rbac": {"create": False, "aggregateToUserRoles": False},
    "pdb": {"enabled": False},
    "networkPolicies": {"enabled": False},
}
TWO: Final[Object] = {"watch": {"namespaces": ["team-a", "team-b"]}}
VARIANTS: Final[dict[str, Object]] = {
    "defaults": {},
    "credentials": CREDENTIALS,
    "everything": EVERYTHING,
    "all namespaces": ALL_NAMESPACES,
    "all namespaces, none prepared": {"watch": {"allNamespaces": True, "namespaces": []}},
    "nothing made": NOTHING_MADE,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A developer's own repositories and plugins must not reach a test."""
    return tmp_path_factory.mktemp("helm_home")


def helm(home: Path, *arguments: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.helm()), *arguments]
    if values is not None:
        repositories = home / "repositories.yaml"
        repositories.write_text(json.dumps(REPOSITORIES))
        command += ["--values", str(repositories), "--values", "-"]
    return subprocess.run(
        command,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home)},
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


def render(home: Path, values: Object) -> list[Object]:
    """Render for the oldest Kubernetes that takes these values."""
    done = helm(
        home,
        "template",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.30.0" if "admissionPolicy" in values else "1.29.0",
        "--include-crds",
        values=values,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module", params=VARIANTS, ids=list(VARIANTS))
def objects(home: Path, request: pytest.FixtureRequest) -> list[Object]:
    return render(home, VARIANTS[request.param])


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [item for item in objects if item["kind"] in kinds]


def the(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [item for item in of_kind(objects, kind) if name in (None, item["metadata"]["name"])]
    return found


def pods(objects: list[Object]) -> list[Object]:
    return [item["spec"]["template"] for item in of_kind(objects, "Deployment")] + of_kind(objects, "Pod")


# --- lint, and what is true of all that is rendered -----------------------------------------------------------------------


@pytest.mark.parametrize("values", VARIANTS.values(), ids=list(VARIANTS))
def test_helm_lint_finds_nothing(home: Path, values: Object) -> None:
    done = helm(home, "lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_pod_satisfies_the_restricted_level_and_more(objects: list[Object]) -> None:
    assert len(pods(objects)) == 3
    for pod in pods(objects):
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"projected", "emptyDir", "secret"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in spec["volumes"]}, "what is not mounted is not needed"
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])


def test_no_role_has_a_wildcard_or_reads_secrets(objects: list[Object]) -> None:
    for role in of_kind(objects, "Role", "ClusterRole"):
        for rule in role["rules"]:
            words = [word for part in rule.values() for word in part]
            assert "*" not in words, role["metadata"]["name"]
            if "secrets" in words and rule["verbs"] != ["create"]:
                (name,) = rule["resourceNames"]
                assert (name == f"{NAME}-record-keys") == (role["metadata"]["name"] == f"{NAME}-record-keys")
                assert rule["verbs"] == {f"{NAME}-record-keys": ["get", "patch"], HANDED_KEYS_SECRET: ["patch"]}[name]


def test_what_is_named_is_there(objects: list[Object]) -> None:
    """No binding without its role and account, and no volume without its object, but those that values say are made elsewhere."""
    there = {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects}
    elsewhere = {"made-elsewhere", "made-elsewhere-too", "key", "catalog"}
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        role = binding["roleRef"]
        place = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        assert (role["kind"], place, role["name"]) in there
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in there
    for pod in pods(objects):
        account = pod["spec"]["serviceAccountName"]
        assert account in elsewhere or ("ServiceAccount", NAMESPACE, account) in there
        (configuration,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "configuration"]
        for source in configuration["projected"]["sources"]:
            ((kind, named),) = source.items()
            found = {"configMap": "ConfigMap", "secret": "Secret"}[kind], NAMESPACE, named["name"]
            assert named["name"] in elsewhere or found in there


def test_services_budgets_and_monitors_find_the_operator_and_not_the_check(objects: list[Object]) -> None:
    operator, *others = (pod["metadata"]["labels"] for pod in pods(objects))
    selectors = [the(objects, "Deployment")["spec"]["selector"]["matchLabels"], the(objects, "Service")["spec"]["selector"]]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in of_kind(objects, "PodDisruptionBudget", "PodMonitor")]
    for selector in selectors:
        assert selector.items() <= operator.items()
        assert not any(selector.items() <= labels.items() for labels in others)


def test_namespaced_objects_say_their_namespace(objects: list[Object]) -> None:
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    cluster_wide = policies | {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    for item in objects:
        assert ("namespace" in item["metadata"]) is (item["kind"] not in cluster_wide), item["metadata"]["name"]


def test_the_operator_can_read_its_configuration_and_settings(objects: list[Object]) -> None:
    rendered = yaml.safe_load(the(objects, "ConfigMap")["data"]["operator.yaml"])
    read = validate_model(OperatorConfig, rendered)
    assert read.workloads.image

    for secret in of_kind(objects, "Secret"):
        if secret["metadata"]["name"] == f"{NAME}-record-keys":
            assert "stringData" not in secret
            assert "data" not in secret, "the operator's own: an upgrade would bring it back to what stands here"
        elif "settings.yaml" in secret["stringData"]:
            validate_model(Settings, yaml.safe_load(secret["stringData"]["settings.yaml"]))
        else:
            validate_model(StorageSettings, json.loads(secret["stringData"]["storage.json"]))


def test_operator_and_check_run_the_same_program_with_the_same_files(objects: list[Object]) -> None:
    operator, asks, check = (pod["spec"]["containers"][0] for pod in pods(objects))

    assert operator["command"] == asks["command"] == check["command"] == ["checkpointed-write-operator"]
    assert operator["image"] == asks["image"]
    assert asks["args"] == ["--before-uninstall", *operator["args"][:2]]
    assert check["args"] == ["--check", *operator["args"]]
    assert operator["args"] == [
        "--config",
        "/etc/checkpointed-writes/operator.yaml",
        "--settings",
        "/etc/checkpointed-writes/settings/settings.yaml",
    ]
    for part in ("image", "imagePullPolicy", "env", "volumeMounts"):
        assert operator[part] == check[part]


# --- variants -------------------------------------------------------------------------------------------------------------


def test_defaults_watch_one_namespace_that_is_made_restricted(home: Path) -> None:
    objects = render(home, {})

    read = validate_model(OperatorConfig, yaml.safe_load(the(objects, "ConfigMap")["data"]["operator.yaml"]))
    assert read.namespaces == (WORKLOADS,)
    assert read.workloads.storage_secret_name is None
    namespace = the(objects, "Namespace", WORKLOADS)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert the(objects, "Deployment")["spec"]["replicas"] == 1
    assert {item["metadata"]["name"] for item in of_kind(objects, "ClusterRole")} == {
        f"{NAME}-writes",
        f"{NAME}-view",
        f"{NAME}-edit",
    }


def test_what_drivers_rest_on_stays_when_the_operator_is_uninstalled(home: Path) -> None:
    for item in render(home, CREDENTIALS):
        is_kept = item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        is_for_drivers = item["metadata"].get("namespace") == WORKLOADS and item["metadata"]["name"] != NAME
        has_keys = item["kind"] == "Secret" and item["metadata"]["name"] == f"{NAME}-record-keys"
        if item["kind"] != "CustomResourceDefinition":
            assert is_kept is (is_for_drivers or has_keys or item["kind"] == "Namespace"), item


def test_storage_of_drivers_arrives_unharmed_and_catalogs_do_not(home: Path) -> None:
    objects = render(home, CREDENTIALS)

    storage = the(objects, "Secret", "checkpointed-write-storage")
    assert storage["metadata"]["namespace"] == WORKLOADS
    assert json.loads(storage["stringData"]["storage.json"]) == {"storage": CREDENTIALS["workloads"]["storage"]}
    settings = yaml.safe_load(the(objects, "Secret", f"{NAME}-settings")["stringData"]["settings.yaml"])
    assert settings == {"namespaces": {}, **CREDENTIALS["settings"]}
    config_file = yaml.safe_load(the(objects, "ConfigMap")["data"]["operator.yaml"])
    assert config_file["workloads"]["storageSecretName"] == "checkpointed-write-storage"
    assert [item for item in of_kind(objects, "Secret") if "lakehouse" in json.dumps(item)] == [
        the(objects, "Secret", f"{NAME}-settings")
    ]


def test_each_namespace_gets_the_storage_that_is_granted_to_it(home: Path) -> None:
    entries = [
        {"prefix": "s3://lake/a/", "credentials": "ambient", "namespaces": ["team-a"], "overwrites": True},
        {"prefix": "s3://lake/common/", "credentials": "ambient", "namespaces": ["team-*"]},
    ]
    values = {"watch": {"namespaces": ["team-a", "team-b", "steam-b"]}, "workloads": {"storage": entries}}

    got = {
        item["metadata"]["namespace"]: json.loads(item["stringData"]["storage.json"])["storage"]
        for item in of_kind(render(home, values), "Secret")
        if item["metadata"]["name"] == "checkpointed-write-storage"
    }

    # Without what says whose they are, and for what: drivers only stage.
    own, common = ({"prefix": f"s3://lake/{name}/", "credentials": "ambient"} for name in ("a", "common"))
    assert got == {"team-a": [own, common], "team-b": [common], "steam-b": []}


def test_each_namespace_gets_the_kafka_clusters_that_are_granted_to_it(home: Path) -> None:
    signed_in = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u", "password": {"env": "PASSWORD"}}
    entries = [
        {"bootstrap_servers": ["a:9093"], "namespaces": ["team-a"], **signed_in},
        {"bootstrap_servers": ["b:9093"], "namespaces": ["team-*"], "security_protocol": "SSL", "ca_file": "/ca.crt"},
    ]
    values = {"watch": {"namespaces": ["team-a", "team-b"]}, "workloads": {"kafka": entries}}

    got = {
        item["metadata"]["namespace"]: validate_model(StorageSettings, json.loads(item["stringData"]["storage.json"])).kafka
        for item in of_kind(render(home, values), "Secret")
        if item["metadata"]["name"] == "checkpointed-write-storage"
    }

    assert {name: [entry.bootstrap_servers for entry in kafka] for name, kafka in got.items()} == {
        "team-a": [("a:9093",), ("b:9093",)],
        "team-b": [("b:9093",)],
    }
    assert got["team-a"][0].username == "u"


def test_every_value_arrives(home: Path) -> None:
    objects = render(home, EVERYTHING)
    deployment = the(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert container["image"] == "registry.example.com/operator@sha256:" + "a" * 64
    assert container["imagePullPolicy"] == "Always"
    assert EVERYTHING["extraEnv"][0] in container["env"]
    assert EVERYTHING["extraVolumes"][0] in pod["volumes"]
    assert EVERYTHING["extraVolumeMounts"][0] in container["volumeMounts"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets"):
        assert pod[name] == EVERYTHING[name]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["metadata"]["annotations"]["a"] == "b"
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "data"
    assert the(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    assert the(objects, "PodMonitor")["metadata"]["labels"]["release"] == "prometheus"
    assert [item["metadata"]["name"] for item in of_kind(objects, "Namespace", "Secret")] == [f"{NAME}-record-keys"]
    read = validate_model(OperatorConfig, yaml.safe_load(the(objects, "ConfigMap")["data"]["operator.yaml"]))
    assert read.namespaces == ("team-a", "team-b")
    assert read.workloads.image == "registry.example.com/spark:4.1"
    assert read.workloads.service_account_name == "driver"
    assert read.workloads.storage_secret_name == "made-elsewhere"
    assert (read.commit_workers, read.resync_seconds, read.log_level, read.cluster_name) == (4, 60, "debug", "prod")
    assert read.verify == "Footers"
    for namespace in ("team-a", "team-b"):
        (account,) = [
            item
            for item in of_kind(objects, "ServiceAccount")
            if item["metadata"]["namespace"] == namespace and item["metadata"]["name"] == "driver"
        ]
        assert account["imagePullSecrets"] == [{"name": "registry"}]
        assert account["metadata"]["annotations"]["cloud/role"] == "drivers"


def test_drivers_and_executors_are_reached_by_each_other_only_and_metrics_by_whom_the_values_name(home: Path) -> None:
    objects = render(home, {**EVERYTHING, **TWO})
    own, *others = of_kind(objects, "NetworkPolicy")

    (metrics,) = own["spec"]["ingress"]
    assert metrics == {
        "from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
        "ports": [{"protocol": "TCP", "port": "metrics"}],
    }
    operator, *of_hooks = (pod["metadata"]["labels"] for pod in pods(objects))
    assert own["spec"]["podSelector"]["matchLabels"].items() <= operator.items()
    assert not any(own["spec"]["podSelector"]["matchLabels"].items() <= labels.items() for labels in of_hooks)

    assert [policy["metadata"]["namespace"] for policy in others] == ["team-a", "team-b"]
    driver = pod_of()
    conf = conf_of(driver)
    for policy in others:
        selected = policy["spec"]["podSelector"]
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": selected}]}]
        assert selected["matchLabels"].items() <= driver["metadata"]["labels"].items()
        for label, value in selected["matchLabels"].items():
            assert conf[f"spark.kubernetes.executor.label.{label}"] == value


def test_metrics_that_are_for_nobody_are_reached_by_nobody(home: Path) -> None:
    own, *_ = of_kind(render(home, {"networkPolicies": {"metricsFrom": []}}), "NetworkPolicy")

    assert own["spec"]["ingress"] == []
    assert of_kind(render(home, NOTHING_MADE), "NetworkPolicy") == []


def test_two_replicas_prefer_two_nodes(home: Path) -> None:
    assert "affinity" not in the(render(home, {}), "Deployment")["spec"]["template"]["spec"]
    assert "podAntiAffinity" in the(render(home, {"replicas": 2}), "Deployment")["spec"]["template"]["spec"]["affinity"]


def test_all_namespaces_are_watched_with_roles_of_the_cluster(home: Path) -> None:
    objects = render(home, ALL_NAMESPACES)

    assert yaml.safe_load(the(objects, "ConfigMap")["data"]["operator.yaml"])["allNamespaces"] is True
    assert "pods" in the(objects, "ClusterRole", f"{NAME}-drivers")["rules"][0]["resources"]
    assert {role["metadata"]["name"] for role in of_kind(objects, "Role")} == {
        "checkpointed-write-driver",
        f"{NAME}-record-keys",
    }


def test_a_changed_configuration_makes_new_pods(home: Path) -> None:
    def template(values: Object) -> Object:
        found: Object = the(render(home, values), "Deployment")["spec"]["template"]
        return found

    assert template({}) == template({"pdb": {"enabled": False}})
    assert template({}) != template({"commitWorkers": 3})
    assert template({}) != template({"settings": {"storage": [{"prefix": "s3://a/"}]}})


# --- values that are refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": 3}, "/replicas"),
        ({"replicas": "2"}, "/replicas"),
        ({"image": {"repository": ""}}, "image.repository is empty: no registry has this project's images."),
        (
            {"workloads": {"image": {"repository": ""}}},
            "--set workloads.image.repository=registry.example.com/checkpointed-writes/spark",
        ),
        ({"image": {"tga": "1"}}, "tga"),
        ({"image": {"digest": "abc"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watch": {"namespace": ["a"]}}, "namespace"),
        ({"watch": {"namespaces": ["A"]}}, "/watch/namespaces/0"),
        ({"watch": {"namespaces": "a"}}, "/watch/namespaces"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"commitWorkers": 0}, "/commitWorkers"),
        ({"settings": {"catalogs": {"a": {"type": "hive", "uri": "x"}}}}, "/settings/catalogs/a/type"),
        ({"settings": {"catalogs": {"a": {"type": "rest"}}}}, "uri"),
        ({"settings": {"catalogs": {"a": {"type": "rest", "uri": "x", "credential": {"path": "x"}}}}}, "credential"),
        ({"settings": {"storage": [{"region": "x"}]}}, "prefix"),
        ({"settings": {"storage": [{"prefix": "s3://a/", "secret": "x"}]}}, "secret"),
        ({"workloads": {"storage": [{"prefix": "s3://a/", "accessKeyId": "x"}]}}, "accessKeyId"),
        ({"workloads": {"serviceAccount": {"name": ""}}}, "/workloads/serviceAccount/name"),
        ({"podMonitor": {"enabled": "yes"}}, "/podMonitor/enabled"),
        ({"podMonitor": {"interval": "30"}}, "/podMonitor/interval"),
        ({"watch": {"namespaces": []}}, "watch.namespaces: name a namespace, or say watch.allNamespaces: true"),
        ({"watch": {"namespaces": [NAMESPACE]}}, "is the operator's own namespace"),
        ({"serviceAccount": {"create": False}}, "give serviceAccount.name"),
        ({**TWO, "settings": {"catalogs": {"a": {"type": "rest", "uri": "x"}}}}, "settings.catalogs.a: several namespaces"),
        (
            {**TWO, "settings": {"namespaces": {"a": {"type": "rest", "uri": "http://x"}}}},
            "settings.namespaces.a: several namespaces",
        ),
        ({"settings": {"namespaces": {"a": {"type": "directory"}}}}, "root"),
        ({**TWO, "settings": {"storage": [{"prefix": "s3://a/"}]}}, "storage entry s3://a/: several namespaces"),
        ({**TWO, "workloads": {"storage": [{"prefix": "s3://a/"}]}}, "storage entry s3://a/: several namespaces"),
        ({"settings": {"storage": [{"prefix": "s3://a/", "namespaces": ["Team"]}]}}, "/settings/storage/0/namespaces/0"),
    ],
)
def test_a_wrong_value_is_refused_and_named(home: Path, values: Object, says: str) -> None:
    done = helm(home, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, values=values)

    assert done.returncode != 0
    # Helm's schema messages write paths with dots or slashes, as versions go.
    assert says in done.stderr or says.strip("/").replace("/", ".") in done.stderr, done.stderr


def test_an_older_kubernetes_is_refused(home: Path) -> None:
    done = helm(home, "template", RELEASE, str(CHART), "--kube-version", "1.28.0", values={})

    assert done.returncode != 0
    assert "1.29" in done.stderr


def test_the_admission_policy_is_refused_where_kubernetes_has_none(home: Path) -> None:
    values = {"admissionPolicy": {"pods": True}}
    done = helm(home, "template", RELEASE, str(CHART), "--kube-version", "1.29.0", values=values)

    assert "takes Kubernetes 1.30 or later" in done.stderr


# --- on an API server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server_only(tmp_path_factory.mktemp("chart")) as server:
        server.kubectl("create", "namespace", NAMESPACE)
        server.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        server.helm("install", RELEASE, str(CHART), "--namespace", NAMESPACE, SET_REPOSITORIES)
        yield server


OPERATOR: Final = f"system:serviceaccount:{NAMESPACE}:{NAME}"
DRIVER: Final = f"system:serviceaccount:{WORKLOADS}:checkpointed-write-driver"


@pytest.mark.parametrize(
    ("who", "namespace", "resource", "granted"),
    [
        (OPERATOR, WORKLOADS, "checkpointedwrites.checkpointed.dev", {"get", "list", "watch", "patch", "delete"}),
        (OPERATOR, "kube-public", "checkpointedwrites.checkpointed.dev", {"get", "list", "watch", "patch", "delete"}),
        (OPERATOR, WORKLOADS, "checkpointedwrites.checkpointed.dev/status", {"patch"}),
        (OPERATOR, WORKLOADS, "pods", {"get", "list", "watch", "create", "delete"}),
        (OPERATOR, WORKLOADS, "pods/exec", set()),
        (OPERATOR, WORKLOADS, "configmaps", {"get"}),
        (OPERATOR, WORKLOADS, "events.events.k8s.io", {"create"}),
        (OPERATOR, WORKLOADS, "secrets", {"create"}),
        (OPERATOR, NAMESPACE, "pods", set()),
        (OPERATOR, NAMESPACE, "secrets", set()),
        (OPERATOR, NAMESPACE, f"secrets:{NAME}-record-keys", {"get", "patch"}),
        (OPERATOR, "default", "pods", set()),
        (DRIVER, WORKLOADS, "pods", {"get", "list", "watch", "create", "delete", "deletecollection"}),
        (DRIVER, WORKLOADS, "configmaps", set()),
        (DRIVER, WORKLOADS, "secrets", set()),
        (DRIVER, WORKLOADS, "services", set()),
        (DRIVER, WORKLOADS, "checkpointedwrites.checkpointed.dev", set()),
        (DRIVER, NAMESPACE, "pods", set()),
        (DRIVER, "default", "pods", set()),
    ],
)
def test_rights_are_those_and_no_others(server: ApiServer, who: str, namespace: str, resource: str, granted: set[str]) -> None:
    api = client.AuthorizationV1Api(config.new_client_from_config(str(server.kubeconfig)))  # type: ignore[no-untyped-call]
    kind, _, name = resource.partition(":")
    kind, _, subresource = kind.partition("/")
    kind, _, group = kind.partition(".")

    def may(verb: str) -> bool:
        attributes = client.V1ResourceAttributes(
            namespace=namespace, verb=verb, group=group, resource=kind, subresource=subresource or None, name=name or None
        )
        review = client.V1SubjectAccessReview(
            spec=client.V1SubjectAccessReviewSpec(user=who, groups=["system:authenticated"], resource_attributes=attributes)
        )
        answer: Any = api.create_subject_access_review(review)
        return bool(answer.status.allowed)

    verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
    assert {verb for verb in verbs if may(verb)} == granted


def test_people_who_may_edit_a_namespace_may_edit_its_writes(server: ApiServer) -> None:
    def rules(role: str) -> str:
        return json.dumps(server.get("clusterrole", role)["rules"])

    for role in ("view", "edit", "admin"):
        assert "checkpointedwrites" in eventually(lambda role=role: rules(role), "checkpointedwrites")


def eventually(look: Any, text: str) -> str:
    """Aggregation is a controller's work."""
    return until(lambda: seen if text in (seen := str(look())) else None, f"{text} in the role") or ""


def test_authors_need_the_rights_that_the_admission_policy_asks_for(server: ApiServer, home: Path) -> None:
    policies = of_kind(
        render(home, {"admissionPolicy": {"pods": True, "catalogs": True}}),
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    )
    tables = [{"iceberg": {"catalog": catalog, "table": f"db.t{n}"}} for n, catalog in enumerate(["other", *["lakehouse"] * 16])]
    write = manifest(spec__source={"union": tables[:16]}, spec__sink__iceberg__catalog="lakehouse")

    def may(name: str, *rules: str) -> None:
        server.kubectl("create", "role", name, "-n", WORKLOADS, *rules)
        server.kubectl("create", "rolebinding", name, "-n", WORKLOADS, f"--role={name}", "--user=ann")

    def answer() -> str:
        asked = ("create", "--dry-run=server", "-n", WORKLOADS, "--as=ann", "-f", "-")
        try:
            return server.kubectl(*asked, manifest=json.dumps(write))
        except CommandFailed as error:
            return str(error)

    may("writes", "--verb=create", "--resource=checkpointedwrites.checkpointed.dev")
    assert "created" in eventually(answer, "created")
    server.kubectl("apply", "-f", "-", manifest=json.dumps({"apiVersion": "v1", "kind": "List", "items": policies}))
    try:
        assert "you may not create pods in this namespace" in eventually(answer, "may not create pods")

        may("pods", "--verb=create", "--resource=pods")
        assert "you may not use the catalog" in eventually(answer, "may not use the catalog")

        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "users", "namespace": WORKLOADS},
            "rules": [
                {"apiGroups": ["checkpointed.dev"], "resources": ["catalogs"], "resourceNames": ["lakehouse"], "verbs": ["use"]}
            ],
        }
        server.kubectl("apply", "-f", "-", manifest=json.dumps(role))
        server.kubectl("create", "rolebinding", "users", "-n", WORKLOADS, "--role=users", "--user=ann")
        only = "you may not use the catalog other in this namespace (spec.source.union[0])"
        assert only in eventually(answer, only)

        write["spec"]["source"]["union"] = tables[1:]
        assert "created" in eventually(answer, "created")
    finally:
        for policy in policies:
            server.kubectl("delete", policy["kind"], policy["metadata"]["name"])


def test_the_operators_pod_is_admitted_to_a_restricted_namespace(server: ApiServer) -> None:
    """No node will run it; the controllers make it, and Pod Security lets it in."""
    selector = "app.kubernetes.io/component=operator"
    listing = eventually(
        lambda: server.kubectl("get", "pods", "--namespace", NAMESPACE, "--selector", selector, "--output", "name"), NAME
    )
    assert listing.startswith(f"pod/{NAME}-"), server.kubectl("get", "events", "--namespace", NAMESPACE)


def test_the_pods_of_helms_hooks_are_admitted_too(server: ApiServer) -> None:
    manifest = server.helm("get", "hooks", RELEASE, "--namespace", NAMESPACE)

    said = server.kubectl("create", "--dry-run=server", "--filename", "-", manifest=manifest)
    assert said.count("created (server dry run)") == 2


def test_a_pod_that_is_not_restricted_is_not_let_into_the_workload_namespace(server: ApiServer) -> None:
    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        server.kubectl("run", "x", "--image=x", "--namespace", WORKLOADS)


def test_the_crd_is_upgraded_as_the_readme_says(server: ApiServer, tmp_path: Path) -> None:
    """Helm has installed the older one, and owns its fields."""
    (path,) = (CHART / "crds").iterdir()
    newer = path.read_text(encoding="utf-8").replace("Where the rows come from.", "Where rows come from.")
    (tmp_path / "crd.yaml").write_text(newer, encoding="utf-8")

    server.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(tmp_path))
    assert "Where rows come from." in json.dumps(server.get("crd", "checkpointedwrites.checkpointed.dev"))
    server.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(CHART / "crds"))


def test_the_notes_tell_what_comes_next(server: ApiServer) -> None:
    notes = server.helm("get", "notes", RELEASE, "--namespace", NAMESPACE)

    assert f"helm test {RELEASE} --namespace {NAMESPACE}" in notes
    assert "settings.catalogs" in notes
    assert f"kubectl wait --namespace {WORKLOADS} cw/flights --for=condition=Committed" in notes
    assert "\n\n\n" not in notes


def test_an_upgrade_and_an_uninstallation_leave_what_drivers_need(server: ApiServer) -> None:
    server.helm("upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, SET_REPOSITORIES, "--set", "replicas=2")
    assert server.get("deployment", NAME, "--namespace", NAMESPACE)["spec"]["replicas"] == 2

    # Without nodes, the pod that asks for writes first cannot run.
    server.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks")
    server.kubectl("get", "namespace", WORKLOADS)
    server.kubectl("get", "serviceaccount,role,rolebinding", "checkpointed-write-driver", "--namespace", WORKLOADS)
    server.kubectl("get", "crd", "checkpointedwrites.checkpointed.dev")
    with pytest.raises(CommandFailed, match="NotFound"):
        server.kubectl("get", "clusterrole", f"{NAME}-writes")

    server.helm("install", RELEASE, str(CHART), "--namespace", NAMESPACE, SET_REPOSITORIES)


def test_each_workload_namespace_has_a_quota_of_writes_only_where_the_values_say_so(home: Path) -> None:
    assert not of_kind(render(home, TWO), "ResourceQuota")

    quotas = of_kind(render(home, {**TWO, "workloads": {"mostWrites": 200}}), "ResourceQuota")

    assert [quota["metadata"]["namespace"] for quota in quotas] == ["team-a", "team-b"]
    assert [quota["spec"] for quota in quotas] == [{"hard": {"count/checkpointedwrites.checkpointed.dev": "200"}}] * 2

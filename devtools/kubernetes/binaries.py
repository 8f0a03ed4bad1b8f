"""The programs of the cluster, built from their Go modules: no image and no release archive is fetched, only what `go` verifies.

An entry of the cache holds the programs that are needed together, so that the tests that want an API server only do not wait
for a kubelet.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path

from devtools import build_tools, cache
from devtools.kubernetes import debian

KUBERNETES = "1.36.3"
ETCD = "3.7.3"
CONTAINERD = "2.3.7"
RUNC = "1.5.2"
CNI_PLUGINS = "1.9.1"
HELM = "4.3.1"
KUBE_NETWORK_POLICIES = "0.8.0"
KUBE_SCORE = "1.20.0"
KSTATUS = "0.37.2"
#: As Argo CD runs its health checks.
LUA = "1.1.1"

PAUSE_SOURCE = Path(__file__).with_name("pause.go")
HEALTH_SOURCE = Path(__file__).with_name("health.go")
NETWORK_POLICIES_SOURCE = Path(__file__).with_name("network_policies.go")
STATIC = {"CGO_ENABLED": "0"}


def etcd() -> Path:
    return cache.ensure(f"etcd-{ETCD}", _build_etcd) / "etcd"


def control_plane() -> Path:
    """The folder with kube-apiserver, kube-controller-manager and kubectl."""
    return cache.ensure(f"kubernetes-control-plane-{KUBERNETES}", lambda target: _build_kubernetes(target, CONTROL_PLANE))


def node() -> Path:
    """The folder with kube-scheduler, kubelet and kube-proxy."""
    return cache.ensure(f"kubernetes-node-{KUBERNETES}", lambda target: _build_kubernetes(target, NODE))


CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kubectl")
NODE = ("kube-scheduler", "kubelet", "kube-proxy")


def helm() -> Path:
    return cache.ensure(f"helm-{HELM}", _build_helm) / "helm"


def kube_score() -> Path:
    """What looks through manifests for what is unsafe, without a network."""
    return cache.ensure(f"kube-score-{KUBE_SCORE}", _build_kube_score) / "kube-score"


def containerd() -> Path:
    """The folder with containerd, its shim and ctr."""
    return cache.ensure(f"containerd-{CONTAINERD}", _build_containerd)


def runc() -> Path:
    return cache.ensure(f"runc-{RUNC}", _build_runc) / "runc"


def cni_plugins() -> Path:
    """The folder with ptp, bridge, host-local, loopback and portmap."""
    return cache.ensure(f"cni-plugins-{CNI_PLUGINS}", _build_cni_plugins)


def network_policies() -> Path:
    """What keeps the NetworkPolicies of pods: the network plugins do not know them."""
    source = f"{KUBE_NETWORK_POLICIES} {NETWORK_POLICIES_SOURCE.read_text()}"
    version = hashlib.sha256(source.encode()).hexdigest()[:12]
    return cache.ensure(f"network-policies-{version}", _build_network_policies) / "network-policies"


def pause() -> Path:
    """What keeps a pod's namespaces open: a program that waits, linked statically, since its image holds nothing else."""
    version = hashlib.sha256(PAUSE_SOURCE.read_bytes()).hexdigest()[:12]
    return cache.ensure(f"pause-{version}", _build_pause) / "pause"


def health() -> Path:
    """What other programs make of an object's status: a JSON document in, one out, see its source."""
    version = hashlib.sha256(f"{KSTATUS} {LUA} {HEALTH_SOURCE.read_text()}".encode()).hexdigest()[:12]
    return cache.ensure(f"health-{version}", _build_health) / "health"


def _build_health(target: Path) -> None:
    requirements = [f"require sigs.k8s.io/cli-utils v{KSTATUS}", f"require github.com/yuin/gopher-lua v{LUA}"]
    _empty_module(target, requirements)
    (target / "main.go").write_bytes(HEALTH_SOURCE.read_bytes())
    _go("mod", "tidy", cwd=target, environment=STATIC)
    _go("build", "-trimpath", "-ldflags=-s -w", "-o", str(target / "health"), ".", cwd=target, environment=STATIC)


def _build_network_policies(target: Path) -> None:
    _empty_module(target, [f"require sigs.k8s.io/kube-network-policies v{KUBE_NETWORK_POLICIES}"])
    (target / "main.go").write_bytes(NETWORK_POLICIES_SOURCE.read_bytes())
    program = str(target / "network-policies")
    _go("build", "-trimpath", "-mod=mod", "-ldflags=-s -w", "-o", program, ".", cwd=target, environment=STATIC)


def _build_etcd(target: Path) -> None:
    module = "go.etcd.io/etcd/server/v3"
    _empty_module(target, [f"require {module} v{ETCD}"])
    _go("build", "-trimpath", "-mod=mod", "-ldflags=-s -w", "-o", str(target / "etcd"), module, cwd=target, environment=STATIC)


def _build_kubernetes(target: Path, programs: tuple[str, ...]) -> None:
    major, minor, patch = KUBERNETES.split(".")
    _empty_module(target, [f"require k8s.io/kubernetes v{KUBERNETES}"])
    _go("mod", "edit", *_replacements(target, f"v0.{minor}.{patch}"), cwd=target, environment={})
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamped = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in programs]
    output = ["-o", f"{target}{os.sep}"]
    _go("build", "-trimpath", "-mod=mod", f"-ldflags=-s -w {stamped}", *output, *packages, cwd=target, environment=STATIC)


def _empty_module(target: Path, requirements: list[str]) -> None:
    """For modules that `go install` refuses because their go.mod replaces modules: another module requires them."""
    (target / "go.mod").write_text("\n".join(["module cluster", "go 1.25.0", *requirements]) + "\n")


def _replacements(target: Path, version: str) -> list[str]:
    """Kubernetes' go.mod replaces its own staging modules by folders, which a fetched module lacks; they are published, too."""
    go = build_tools.find("go")
    module = f"k8s.io/kubernetes@v{KUBERNETES}"
    build_tools.fetch([go, "mod", "download", module], cwd=target)
    downloaded = json.loads(_output([go, "mod", "download", "-json", module], target))
    described = json.loads(_output([go, "mod", "edit", "-json", downloaded["GoMod"]], target))
    staging = [replace["Old"]["Path"] for replace in described["Replace"]]
    return [f"-replace={path}={path}@{version}" for path in staging]


def _output(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise build_tools.BuildToolFailed(f"{' '.join(command)}:\n{done.stderr[-4000:]}")
    return done.stdout


def _build_kube_score(target: Path) -> None:
    _install(target, f"github.com/zegl/kube-score/cmd/kube-score@v{KUBE_SCORE}")


def _build_helm(target: Path) -> None:
    _install(target, f"helm.sh/helm/v4/cmd/helm@v{HELM}")


def _build_containerd(target: Path) -> None:
    module = "github.com/containerd/containerd/v2/cmd"
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    _install(target, *(f"{module}/{program}@v{CONTAINERD}" for program in programs))


def _build_cni_plugins(target: Path) -> None:
    module = "github.com/containernetworking/plugins/plugins"
    programs = ("main/ptp", "main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
    _install(target, *(f"{module}/{program}@v{CNI_PLUGINS}" for program in programs))


def _build_pause(target: Path) -> None:
    (target / "go.mod").write_text("module pause\ngo 1.25.0\n")
    (target / "main.go").write_bytes(PAUSE_SOURCE.read_bytes())
    _go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(target / "pause"), ".", cwd=target, environment=STATIC)


def _install(target: Path, *packages: str) -> None:
    _go("install", "-trimpath", "-ldflags", "-s -w", *packages, cwd=target, environment={**STATIC, "GOBIN": str(target)})


def _go(*arguments: str, cwd: Path, environment: dict[str, str]) -> None:
    """At a lower priority: a build takes minutes, and people go on working."""
    build_tools.fetch(["nice", "-n", "5", build_tools.find("go"), *arguments], environment=environment, cwd=cwd)


def _build_runc(target: Path) -> None:
    """With seccomp, which Pod Security's `restricted` asks of a container. Its first step is C, linked statically."""
    flags = ["-trimpath", "-tags=seccomp,netgo,osusergo", "-ldflags=-s -w -extldflags=-static"]
    install = ["nice", "-n", "5", build_tools.find("go"), "install", *flags, f"github.com/opencontainers/runc@v{RUNC}"]
    build_tools.fetch(debian.c_tools().around(install), environment={"CGO_ENABLED": "1", "GOBIN": str(target)}, cwd=target)

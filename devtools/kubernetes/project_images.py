"""The project's two images, and those made FROM them, as archives: built by Docker where it works, else by buildah in a chroot.

An image is named after what it was made of, so that an image that a cluster has under that name is the right one. Dependencies
are layers of their own, so that an edit of our own code costs less than a minute instead of five.
"""

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from devtools import build_tools, cache
from devtools.kubernetes import debian

REPOSITORY = Path(__file__).parents[2]
FOLDERS = {"operator": "operator", "spark": "spark_app"}
DEPENDENCIES = ("pyproject.toml", "constraints.txt")
#: What an image has of the project, beside its Dockerfile and the core.
SOURCES = {"operator": ("operator",), "spark": ("spark_app", "local/checkpointed_writes")}
COMMON_SOURCES = (".dockerignore", *DEPENDENCIES, "README.md", "core")
# An edit makes a new archive; a cluster that is being loaded from the one before must still find it.
ARCHIVES_KEPT = 2
# What the base image of `docker build` has from its registry.
BASE_PACKAGES = "python3,ca-certificates"
# Whose pip takes no part of the system for its own.
WITH_PIP = """FROM {base}
RUN --mount=type=secret,id=environment --mount=type=secret,id=certificates \\
    set -e; if [ -f /run/secrets/environment ]; then . /run/secrets/environment; fi; \\
    apt-get update; apt-get install -y --no-install-recommends python3-pip
"""
# How this machine reaches package indexes; handed to the build as a secret, so that no layer tells of it.
PASSED_ON = (
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("uv_default_index", "uv_index", "uv_index_url", "uv_extra_index_url", "uv_http_timeout"),
    *("pip_index_url", "pip_extra_index_url", "pip_trusted_host", "pip_default_timeout"),
)
# What pip's configuration files say of them, in the words of pip's and uv's environments.
FROM_FILES = {"index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_INDEX")}
BUNDLE = "/run/secrets/certificates"


@dataclass(frozen=True)
class BuiltImage:
    reference: str
    archive: Path


@functools.cache
def build(name: str) -> BuiltImage:
    """`operator` or `spark`; from the cache when nothing that it is made of has changed. One process gets one image of a name."""
    made_of = ((str(path.relative_to(REPOSITORY)), path) for path in _source_files(name))
    return _cached(name, _digest(made_of), lambda reference, target: _build(name, reference, target))


def build_from_spark(dockerfile: Path, context: Path) -> BuiltImage:
    """The image that somebody makes FROM the project's Spark image, with a Dockerfile and files of his own; cached as well."""
    spark = build("spark")
    files = sorted(path for path in context.rglob("*") if path.is_file())
    made_of = [(spark.reference, dockerfile), *((str(path.relative_to(context)), path) for path in files)]
    return _cached("own", _digest(made_of), lambda reference, target: _build_own(spark, dockerfile, context, reference, target))


def write_oci_archive(image: BuiltImage, archive: Path, tag: str) -> None:
    """With layers compressed and a manifest, whose digest a registry then keeps; the archive of `docker save` has none."""
    with cache.locked(cache.cache_root() / ".buildah.lock"):
        buildah = Buildah()
        buildah.load(image)
        buildah.run("push", "--quiet", "--format=oci", image.reference, f"oci-archive:{archive}:{tag}")


def _cached(name: str, digest: str, make: Callable[[str, Path], None]) -> BuiltImage:
    reference = f"localhost/checkpointed-writes-{name}:{digest}"
    entry = cache.ensure(f"image-{name}-{digest}", lambda target: make(reference, target))
    entries = sorted(entry.parent.glob(f"image-{name}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for older in entries[ARCHIVES_KEPT:]:
        if older != entry:
            shutil.rmtree(older, ignore_errors=True)
    return BuiltImage(reference, entry / "image.tar")


def _digest(named: Iterable[tuple[str, Path]]) -> str:
    made_of = hashlib.sha256()
    for name, path in named:
        made_of.update(f"{name}\0".encode())
        made_of.update(path.read_bytes())
    return made_of.hexdigest()[:12]


def _source_files(name: str) -> Iterator[Path]:
    for source in (*COMMON_SOURCES, *SOURCES[name]):
        path = REPOSITORY / source
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)


def _build(name: str, reference: str, target: Path) -> None:
    secrets = _secrets(target)
    common = ["--file", str(_dockerfile(name)), *secrets, "--tag", reference]
    archive = target / "image.tar"
    if docker_works():
        build_tools.fetch(["docker", "build", *common, str(REPOSITORY)], environment={"DOCKER_BUILDKIT": "1"})
        build_tools.run(["docker", "save", "--output", str(archive), reference])
    else:
        with cache.locked(cache.cache_root() / ".buildah.lock"):
            _build_without_docker(common, reference, archive)
    for path in target.glob("*.secret"):
        path.unlink()


def _build_without_docker(arguments: list[str], reference: str, archive: Path) -> None:
    buildah = Buildah()
    base = buildah.base_image()
    buildah.run("build", "--layers", "--network=host", f"--build-arg=BASE_IMAGE={base}", *arguments, str(REPOSITORY))
    buildah.save(reference, archive)


def _build_own(spark: BuiltImage, dockerfile: Path, context: Path, reference: str, target: Path) -> None:
    arguments = [f"--build-arg=SPARK_IMAGE={spark.reference}", *_secrets(target), "--file", str(dockerfile), "--tag", reference]
    archive = target / "image.tar"
    if docker_works():
        build_tools.run(["docker", "load", "--input", str(spark.archive)])
        build_tools.fetch(["docker", "build", *arguments, str(context)], environment={"DOCKER_BUILDKIT": "1"})
        build_tools.run(["docker", "save", "--output", str(archive), reference])
    else:
        with cache.locked(cache.cache_root() / ".buildah.lock"):
            buildah = Buildah()
            buildah.load(spark)
            base = buildah.base_image_with_pip(_secrets(target))
            # Without --layers: buildah 1.28 mounts nothing of a stage whose layers it has kept.
            buildah.run("build", "--network=host", f"--build-arg=BASE_IMAGE={base}", *arguments, str(context))
            buildah.save(reference, archive)
    for path in target.glob("*.secret"):
        path.unlink()


def _dockerfile(name: str) -> Path:
    return REPOSITORY / FOLDERS[name] / "Dockerfile"


def docker_works() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _secrets(target: Path) -> list[str]:
    environment = _from_files() | {name: value for name, value in os.environ.items() if name.lower() in PASSED_ON}
    arguments = []
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle and Path(bundle).is_file():
        environment |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), BUNDLE)
        copy = target / "certificates.secret"
        copy.write_bytes(Path(bundle).read_bytes())
        arguments.append(f"--secret=id=certificates,src={copy}")
    file = target / "environment.secret"
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()))
    return [*arguments, f"--secret=id=environment,src={file}"]


def _from_files() -> dict[str, str]:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False).stdout
    environment = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        for variable in FROM_FILES.get(name.rpartition(".")[2], ()):
            environment[variable] = value.strip("'\"")
    return environment


class Buildah:
    """With storage of its own in the cache folder, where the layers of earlier builds are found again.

    Other dependencies begin a new storage and end the old one, whose layers would be of no more use. One build at a time.
    """

    def __init__(self) -> None:
        self._tools = debian.image_tools()
        made_of = hashlib.sha256()
        for path in (*map(_dockerfile, FOLDERS), *(REPOSITORY / file for file in DEPENDENCIES)):
            made_of.update(path.read_bytes())
        root = cache.cache_root().absolute()
        self._storage = root / f"buildah-{debian.release()}-{made_of.hexdigest()[:12]}"
        for older in root.glob("buildah-*"):
            if older != self._storage:
                shutil.rmtree(older, ignore_errors=True)
        self._storage.mkdir(parents=True, exist_ok=True)
        self._policy = self._storage / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
        registries = self._storage / "registries.conf"
        registries.write_text("")
        containers = self._storage / "containers.conf"
        # Else it makes a folder in /etc.
        containers.write_text(f'[network]\nnetwork_config_dir = "{self._storage / "networks"}"\n')
        self._environment = {
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_REGISTRIES_CONF": str(registries),
            "CONTAINERS_CONF": str(containers),
            "STORAGE_DRIVER": "overlay",
        }

    def run(self, command: str, *arguments: str) -> None:
        storage = [f"--root={self._storage / 'root'}", f"--runroot={self._storage / 'run'}"]
        policy = [f"--signature-policy={self._policy}"] if command in ("build", "pull", "push") else []
        whole = ["nice", "-n", "5", "buildah", *storage, command, *policy, *arguments]
        run = build_tools.fetch if command == "build" else build_tools.run
        run(self._tools.around(whole), environment=self._environment)

    def save(self, reference: str, archive: Path) -> None:
        """In the format of `docker save`, not compressed: that would take longer than all else when only our own code changes."""
        self.run("push", "--quiet", reference, f"docker-archive:{archive}:{reference}")

    def load(self, image: BuiltImage) -> None:
        """Have an image here, whose archive may be of an earlier storage."""
        if not self._has(image.reference):
            self.run("pull", "--quiet", f"docker-archive:{image.archive}")

    def _has(self, reference: str) -> bool:
        try:
            self.run("inspect", "--type=image", reference)
        except build_tools.BuildToolFailed:
            return False
        return True

    def base_image(self) -> str:
        """A small Debian with Python, made from packages; its name."""
        release = debian.release()
        entry = cache.ensure(f"debian-{release}-base-image", lambda target: self._make_base(release, target))
        reference = f"localhost/checkpointed-writes-base:{release}"
        if not self._has(reference):
            self.run("build", "--tag", reference, "--file", str(entry / "Dockerfile"), str(entry))
        return reference

    def base_image_with_pip(self, secrets: list[str]) -> str:
        """That base with pip, as the one of `docker build` has it; its name."""
        reference = f"localhost/checkpointed-writes-base-with-pip:{debian.release()}"
        if not self._has(reference):
            with tempfile.TemporaryDirectory() as context:
                file = Path(context) / "Dockerfile"
                file.write_text(WITH_PIP.format(base=self.base_image()))
                self.run("build", "--network=host", *secrets, "--tag", reference, "--file", str(file), context)
        return reference

    def _make_base(self, release: str, target: Path) -> None:
        command = ["mmdebstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", release, str(target / "base.tar")]
        build_tools.fetch(self._tools.around(command))
        (target / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")

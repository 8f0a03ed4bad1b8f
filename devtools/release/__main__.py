"""`python -m devtools.release --key KEY [--images none|FOLDER]`, see `make release`."""
# ruff: noqa: T201

import argparse
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from devtools.build_tools import BuildToolFailed
from devtools.kubernetes.machine import MachineFailed
from devtools.kubernetes.project_images import REPOSITORY
from devtools.release import parts, signature

FOLDER = REPOSITORY / "build" / "release"
WITHOUT_IMAGES = "Say IMAGES=none to leave the images out, or IMAGES=folder with operator.oci.tar and spark.oci.tar that you have"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devtools.release")
    parser.add_argument("--key", type=Path, required=True, help="the key that signs, as ssh-keygen makes it")
    parser.add_argument("--images", default="build", help="`build`, `none`, or a folder with operator.oci.tar and spark.oci.tar")
    options = parser.parse_args()
    try:
        _release(options.key.absolute(), options.images)
    except (BuildToolFailed, MachineFailed) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def _release(key: Path, images: str) -> None:
    """First what can be refused at once, then what takes long. The folder appears when it is whole."""
    signature.sign(key, b"tried before anything is built")
    given = None if images in ("build", "none") else Path(images).absolute()
    if given is not None and (lacking := parts.lacking_images(given)):
        raise BuildToolFailed(f"IMAGES={given} has no {', '.join(lacking)}. {WITHOUT_IMAGES}")
    changed = parts.git(REPOSITORY, "status", "--porcelain")
    if changed:
        raise BuildToolFailed(f"{REPOSITORY} has changes that are in no commit; commit them, or stash them:\n{changed}")
    commit, seconds = parts.git(REPOSITORY, "log", "-1", "--format=%H %ct").split()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=FOLDER.parent) as temporary:
        made = Path(temporary, "made")
        made.mkdir()
        source = parts.export(REPOSITORY, commit, Path(temporary))
        version = str(tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"])
        (made / "COMMIT").write_text(f"{commit}\n")
        parts.python_packages(source, made, seconds)
        parts.chart(source, made)
        parts.crds(source, made)
        parts.sboms(REPOSITORY, made)
        if images != "none":
            _images(given, version, made)
        sums = signature.write_sums(made)
        (made / f"{sums.name}.sig").write_bytes(signature.sign(key, sums.read_bytes()))
        made.rename(FOLDER)
    _say(version, commit, key, images)


def _images(given: Path | None, version: str, into: Path) -> None:
    try:
        parts.images(given, version, into)
    except (BuildToolFailed, MachineFailed) as failure:
        raise BuildToolFailed(f"{failure}\n{WITHOUT_IMAGES}") from failure


def _say(version: str, commit: str, key: Path, images: str) -> None:
    print(f"version {version} of commit {commit} in {FOLDER}")
    for path in sorted(FOLDER.iterdir()):
        print(f"  {path.name}")
    if images == "none":
        print(f"left out, as IMAGES=none says: the images of operator and Spark, and {parts.DIGESTS} with their digests")
    line = signature.allowed_signer(key)
    print("for allowed_signers, which users have to have from another place than these files:")
    print(f"  {line}" if line else f"  (the public half of the key is not beside it: ssh-keygen -y -f {key})")


if __name__ == "__main__":
    sys.exit(main())

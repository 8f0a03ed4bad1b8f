"""Programs that are taken from the Debian release (or Ubuntu) of the machine, unpacked into the cache and never installed.

Only what the machine lacks is fetched, by apt itself, which knows mirrors, proxies and signatures. Debian's mirrors keep one
version of a package for each release, so what can be pinned is the release.
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools import build_tools, cache

# What kube-proxy and the plugin for host ports call.
NODE_PACKAGES = ("iptables",)
# What runc is built with.
C_PACKAGES = ("gcc", "libc6-dev", "libseccomp-dev", "pkg-config")
IMAGE_PACKAGES = ("buildah", "mmdebstrap")


@dataclass(frozen=True)
class Unpacked:
    """A tree with the packages' files. Laid over /usr, for one process and its children, they are as if they were installed."""

    root: Path

    @property
    def mount(self) -> list[str]:
        """The command that does so; to be run in a mount namespace of its own, or it is done to the whole machine."""
        return ["mount", "-t", "overlay", "-o", f"lowerdir={self.root / 'usr'}:/usr", "overlay", "/usr"]

    def around(self, command: Sequence[str]) -> list[str]:
        """The command, in a mount namespace in which it finds the packages; what it mounts itself ends with it, too."""
        return ["unshare", "--mount", "sh", "-c", f'{shlex.join(self.mount)} && exec "$@"', "sh", *command]


def node_tools() -> Unpacked:
    return _unpacked("node-tools", NODE_PACKAGES)


def c_tools() -> Unpacked:
    return _unpacked("c-tools", C_PACKAGES)


def image_tools() -> Unpacked:
    return _unpacked("image-tools", IMAGE_PACKAGES)


def release() -> str:
    """`bookworm`, say."""
    words = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines())
    codename = words.get("VERSION_CODENAME", "").strip('"')
    if not codename or not Path("/usr/bin/apt-get").exists():
        raise build_tools.BuildToolMissing(
            "the test cluster runs on Debian and Ubuntu; elsewhere use `make cluster CLUSTER=kind`"
        )
    return codename


def _unpacked(name: str, packages: tuple[str, ...]) -> Unpacked:
    return Unpacked(cache.ensure(f"debian-{release()}-{name}", lambda target: _build(target, packages)))


def _build(target: Path, packages: tuple[str, ...]) -> None:
    """With lists and archives of our own: apt's system-wide state is left as it is."""
    state = target / ".apt"
    archives = state / "archives"
    for folder in (archives / "partial", state / "lists" / "partial"):
        folder.mkdir(parents=True)
    settings: dict[str, object] = {
        "Dir::State::Lists": state / "lists",
        "Dir::Cache::Archives": archives,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "true",
        # The cache folder may be one that apt's own user cannot enter.
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    build_tools.fetch([*apt, "update"])
    build_tools.fetch([*apt, "install", "--yes", "--no-install-recommends", "--download-only", "--reinstall", *packages])
    for archive in sorted(archives.glob("*.deb")):
        build_tools.run(["dpkg-deb", "--extract", str(archive), str(target)])
    shutil.rmtree(state)
    (target / "usr").mkdir(exist_ok=True)
    # Where /bin is a link to /usr/bin, and so on, old packages' files still name the link.
    for name in ("bin", "sbin", "lib"):
        if (target / name).is_dir():
            shutil.copytree(target / name, target / "usr" / name, symlinks=True, dirs_exist_ok=True)
    _name_alternatives(target)


def _name_alternatives(target: Path) -> None:
    """What the packages' scripts would have done: `iptables` is a name that is given at installation."""
    folder = target / "usr" / "sbin"
    if (folder / "xtables-nft-multi").exists():
        for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to("xtables-nft-multi")

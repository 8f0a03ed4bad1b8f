"""`python -m devtools.kubernetes up|down|load IMAGE_TAR|images|status|kubeconfig`, see `make cluster`."""
# ruff: noqa: T201

import argparse
import sys
import time
from pathlib import Path

from devtools.build_tools import BuildToolFailed
from devtools.kubernetes import binaries, project_images
from devtools.kubernetes.cluster import Cluster
from devtools.kubernetes.machine import MachineFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devtools.kubernetes")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster of one node; builds its programs the first time, about ten minutes")
    up.add_argument("--keep", action="store_true", help="go on with the objects of the last time")
    commands.add_parser("down", help="end it and all its pods")
    load = commands.add_parser("load", help="make the images of an archive known to the node")
    load.add_argument("archive", type=Path)
    commands.add_parser("images", help="build the project's two images; load them if the cluster is up")
    commands.add_parser("status", help="say whether it is up, and what runs")
    commands.add_parser("kubeconfig", help="print the path of the kubeconfig")
    options = parser.parse_args()
    try:
        return _run(options, Cluster())
    except (BuildToolFailed, MachineFailed) as failure:
        print(failure, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, cluster: Cluster) -> int:
    match options.command:
        case "up":
            started = time.monotonic()
            cluster.up(lambda text: print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True), keep=options.keep)
            print(_usage(cluster))
        case "down":
            cluster.down()
        case "load":
            print("\n".join(cluster.load_image(options.archive)))
        case "images":
            for name in project_images.FOLDERS:
                image = project_images.build(name)
                loaded = " (loaded)" if cluster.is_up() and cluster.load_image(image.archive) else ""
                print(f"{image.reference}{loaded}\n    {image.archive}", flush=True)
        case "kubeconfig":
            print(cluster.kubeconfig)
        case "status" if not cluster.is_up():
            print("the cluster is down")
            return 1
        case "status":
            print(cluster.kubectl("get", "nodes,pods", "--all-namespaces", "--output=wide"), end="")
    return 0


def _usage(cluster: Cluster) -> str:
    folders = f"{binaries.control_plane()}:{binaries.helm().parent}"
    return f"export KUBECONFIG={cluster.kubeconfig}\nexport PATH={folders}:$PATH    # kubectl and helm"


if __name__ == "__main__":
    sys.exit(main())

"""Jars by their coordinates, through Maven itself: it knows mirrors, proxies and checksums better than we would."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement

from devtools import build_tools

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def copy_jars(coordinates: Sequence[str], target: Path, *, transitive: bool) -> None:
    """Copies `group:artifact:version[:classifier]`, and if asked all that they need at run time, into `target`.

    One project resolves them together, so that each library comes in one version.
    """
    with tempfile.TemporaryDirectory() as directory:
        pom = Path(directory) / "pom.xml"
        ElementTree(_project(coordinates)).write(pom)
        build_tools.fetch(
            [
                build_tools.find("mvn"),
                "--batch-mode",
                "--quiet",
                "--no-transfer-progress",
                "--strict-checksums",
                f"--file={pom}",
                COPY_DEPENDENCIES,
                f"-DoutputDirectory={target}",
                "-DincludeScope=runtime",
                f"-DexcludeTransitive={str(not transitive).lower()}",
            ]
        )


def _project(coordinates: Sequence[str]) -> Element:
    project = Element("project")
    own = {"modelVersion": "4.0.0", "groupId": "tests", "artifactId": "jars", "version": "1", "packaging": "pom"}
    for name, value in own.items():
        SubElement(project, name).text = value
    dependencies = SubElement(project, "dependencies")
    for coordinate in coordinates:
        dependency = SubElement(dependencies, "dependency")
        for name, value in zip(("groupId", "artifactId", "version", "classifier"), coordinate.split(":"), strict=False):
            SubElement(dependency, name).text = value
    return project

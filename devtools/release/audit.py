"""Asks advisory sources about every package of constraints.txt: `make audit`.

pip-audit passes over a package that its source does not know, and still says that nothing is vulnerable: behind a mirror that has
no advisories, that is every package. So its report is read, and who was not answered for is named.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from devtools.kubernetes.project_images import REPOSITORY

PIP_AUDIT = "pip-audit==2.10.1"
#: The index's own advisories, then those of the Open Source Vulnerabilities project. The first that answers for all is enough.
SOURCES = ("pypi", "osv")
NOTHING_KNOWN, VULNERABLE, NOT_ANSWERED = 0, 1, 3


def pinned(constraints: str) -> list[str]:
    """Of all platforms: pip-audit would leave out what this one does not install."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)", constraints, re.MULTILINE)
    return [f"{name}=={version}" for name, version in found]


def verdict(packages: list[str], reports: dict[str, dict[str, Any] | str]) -> tuple[int, list[str]]:
    """Of what each source has reported, or why it has not: an exit code and lines that say it."""
    lines: list[str] = []
    answered: set[str] = set()
    for source, report in reports.items():
        if isinstance(report, str):
            lines.append(f"{source}: no answer: {report}")
            continue
        found = [one for one in report["dependencies"] if "skip_reason" not in one]
        answered |= {f"{one['name']}=={one['version']}" for one in found}
        lines.append(f"{source}: answered for {len(found)} of {len(packages)} packages")
        for one in found:
            lines += [f"  {one['name']} {one['version']}: {each['id']}{_mended(each)}" for each in one["vulns"]]
    if any(line.startswith("  ") for line in lines):
        return VULNERABLE, [
            *lines,
            "vulnerable: make pin UPGRADE=1 takes the newest versions that the bounds of pyproject.toml allow",
        ]
    missing = sorted(set(packages) - answered)
    if missing:
        named = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        lines.append(
            f"not known: no source has answered for {len(missing)} packages ({named}); ask from where one can be reached"
        )
        return NOT_ANSWERED, lines
    return NOTHING_KNOWN, [*lines, "no vulnerability is known of any"]


def _mended(vulnerability: dict[str, Any]) -> str:
    versions = ", ".join(vulnerability.get("fix_versions", ()))
    return f" (mended in {versions})" if versions else ""


def ask(source: str, packages: list[str]) -> dict[str, Any] | str:
    """Its report, or the last words of pip-audit, which ends with 1 where something is vulnerable and where it could not ask."""
    with tempfile.TemporaryDirectory() as folder:
        asked, report = Path(folder, "packages.txt"), Path(folder, "report.json")
        asked.write_text("\n".join(packages))
        program = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit"]
        options = [f"--vulnerability-service={source}", "--no-deps", "--disable-pip", "--progress-spinner=off"]
        files = [f"--requirement={asked}", "--format=json", f"--output={report}"]
        done = subprocess.run([*program, *options, *files], capture_output=True, text=True, check=False)
        if report.is_file() and report.stat().st_size:
            found: dict[str, Any] = json.loads(report.read_text())
            return found
        return (done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"])[-1]


def main() -> int:
    packages = pinned((REPOSITORY / "constraints.txt").read_text())
    reports: dict[str, dict[str, Any] | str] = {}
    for source in SOURCES:
        reports[source] = ask(source, packages)
        code, lines = verdict(packages, reports)
        if code != NOT_ANSWERED:
            break
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""`make audit`: a package for which no source has answered is never taken for one without vulnerabilities."""

from __future__ import annotations

from typing import Any, Final

import pytest

from devtools.release import audit
from tests.unit.project.test_dependencies import ROOT, pinned

PACKAGES: Final = ["a==1", "b==2"]
A: Final = {"name": "a", "version": "1", "vulns": []}
B: Final = {"name": "b", "version": "2", "vulns": []}
BAD: Final = {"name": "b", "version": "2", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["2.1"]}]}
SKIPPED: Final = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (2)"}


def test_every_pinned_package_is_asked_about() -> None:
    asked = audit.pinned((ROOT / "constraints.txt").read_text())

    assert dict(each.split("==") for each in asked) == pinned()


@pytest.mark.parametrize(
    ("reports", "code", "says"),
    [
        ({"pypi": {"dependencies": [A, B]}}, 0, "no vulnerability is known of any"),
        ({"pypi": {"dependencies": [A, BAD]}}, 1, "  b 2: CVE-2026-1 (mended in 2.1)"),
        ({"pypi": {"dependencies": [A, SKIPPED]}}, 3, "no source has answered for 1 packages (b==2)"),
        ({"pypi": "ConnectionError", "osv": "ConnectionError"}, 3, "no source has answered for 2 packages (a==1, b==2)"),
        ({"pypi": "ConnectionError", "osv": {"dependencies": [A, B]}}, 0, "pypi: no answer: ConnectionError"),
        ({"pypi": {"dependencies": [SKIPPED]}, "osv": {"dependencies": [A, BAD]}}, 1, "CVE-2026-1"),
        ({"pypi": {"dependencies": [BAD]}, "osv": "ConnectionError"}, 1, "CVE-2026-1"),
    ],
    ids=[
        "all answered",
        "vulnerable",
        "one passed over",
        "none reached",
        "the second answers",
        "the second finds",
        "half answered",
    ],
)
def test_what_sources_answer_decides_how_it_ends(reports: dict[str, dict[str, Any] | str], code: int, says: str) -> None:
    ended, lines = audit.verdict(PACKAGES, reports)

    assert ended == code
    assert says in "\n".join(lines)


def test_the_second_source_is_asked_when_the_first_has_not_answered_for_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def ask(source: str, packages: list[str]) -> str:
        asked.append(source)
        return "out of reach"

    monkeypatch.setattr(audit, "ask", ask)

    assert audit.main() == audit.NOT_ANSWERED
    assert asked == ["pypi", "osv"]
    assert "out of reach" in capsys.readouterr().err

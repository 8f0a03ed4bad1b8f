"""What README shows of files is what the files say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_dockerfile_in_the_readme_is_the_one_that_is_built_in_the_tests() -> None:
    (shown,) = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    text = (ROOT / "examples" / "image" / "Dockerfile").read_text()
    ((name, value),) = re.findall(r"^ARG (\w+)=(\S+)\n", text, re.MULTILINE)

    assert text.partition("\nFROM")[2].replace(f"${{{name}}}", value) == shown.removeprefix("FROM")

"""What the image's entry point is told by its environment, and that it was told too little."""

from __future__ import annotations

from collections.abc import Mapping


class WrongCall(Exception):
    """This process was not started as the operator or Spark start it."""


def required(environment: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise WrongCall(f"not set: {', '.join(missing)}; this runs in pods that the operator or Spark make, which set them")
    return [environment[name] for name in names]

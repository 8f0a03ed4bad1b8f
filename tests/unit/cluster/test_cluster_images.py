"""Which images a test cluster's node no longer needs."""

from __future__ import annotations

from devtools.kubernetes.images import replaced


def test_an_older_image_of_a_repository_goes_with_every_reference_that_would_keep_it() -> None:
    known = {
        "localhost/spark:new": "sha256:m1",
        "localhost/spark:old": "sha256:m2",
        "localhost/pause:1": "sha256:m3",
        "sha256:c1": "sha256:m1",
        "sha256:c2": "sha256:m2",
        "sha256:c3": "sha256:m3",
        "sha256:c4": "sha256:m4",
    }

    assert replaced(["localhost/spark:new"], known) == ["localhost/spark:old", "sha256:c2", "sha256:c4"]
    assert replaced(["localhost/other:1"], {"localhost/spark:new": "sha256:m1", "sha256:c1": "sha256:m1"}) == []

"""Properties of Spark that name variables of the driver's environment."""

from __future__ import annotations

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_spark.process.gpus import with_variables


def test_each_variable_is_put_in_and_everything_else_stays() -> None:
    conf = {"spark.a": "jdbc://${env:USER}:${env:PW}@h", "spark.b": "$HOME ${x} ${env:}", "spark.c": ""}

    assert with_variables(conf, {"USER": "me", "PW": "${env:USER}"}) == {
        "spark.a": "jdbc://me:${env:USER}@h",
        "spark.b": "$HOME ${x} ${env:}",
        "spark.c": "",
    }


def test_a_variable_that_is_not_set_is_named_with_its_property() -> None:
    with pytest.raises(NeedsChange) as refused:
        with_variables({"spark.a": "${env:MISSING}"}, {})

    assert refused.value.reason == reasons.MANIFEST_INVALID
    assert "spark.a names the variable MISSING" in refused.value.message

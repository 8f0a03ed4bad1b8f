"""The class data with which the tests' Sparks start faster, in the environment that the tests run in."""

import os
import sys
from pathlib import Path

from checkpoint_spark.process import class_data
from devtools import build_tools


def spark_classes() -> Path:
    """Return the home of a Spark that has them; they are made once for each environment."""
    home = class_data.home_of_spark(os.environ)
    assert home is not None, "the environment of the tests has pyspark"
    if not class_data.is_there(home):
        build_tools.run([sys.executable, "-m", "checkpoint_spark.process.class_data"])
    return home

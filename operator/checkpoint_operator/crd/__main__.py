"""`python -m checkpoint_operator.crd` prints the CustomResourceDefinition."""

import sys

from checkpoint_operator.crd.definition import as_yaml

sys.stdout.write(as_yaml())

# The two commands of README.md are `make run` and `make test`; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What WORKERS says; else what the machine bears.
IN_PARALLEL = --numprocesses=$$($(BIN)/python -m devtools.testing.workers)
# The tests on a cluster, which take longest and mostly wait, begin first; tests/conftest.py says which tests stay together.
IN_ORDER := --dist=loadscope --no-loadscope-reorder
RUN_TESTS = $(BIN)/python -m devtools.testing $(IN_PARALLEL) $(IN_ORDER) --durations=20 --durations-min=5

# A run of the tests starts some hundred Python processes. Without bytecode on disk, each compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run run-lance run-answers run-images docs lint check test test-all test-changed test-slow-machine test-cluster bench format prefetch pin sbom audit release clean cluster cluster-down images

help: ## say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: $(READY) ## make .venv with every package pinned

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Say: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) (about a minute the first time)"
	@awk '/^[^ ]/ { is_uv = /^uv==/ } is_uv' constraints.txt > $(VENV)/uv.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@$(BIN)/uv pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --editable '.[dev]'
	@# PySpark is built from source. Where the registry gives no ETag, uv keeps one more copy of it (1.4 GB) each time.
	@$(BIN)/uv cache prune --quiet
	@touch $@

run: setup ## run the example: flights to an Iceberg table
	@$(BIN)/python -m checkpoint_local.java
	@$(BIN)/python examples/prepare_data.py
	@$(BIN)/checkpointed-write run examples/flights-iceberg.yaml

run-lance: setup ## run the second example: flights to a Lance dataset
	@$(BIN)/python -m checkpoint_local.java
	@$(BIN)/python examples/prepare_data.py
	@$(BIN)/checkpointed-write run examples/flights-lance.yaml

run-answers: setup ## run the third example: a question about each airport, to a service that is started for it
	@$(BIN)/python -m checkpoint_local.java
	@$(BIN)/python examples/prepare_data.py
	@$(BIN)/python examples/answer_service.py & service=$$!; trap "kill $$service; wait $$service" EXIT; \
		$(BIN)/checkpointed-write run examples/answers-iceberg.yaml

run-images: setup ## run the fourth example: vectors of images to a Lance dataset, one more column for them, and a search
	@$(BIN)/python -m checkpoint_local.java
	@$(BIN)/python examples/prepare_images.py
	@$(BIN)/checkpointed-write run examples/images-lance.yaml
	@$(BIN)/checkpointed-write run examples/images-columns.yaml
	@$(BIN)/python examples/nearest_images.py

lint: setup ## format, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config=devtools/imports.toml

check: lint ## the fast checks: lint, unit tests and simulation
	CHECKPOINTED_WRITES_CHECK=quick $(BIN)/python -m pytest $(IN_PARALLEL) --dist=worksteal -m "not slow" tests/unit tests/simulation

prefetch: setup ## fetch and build the servers that the tests use, once, into a cache folder
	@$(BIN)/python -m checkpoint_local.java
	$(BIN)/python -m devtools.prefetch

test: lint prefetch ## what a change has to pass; as root on Linux, with five tests on a real cluster
	$(RUN_TESTS) -m "not slow"

test-all: lint prefetch ## every test, also those that take long and prove again what `test` proves
	CHECKPOINTED_WRITES_CHECK=whole $(RUN_TESTS)

# SINCE: the commit that is compared with.
SINCE ?= HEAD
test-changed: setup ## the tests whose imports reach what was changed since HEAD (SINCE=main: since the branch began)
	$(BIN)/python -m devtools.testing.changed $(SINCE) > $(VENV)/changed-tests.txt
	@if [ -s $(VENV)/changed-tests.txt ]; then \
	  CHECKPOINTED_WRITES_CHECK=quick $(BIN)/python -m pytest $(IN_PARALLEL) --dist=loadscope -m "not slow" @$(VENV)/changed-tests.txt; \
	else echo "no test reaches what was changed"; fi

test-slow-machine: setup prefetch ## what `test` runs, on one core with four busy loops beside: nothing may depend on luck
	CHECKPOINTED_WRITES_PATIENCE=20 $(BIN)/python -m devtools.testing.busy taskset --cpu-list 0 $(BIN)/python -m devtools.testing --numprocesses=2 $(IN_ORDER) -m "not slow"

test-cluster: setup prefetch ## run the tests on a real cluster of this machine only (root on Linux)
	$(BIN)/python -m pytest tests/cluster

bench: setup prefetch ## measure every figure of benchmarks/ (three hours; wants the machine for itself)
	@$(BIN)/python -m benchmarks

# A node of our own takes root on Debian or Ubuntu; `make cluster CLUSTER=kind` takes Docker instead. The second was not tried: Docker
# did not let kind run where this was written. Its images are loaded with: go run $(KIND) load image-archive <archive> --name tests
CLUSTER ?= node
KIND := sigs.k8s.io/kind@v0.33.0

cluster: setup ## start a Kubernetes of one node on this machine; the first time builds it, about fifteen minutes
ifeq ($(CLUSTER),kind)
	go run $(KIND) create cluster --name tests --wait 2m
else
	@$(BIN)/python -m devtools.kubernetes up
endif

cluster-down: setup ## end it, with all that runs in it
ifeq ($(CLUSTER),kind)
	go run $(KIND) delete cluster --name tests
else
	@$(BIN)/python -m devtools.kubernetes down
endif

images: setup ## build the images of operator and Spark into archives, and load them if the cluster is up
	@$(BIN)/python -m devtools.kubernetes images

docs: setup ## build the documentation into build/docs
	$(BIN)/python -m devtools.documentation
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --quiet

format: setup ## format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

pin: setup ## write constraints.txt: each package's version, as it is there or with UPGRADE=1 the newest, and the hashes of its files
	@printf '%s\n' hatchling setuptools wheel uv | $(BIN)/uv pip compile pyproject.toml - --all-extras --universal \
	   --generate-hashes --no-annotate --custom-compile-command='make pin' $(if $(UPGRADE),--upgrade) --quiet \
	   --output-file=constraints.txt

sbom: setup ## list the packages of each image, as CycloneDX, in build/sbom
	@mkdir -p build/sbom
	@set -e; for folder in operator spark_app; do list=build/sbom/$$folder; \
	  $(BIN)/uv pip compile pyproject.toml $$(grep -o -- '--extra=[a-z]*' $$folder/Dockerfile) --constraint constraints.txt --generate-hashes \
	    --no-annotate --quiet --output-file=$$list.txt >/dev/null; \
	  PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements $$list.txt --pyproject pyproject.toml --output-reproducible --output-format JSON --output-file $$list.cdx.json; \
	  rm $$list.txt; echo $$list.cdx.json; done

audit: setup ## ask an advisory source about every pinned package: 1 means vulnerable, 3 that no source has answered for all of them
	@$(BIN)/python -m devtools.release.audit

# Says what is missing before anything is set up. IMAGES=none leaves the images out, IMAGES=folder takes operator.oci.tar and spark.oci.tar of it.
IMAGES ?= build
release: $(if $(KEY),setup) ## what this version consists of, signed, in build/release (KEY=path of an SSH key)
	@test -n "$(KEY)" || { echo "make release signs what it makes, with a key of yours: make release KEY=release_key. To make one, outside of this folder:" >&2; \
	  echo "  ssh-keygen -t ed25519 -C checkpointed-writes-release -f release_key" >&2; exit 1; }
	@$(BIN)/python -m devtools.release --key "$(KEY)" --images "$(IMAGES)"

clean: ## remove what the examples and tools made (not .venv)
	rm -rf build examples/data examples/code/airports.csv examples/output examples/images/model.onnx examples/images/characters.txt .mypy_cache .ruff_cache .hypothesis

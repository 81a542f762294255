# install, demo, test, ui, bench, clean. Needs make and Python 3.10 to 3.13; everything else goes into .venv, .java and .jars here.
.PHONY: help install demo cluster test lint format types tests test-all test-cluster test-s3 ui bench bench-quick bench-store clean constraints
.DEFAULT_GOAL := help

SCALE ?= 0.1
BENCH_SCALE ?= 1
BIN := .venv/bin
# Two processes with a PostgreSQL each. A file's tests stay together, as they share what is set up, and the files stay in order, as the few
# tests that begin with a server of their own would otherwise be the end.
BESIDE := --numprocesses 2 --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start dozens of commands, and collect 3,000 tests in each process: what is compiled once need not be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make install     prepare .venv, and Java and Spark's JARs where they are missing"
	@echo "make demo        embedded PostgreSQL, TPC-H, two syncs and a comparison row by row  (SCALE=$(SCALE))"
	@echo "make ui          Dagster's UI over the demo, on 127.0.0.1:3000"
	@echo "make cluster     the demo's tables on the services of several machines, as processes on this one  (KEEP=1 leaves them running)"
	@echo "make test        what a change has to pass: static checks, and the tests of what everybody uses"
	@echo "make lint        the static checks alone"
	@echo "make test-all    all tests, in as much time as it takes: kills, bad input, random histories, other databases, S3"
	@echo "make test-cluster  make cluster, where a worker, the daemon and the store are killed while a load runs"
	@echo "make test-s3     files and lakes on S3, against a server on this machine"
	@echo "make bench       side by side with dlt"
	@echo "make bench-store the same syncs into a lake on the disk and, beside dlt, into one on an S3 store, which it starts"
	@echo "make bench-quick benchmarks at a small size, compared with the last such run; some ten minutes"
	@echo "make clean       remove what the commands above made (the environment stays; 'make distclean' removes that too)"

install: .venv/.installed
	@$(BIN)/python -m incremental_assets.spark.embedded.java install
	@$(BIN)/python -m incremental_assets.spark.embedded.server fetch

# The first Python that is new enough and can make environments; PYTHON=/path/to/python names another.
.venv/.installed: pyproject.toml constraints.txt
	@set -e; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.10 python; do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then \
	    found=$$candidate; break; fi; done; \
	if [ -z "$${found:-}" ]; then \
	  echo "No Python 3.10 to 3.13 with venv was found. Install one (Debian, Ubuntu: apt install python3 python3-venv;" >&2; \
	  echo "macOS: brew install python@3.12; Fedora: dnf install python3.12), or say make install PYTHON=/path/to/python." >&2; \
	  exit 1; fi; \
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then \
	  echo "making .venv with $$($$found --version)"; $$found -m venv --clear .venv; fi
	@echo "installing some 190 packages into .venv: 2.1 GB on the disk, one to three minutes"
	$(BIN)/python -m pip install --quiet --use-pep517 --constraint constraints.txt --editable '.[alerts,api,demo,dev,metrics,mysql,profiles,sqlserver]'
	@touch $@

demo: install
	$(BIN)/incremental-assets demo --scale $(SCALE)

ui: install
	$(BIN)/incremental-assets dev

# Spark's master with two workers, an S3-compatible store, Dagster on PostgreSQL with webserver, daemon and code server: deploy/cluster.
cluster: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
	$(BIN)/python -m deploy.cluster --scale $(SCALE) $(if $(KEEP),--keep)

# What takes a second comes first, and the static checks that take longer run beside the tests.
test: format
	@$(MAKE) --no-print-directory --jobs=2 types tests

lint: format types

format: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/lint-imports
	$(BIN)/basedpyright --level error
	$(BIN)/dg check defs

# ORDER='--random-order --random-order-seed=7' shuffles them.
tests: install
	$(BIN)/python -m pytest -m "not long and not s3" --durations=40 $(BESIDE) $(ORDER)

# ROTATION=--rotation=25 runs a share of what `make test` leaves out, which changes with the commit, for 25 minutes, as .ci/run does.
test-all: export TESTS := all
test-all: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
	$(BIN)/python -m pytest -m "$(if $(ROTATION),long or s3)" --durations=40 $(BESIDE) $(ROTATION)

test-cluster: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
	$(BIN)/python -m pytest -m "long and s3" assets_tests/deploy

# Files and lakes on an object store: an S3-compatible server on this machine, and a Spark server that has the connector.
test-s3: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
	$(BIN)/python -m pytest -m s3 --durations=20

bench: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks --scale $(BENCH_SCALE)

bench-store: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,cluster]'
	$(BIN)/python -m benchmarks.store --scale $(BENCH_SCALE)

bench-quick: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks.quick

constraints:
	@{ sed -n '/^#/p' constraints.txt; \
	  uv pip compile pyproject.toml --extra alerts --extra api --extra demo --extra dev --extra metrics --extra mysql --extra profiles --extra sqlserver --extra bench --extra cluster --universal --python-version 3.10 \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet; } > .constraints.tmp
	@mv .constraints.tmp constraints.txt

clean:
	-@if [ -x $(BIN)/python ]; then $(BIN)/python -m incremental_assets.spark.embedded.server stop; $(BIN)/python -m incremental_assets.demo remove; $(BIN)/python -m deploy.cluster --remove; fi
	rm -rf .dagster_home .demo .cluster .bench lake spark-warehouse metastore_db derby.log artifacts .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .java .jars

# make test      lint, types and all tests, in an environment of its own
# make demo      EfficientNet-Lite0 on real photos
# make PYTHON=python3.12 test   with another interpreter (3.10 or newer)
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.10 python3 python; do \
	if $$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then echo $$p; break; fi; done)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: help test lint types unit test-slow demo bench wheel clean

help:
	@sed -n 's/^# \{0,1\}make /make /p' Makefile

$(VENV)/made:
	@test -n "$(VERSION)" || { echo "no Python 3.10 to 3.14 found; say which: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/dev: $(VENV)/made pyproject.toml
	$(PIP) -e '.[dev,image]'
	@touch $@

$(VENV)/demo: $(VENV)/made pyproject.toml
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/peers: $(VENV)/dev pyproject.toml
	$(PIP) -e '.[dev,demo,peers]'
	@touch $@

test: lint types unit

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# The newest numpy for Python 3.10 describes its arrays without default type arguments.
types: $(VENV)/dev
	$(BIN)/mypy $(if $(filter 3.10,$(VERSION)),--allow-any-generics)

unit: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow'

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -m slow

demo: $(VENV)/demo
	$(BIN)/python examples/demo.py

bench: $(VENV)/peers
	$(BIN)/python benchmarks/float_vs_peers.py

wheel: $(VENV)/made
	$(PIP) build
	$(BIN)/python -m build --wheel

clean:
	rm -rf .venv-* build dist demo-output

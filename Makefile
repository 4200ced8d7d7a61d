# Two commands on a fresh machine do everything: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCH  := .venv-bench
FOUND  := benches/results/latest.json
TABLES := README.md docs/reference/benchmarks.md
TESTS  ?= tests
SHARED := -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo test test-full check generate bench bench-quick docs screenshots site clean

help:  ## print the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY)  ## set up, then send half a million orders through every part and check each number
	$(BIN)/headgate demo

test: $(READY)  ## set up, then run the everyday tests (HEADGATE_SEED=n repeats a run)
	$(BIN)/python -m pytest $(SHARED) $(TESTS)

test-full: $(READY)  ## run the tests with the full number of rounds: many minutes
	HEADGATE_FULL=1 $(BIN)/python -m pytest $(SHARED) $(TESTS)

check: $(READY)  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

generate: $(READY)  ## write the sync API of queues from the asyncio API
	$(BIN)/python tools/generate_sync.py

bench: $(BENCH)/.ready  ## measure next to the alternatives and write the tables in README.md and docs: an hour (ONLY=spark)
	$(BENCH)/bin/headgate bench --out $(FOUND) $(addprefix --into ,$(TABLES)) $(addprefix --only ,$(ONLY))

bench-quick: $(BENCH)/.ready  ## measure with less data and write nothing: some minutes
	$(BENCH)/bin/headgate bench --quick $(addprefix --only ,$(ONLY))

docs: $(READY)  ## write the references of the command line and of the Python API
	$(BIN)/python -m headgate.cli.reference > docs/reference/cli.md
	$(BIN)/python tools/api_reference.py
	$(BIN)/python tools/http_reference.py

screenshots: $(READY)  ## write pictures of every page into build/screenshots, and those of README.md (needs chromium)
	$(BIN)/python tools/screenshots.py build/screenshots docs/images

site: $(READY)  ## build the documentation as a web site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:  ## delete what set-up and tests leave behind
	rm -rf $(VENV) $(BENCH) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	touch $@

$(BENCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,bench]'
	touch $@

# Two commands do everything on a fresh machine: make demo, make test. Both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard pyproject.toml constraints.txt)

.PHONY: help demo test test-ci test-again test-all upgrade-examples fuzz lint format docs bench clean

help:
	@echo "make demo      replace the model of a text index and measure every way to serve it, in about 30 seconds"
	@echo "make test      the tests, without the slow ones"
	@echo "make test-ci   what CI runs: also the page in a browser and the built package"
	@echo "make test-all  all tests, killed and resumed runs included"
	@echo "make upgrade-examples  the examples of docs/upgrade.md, with Chroma, LangChain and LlamaIndex"
	@echo "make fuzz      hostile files and requests, with new seeds, for an hour (FUZZ_SECONDS=3600)"
	@echo "make lint      ruff and mypy"
	@echo "make format    let ruff put the source in order"
	@echo "make docs      build the documentation site in site/"
	@echo "make bench     the timings that need no GPU"
	@echo "make clean     remove .venv, runs and caches"

# Newer than the pip of Python 3.11, which takes twice as long to resolve the dependencies.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --constraint constraints.txt pip

$(VENV)/core: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[train,serve]"
	@touch $@

# Without torch: a tenth of what training takes.
$(VENV)/demo: $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV) (190 MB) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[demo]"
	@touch $@

# All of core is in it: one installation instead of two.
$(VENV)/dev: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(VENV)/core $(VENV)/demo $@

demo: $(VENV)/demo
	$(BIN)/holdfast demo

# Threads that spin while they wait take the cores from the tests beside them.
test: $(VENV)/dev
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -rs -m "not slow"

test-ci: $(VENV)/dev
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -rs -m "not slow or ci"

# What failed, once more and alone: a test that waits for others can miss its time on a busy machine.
test-again: $(VENV)/dev
	OMP_WAIT_POLICY=passive $(BIN)/pytest -rs -m "not slow or ci" --last-failed --last-failed-no-failures none

test-all: $(VENV)/dev
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -rs

# In an environment of their own: these libraries are heavy.
upgrade-examples:
	$(PYTHON) -m venv $(VENV)-upgrade
	$(VENV)-upgrade/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[postgres]" \
		--requirement tests/upgrade/requirements.txt
	HOLDFAST_NEED_EXAMPLES=1 HOLDFAST_NEED_POSTGRES=1 $(VENV)-upgrade/bin/python -m pytest --noconftest -rs \
		tests/upgrade/test_upgrade_docs.py

# Requests first: their number is fixed (FUZZ_EXAMPLES for each endpoint); files take the rest of the time. A failure
# does not end the other part. `make fuzz FUZZ_SEED=N` repeats the files of seed N.
FUZZ_SECONDS ?= 3600
FUZZ_SEED ?= $(shell date +%s)
FUZZ_EXAMPLES ?= 50
fuzz: $(VENV)/dev
	@echo "seed $(FUZZ_SEED)"
	begun=$$(date +%s); failed=0; \
	HOLDFAST_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) timeout $(FUZZ_SECONDS) $(BIN)/pytest -p no:cacheprovider \
		--hypothesis-seed=$(FUZZ_SEED) tests/train/experiments/test_experiments_toml.py tests/train/data/test_data_images.py \
		tests/train/data/test_data_plain_pickle.py tests/test_untrusted_files.py tests/service/test_service_fuzz.py || failed=1; \
	left=$$(($(FUZZ_SECONDS) - $$(date +%s) + begun)); \
	$(BIN)/python bench/hostile_files.py --seed $(FUZZ_SEED) --for $$((left > 1 ? left : 1)) || failed=1; \
	exit $$failed

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev
	$(BIN)/python docs/reference/write_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(VENV)/core
	$(BIN)/python bench/simplex.py
	$(BIN)/python bench/evaluation.py

clean:
	rm -rf $(VENV) $(VENV)-upgrade runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis

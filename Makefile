# Everything that a developer or a user runs. Each target first brings the set-up up to date, so
# `make train` and `make test` work on a fresh machine; the second time only what changed is done.
#
#   make build       virtual environment .venv, pinned packages, engine and package installed into it
#   make train       trains a byte-level Llama on TEXT= for STEPS= steps of SEQ= tokens over RANKS= ranks
#   make test        every test           make test-fast   those without gloo, Inductor and slow ones
#   make lint        formats, static checks, layers, sizes
#   make bench       engine and step times, into bench/results
#   make asan        C++ and text tests under ASan and UBSan
#   make fuzz        random input for the parser under ASan and UBSan for SECONDS= seconds
#   make zoo         every causal-LM architecture of transformers against one device (a quarter of an hour)
#   make clean       removes what was built (.venv stays)

SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
BUILD := build/dev
JOBS ?= $(shell nproc)
SECONDS ?= 300

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: build train test test-fast lint bench asan fuzz zoo clean
.DELETE_ON_ERROR:

# Two makes at once in one checkout wait for each other.
LOCKED := mkdir -p build && flock build/.lock
cmake_build = $(LOCKED) sh -c '{ test -e build/$(1)/build.ninja || cmake --preset $(1) --log-level=WARNING; } && \
	cmake --build build/$(1) $(2)'

build: $(VENV)/.package
	@$(call cmake_build,dev)

$(VENV)/.packages: requirements.lock tools/setup.sh
	@$(LOCKED) tools/setup.sh
	@touch $@

# The compiled module stands beside the Python sources (build/dev puts it there), so the package is
# installed by reference and without a build of its own.
$(VENV)/.package: $(VENV)/.packages pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings=wheel.cmake=false --config-settings=editable.mode=inplace --editable .
	@touch $@

train: build
	@$(PY) examples/train.py $(if $(TEXT),--text "$(TEXT)") $(if $(STEPS),--steps $(STEPS)) \
	  $(if $(SEQ),--seq $(SEQ)) $(if $(RANKS),--ranks $(RANKS))

test: build
	@$(PY) test/run_all.py

test-fast: build
	@$(PY) test/run_all.py --fast

asan: $(VENV)/.package
	@$(call cmake_build,asan)
	@$(PY) test/run_all.py --asan

zoo: build
	@$(PY) test/zoo/zoo.py --jobs $(JOBS) --record

fuzz: $(VENV)/.package
	@$(call cmake_build,asan,--target parse_fuzz)
	@build/asan/parse_fuzz $(SECONDS)

lint: $(VENV)/.package
	@$(PY) tools/lint/run.py

bench: build
	@$(PY) bench/run.py

clean:
	rm -rf build dist python/autosp/_engine*.so .pytest_cache .ruff_cache
	find python test tools examples bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

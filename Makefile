# Two commands do everything on a fresh machine: `make demo` and `make test`.
# The system's Python is preferred: a virtual environment of an interpreter in root's home cannot be executed by the
# other users that the tests become.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) $(shell command -v python3))
VENV   ?= .venv
BIN    := $(VENV)/bin
# Programs that are tested against, each in a directory of its own: the oldest versions that are promised to work, and
# what must not be installed beside them.
BESIDE := .build/triton36 .build/uv .build/uv04 .build/pip25 .build/plugin-django .build/plugin-rerunfailures \
          .build/plugin-retry .build/plugin-allure .build/plugin-annotate .build/plugin-benchmark .build/plugin-dependency

# The versions of what tests need; `make LOCK= …` takes whatever is newest.
LOCK ?= packaging/dev-lock.txt

.DEFAULT_GOAL := help
.PHONY: help demo test ready machine check unit bench bench-gpu quick coverage docs dist release lock clean

help:            ## what can be made
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/'

demo: $(VENV)/.demo   ## the main job in half a minute: cold, warm elsewhere, warm as another user
	@$(BIN)/python examples/demo

test:            ## everything: lint, types, unit, fault, real-tool and multi-user tests
	@$(MAKE) --no-print-directory -j4 -Oline ready
	$(BIN)/python tests/whole_suite.py

# What `make test` needs is mostly downloaded and unpacked: side by side, while lint and types are looked at.
ready: machine .build/tools .build/suites $(BESIDE) check
machine: | $(VENV)/bin/python
	@$(BIN)/python tests/setup_machine.py

check: $(VENV)/.dev   ## lint and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

quick: $(VENV)/.dev .build/tools   ## what decides, the contracts, the layers: seconds, after every change
	$(BIN)/python tests/whole_suite.py tests/unit tests/conformance tests/architecture

coverage: $(VENV)/.dev .build/tools   ## which lines the quick tests and tests/e2e reach, per room; the pages are in .build/coverage/html
	$(BIN)/python tests/covered.py

unit: $(VENV)/.dev .build/tools    ## the fast tests only
	$(BIN)/python -m pytest -m "not real and not fault and not root"

bench: $(VENV)/.dev   ## measure the speed claims of docs/benchmarks.md, side by side with their peers
	$(BIN)/python -m bench

bench-gpu: $(VENV)/.dev   ## the part that needs an NVIDIA GPU
	$(BIN)/python -m bench.gpu

docs: $(VENV)/.dev    ## the documentation as a site, in .build/site/html
	$(BIN)/python docs/made
	$(BIN)/python docs/web

dist: | $(VENV)/bin/python   ## Ondol as one file, dist/ondol.pyz, for machines without pip or network
	$(BIN)/python packaging/one_file.py

release: | $(VENV)/bin/python   ## build what would be published, check it, try it in clean environments of every Python that is here
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python packaging/release.py

lock:                 ## write the lock of the development tools anew, from a clean environment
	rm -rf .build/lock && $(PYTHON) -m venv .build/lock
	.build/lock/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	head -2 packaging/dev-lock.txt > .build/lock.txt
	.build/lock/bin/python -m pip freeze --exclude-editable >> .build/lock.txt
	mv .build/lock.txt packaging/dev-lock.txt && rm -rf .build/lock

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(LOCK),-c $(LOCK)) -e '.[dev]' || \
	    (echo 'the versions of $(LOCK) cannot be had; trying what pyproject.toml allows' && \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]')
	@touch $@ $(VENV)/.demo

.build/triton36: WHAT = triton==3.6.0
.build/uv: WHAT = uv==0.13.7
.build/uv04: WHAT = uv==0.4.30
.build/pip25: WHAT = pip==25.0
# pytest's plugins, each for the runs that put its directory on PYTHONPATH; pytest itself is not to be installed again.
.build/plugin-django: WHAT = --no-deps pytest-django==4.14.0 django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1
.build/plugin-rerunfailures: WHAT = --no-deps pytest-rerunfailures==16.7
.build/plugin-retry: WHAT = --no-deps pytest-retry==1.7.0
.build/plugin-allure: WHAT = --no-deps allure-pytest==2.16.2 allure-python-commons==2.16.2 attrs==26.1.0
.build/plugin-annotate: WHAT = --no-deps pytest-github-actions-annotate-failures==0.4.2
.build/plugin-benchmark: WHAT = --no-deps pytest-benchmark==5.3.1 py-cpuinfo==9.0.0
.build/plugin-dependency: WHAT = --no-deps pytest-dependency==0.6.1
$(BESIDE): | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@.part $(WHAT)
	mv $@.part $@

# Real tools that run without a GPU (PyTorch, JAX, Numba, Warp, TileLang), apart from our own packages.
.build/tools: tests/tools-requirements.txt
	rm -rf $@ && $(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check -r $< || (rm -rf $@; false)
	@touch $@

# Public suites that once differed from plain pytest. Some ship their tests in their source distribution only.
.build/suites: tests/suites-requirements.txt | $(VENV)/bin/python
	rm -rf $@ $@.part
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.part -r $<
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary structlog,anyio,werkzeug -d $@.part/sources \
	    $$(grep -E '^(structlog|anyio|werkzeug)==' $<)
	for one in $@.part/sources/*.tar.gz; do tar -xzf $$one -C $@.part/sources; done
	mv $@.part $@ && touch $@

clean:           ## forget everything that was built or installed here
	rm -rf $(VENV) .build dist .pytest_cache .mypy_cache .ruff_cache

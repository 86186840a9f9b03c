# Each target is one line that calls a tool you can also run by hand. The first one run makes .venv from the lock.
# Another interpreter: make PYTHON=/path/to/python3.12 book

PYTHON ?= python3
RUN := .venv/bin/python
UNIT := -n 2 -m "not book and not browser and not notebooks and not gpu and not compile" tests

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help book test test-fast compile lab chapters results bench lint floor clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

book: .venv/complete ## execute and render the book into _build/html
	$(RUN) -m tools.build_book

test: test-fast compile floor book ## everything: test-fast, the kernels compiled, Colab's versions, the book built strictly, the browser
	$(RUN) -m pytest tests/book tests/browser tests/notebooks -m "book or browser"

test-fast: lint ## the first half: lint, then the unit and property tests
	$(RUN) -m pytest $(UNIT)

compile: .venv/complete ## the GPU kernels to machine code, without a GPU, in .venv-cuda
	$(RUN) -m tools.compile_kernels

lab: .venv/complete ## JupyterLab on the chapters
	$(RUN) -m jupyter lab chapters

chapters: .venv/complete ## write the notebooks, the README's table and picture, and the addresses anew
	$(RUN) -m tools.export_notebooks
	$(RUN) -m tools.stamp_address
	$(RUN) -m tools.readme_picture

results: .venv/complete ## compute stored results again, those whose code has changed
	$(RUN) -m tools.make_results

bench: .venv/complete ## print every benchmark
	set -e; for script in benchmarks/[a-z]*.py; do echo "$$script"; $(RUN) $$script; done

lint: .venv/complete ## ruff, and that everything generated is fresh
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m tools.export_notebooks --check
	$(RUN) -m tools.stamp_address --check
	$(RUN) -m tools.readme_picture --check

floor: ## the unit tests and two notebooks at Colab's versions, in .venv-floor
	$(PYTHON) -m tools.run_floor

clean: ## remove everything that was made, environments included
	rm -rf _build .venv .venv-floor .venv-cuda .pytest_cache .hypothesis .ruff_cache

.venv/complete: requirements.lock pyproject.toml tools/make_environment.py
	$(PYTHON) tools/make_environment.py

# Everything starts here and needs only Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test check bench soak format clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "anabranch needs Python 3.11 or newer (set PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --editable .
	@touch $(STAMP)

demo: $(STAMP)          ## set everything up and run the showcase
	@$(BIN)/anabranch demo

test: $(STAMP)          ## set everything up and run every test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2

check: $(STAMP)         ## lint, types and the fast tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2 -m 'not slow'

bench: $(STAMP)         ## print the benchmark table
	@$(BIN)/python -m bench

soak: $(STAMP)          ## long simulation; SEEDS=100000 for more
	@$(BIN)/python -m anabranch.testing.soak --seeds $(or $(SEEDS),20000)

format: $(STAMP)
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist

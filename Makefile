# Everything starts here and needs only Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check
INSTALL := $(BIN)/python tools/install.py
SUITE  := $(BIN)/python -m tools.suite
RUNTIME := $(VENV)/.runtime
DOCS   := $(VENV)/.docs
STAMP  := $(VENV)/.installed
EXTRAS := buckets,dask,duckdb,evm,market,otel,parquet,postgres,ray
APT    := apt-get install -qq -y --no-install-recommends
LOCKER := $(VENV)/lock
COMPILE := $(LOCKER)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
  --no-config --no-emit-index-url --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

# Every process of the demo and of the tests loads compiled modules, also where an image of a
# container says otherwise: without them a start takes twice as long.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test times check lint docs map lock browser pictures nats redis bench table soak fuzz crowd format clean

# Exactly the files whose hashes stand in requirements/*.lock are installed, the build backend
# included. UNLOCKED=1 takes what the ranges of pyproject.toml allow, for platforms without wheels.
$(RUNTIME): pyproject.toml requirements/runtime.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "anabranch needs Python 3.11 or newer (set PYTHON=...)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifdef UNLOCKED
	@$(PIP) --editable .
else
	@$(INSTALL) requirements/runtime.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
endif
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME) requirements/dev.lock
	@echo "setting up the tools for testing (once)"
ifdef UNLOCKED
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --group dev --editable '.[$(EXTRAS)]'
else
	@$(INSTALL) requirements/dev.lock
endif
	@touch $(STAMP)

$(DOCS): $(RUNTIME) requirements/docs.lock
	@echo "setting up what builds the pages (once)"
ifdef UNLOCKED
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --group docs
else
	@$(INSTALL) requirements/docs.lock
endif
	@touch $(DOCS)

lock:                   ## write requirements/*.lock anew; UPGRADE=1 moves every version on
	@test -x $(LOCKER)/bin/uv || { $(PYTHON) -m venv $(LOCKER) && \
	  $(LOCKER)/bin/python -m pip install -qq --disable-pip-version-check 'uv>=0.9,<1'; }
	@$(COMPILE) pyproject.toml requirements/build.in --output-file requirements/runtime.lock
	@$(COMPILE) pyproject.toml requirements/build.in --all-extras --group dev \
	  --constraint requirements/runtime.lock --output-file requirements/dev.lock
	@$(COMPILE) pyproject.toml requirements/build.in --extra market --extra postgres \
	  --constraint requirements/dev.lock --output-file requirements/image.lock
	@$(COMPILE) pyproject.toml requirements/build.in --group docs \
	  --constraint requirements/dev.lock --output-file requirements/docs.lock

demo: $(RUNTIME)        ## set everything up and run the showcase
	@$(BIN)/anabranch demo

test: $(STAMP) browser nats  ## set everything up and run every test; the pure ones first
	@$(MAKE) --no-print-directory lint
	@$(SUITE)

times:                  ## what the files of the last `make test` took of the processor
	@$(BIN)/python -m tools.suite.times

check: $(STAMP) lint    ## lint, types and the quick ones of the pure tests
	@$(SUITE) --fast

lint: $(STAMP)          ## lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --num-workers auto

docs: $(DOCS)           ## build the documentation as a site in build/site, strictly
	@$(BIN)/python -m tools.site

map:                    ## print the packages with their sizes and one line each; ROOM=work for one
	@$(PYTHON) tools/map.py $(ROOM)

browser:                ## a Chromium for the tests of the pages, where there is none
	@for name in "$$CHROMIUM" chromium-headless-shell chromium chromium-browser google-chrome; do \
	  test -n "$$name" && command -v "$$name" >/dev/null && exit 0; done; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing chromium (once)" && \
	  apt-get update -qq && { $(APT) chromium-headless-shell || $(APT) chromium; } >/dev/null 2>&1 || \
	echo "no Chromium: the tests of the pages will be skipped (install it, or set CHROMIUM=...)"

pictures: $(STAMP)      ## every page in light, dark and at 400 px, in test-artifacts/ui/gallery
	@ANABRANCH_PICTURES=1 $(SUITE) tests/surfaces/ui/test_gallery.py tests/surfaces/ui/node/test_gallery.py

nats:                   ## a NATS server for the tests of that kind, where there is none
	@command -v "$${NATS_SERVER:-nats-server}" >/dev/null && exit 0; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing nats-server (once)" && \
	  apt-get update -qq && $(APT) nats-server >/dev/null || \
	echo "no NATS server: its tests will be skipped (install nats-server, or set NATS_SERVER=...)"

redis:                  ## a Redis server for a neighbour in the benchmarks, where there is none
	@command -v "$${REDIS_SERVER:-redis-server}" >/dev/null && exit 0; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing redis-server (once)" && \
	  apt-get update -qq && $(APT) redis-server >/dev/null || \
	echo "no Redis server: Celery will not be measured (install redis-server, or set REDIS_SERVER=...)"

# The neighbours are installed in environments of their own (`bench/peers/.venv-*`, or in the folder
# ANABRANCH_BENCH_VENVS), when they are measured for the first time.
bench: export PEERS := $(PEERS)
bench: $(STAMP) $(if $(filter 0,$(PEERS)),,redis)  ## print the benchmark table; PEERS=0 without neighbours
	@$(BIN)/python -m bench

table: bench            ## measure everything, then put the table into bench/README.md and README.md
	@$(BIN)/python -m bench --write

# The tests with random cases take all of their seeds here, from another one each time; FIRST=n
# begins at that one again. Processes begin with an interpreter of their own: `tests/quick_starts.py`.
soak: export ANABRANCH_FRESH_STARTS := 1
soak: $(STAMP)          ## long simulation, all seeds, a second server, 20 demos, kills, an hour of `fuzz`; SEEDS=100000 FIRST=n
	@$(BIN)/python -m anabranch.testing.soak --seeds $(or $(SEEDS),20000)
	@first=$(or $(FIRST),$$(date +%s)); echo "seeds from $$first on"; \
	  ANABRANCH_SEEDS=1 ANABRANCH_FIRST_SEED=$$first ANABRANCH_SOAK=1 \
	  $(SUITE) --patient
	@ANABRANCH_STORY_RUNS=1000 $(BIN)/python -m pytest -q tests/surfaces/stories -k many_runs
	@ANABRANCH_TEST_ELSEWHERE=1 $(SUITE) --patient tests/surfaces/http tests/surfaces/ui
	@ANABRANCH_DEMO_TIMES=$(or $(DEMOS),20) $(BIN)/python -m pytest -q tests/acceptance/test_demo.py
	@ANABRANCH_TERMINAL_ROUNDS=$(or $(ROUNDS),1000) \
	  $(BIN)/python -m pytest -q tests/acceptance/test_second_terminal_kill_nine.py
	@ANABRANCH_CROWD_STORE=postgres ANABRANCH_CROWD_RESTARTS=$(or $(RESTARTS),100) \
	  $(BIN)/python -m pytest -q tests/acceptance/test_cluster_crowd_kill_nine.py
	@$(MAKE) --no-print-directory fuzz SECONDS=$(or $(FUZZ),3600) FIRST=$$(date +%s)

fuzz: $(STAMP)          ## bend messages to every reader of bytes from outside; SECONDS=60 DOORS="cel nats" KEEP=1
	@cd tests && ../$(BIN)/python -m fuzz.grow --seconds $(or $(SECONDS),60) \
	  --first $(or $(FIRST),0) $(if $(KEEP),--keep) $(DOORS)

# With STORE=postgres several servers share a database, which is restarted as well.
crowd: $(STAMP)         ## kill servers and workers while 200 clients watch; STORE=postgres SERVERS=3
	@ANABRANCH_SOAK=1 ANABRANCH_CROWD_STORE=$(STORE) ANABRANCH_CROWD_SERVERS=$(or $(SERVERS),3) \
	  ANABRANCH_CROWD_CLIENTS=$(or $(CLIENTS),$(if $(filter postgres,$(STORE)),40,200)) \
	  ANABRANCH_CROWD_SECONDS=$(or $(SECONDS),60) ANABRANCH_CROWD_RESTARTS=$(or $(RESTARTS),16) \
	  $(BIN)/python -m pytest -q \
	  tests/acceptance/test_$(if $(filter postgres,$(STORE)),cluster,server)_crowd_kill_nine.py

format: $(STAMP)
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist

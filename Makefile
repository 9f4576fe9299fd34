# BigFleet. Every target sets up what it needs in .venv; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
# When make began, for the demo to say how long a newcomer waited.
BEGAN := $(shell date +%s)
ONLY ?=
TARGET ?=
PROFILE ?=
SECONDS ?= 60
ALL_TESTS := tests bench/tests
TESTS ?= $(ALL_TESTS)
WORKERS ?= 3
E2E ?= tests/e2e

define say
@printf '\033[1m==> %s\033[0m\n' "$(1)"
endef

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What running needs. Nothing is compiled to bytecode ahead: that takes longer than the demo's first act.
$(RUNTIME): pyproject.toml constraints.txt
	$(call say,setting up $(VENV) (once; pins in constraints.txt))
	@[ -n "$(PYTHON)" ] || { echo "make: no Python 3.11 or newer with its venv module was found; install one (Debian: python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e .
	@touch $@

# What development needs besides.
$(STAMP): $(RUNTIME)
	$(call say,adding the tools of development to $(VENV) (once))
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@touch $@

.PHONY: demo
demo: $(RUNTIME) ## watch a shard serve simulated clusters from a simulated cloud, live
	$(call say,bigfleet demo)
	@BIGFLEET_DEMO_BEGAN=$(BEGAN) $(BIN)/bigfleet demo

.PHONY: warm-up
warm-up: $(STAMP) ## compile the decision engine into the user's cache (a minute once, a second after that)
	$(call say,bigfleet warm-up)
	@$(BIN)/bigfleet warm-up

# Tests wait for processes and clocks much of the time, so there are more workers than cores. Each takes the next test
# of an order that begins with the longest (tests/conftest.py). From a cold cache the engine is compiled meanwhile.
.PHONY: test
test: $(STAMP) ## run the tests and say which were slowest (TESTS=tests/engine for some of them)
	$(call say,pytest $(TESTS))
	@$(if $(filter $(ALL_TESTS),$(TESTS)),$(BIN)/python -m tests.shared.engine & trap "kill $$! 2>/dev/null || true" EXIT;) \
	$(BIN)/python -m pytest -n $(WORKERS) --maxschedchunk=1 --durations=15 --ignore=tests/e2e $(TESTS)

# Each module has clusters of its own, and they wait for much: two at a time, as they stand, for the longest have one test.
.PHONY: e2e
e2e: warm-up ## run the tests on real control planes, which are built the first time (E2E=tests/e2e/test_x.py)
	$(call say,bigfleet dev binaries)
	@$(BIN)/bigfleet dev binaries
	$(call say,pytest $(E2E))
	@$(BIN)/python -m pytest --timeout=600 -n 2 --dist loadfile --no-loadscope-reorder $(E2E)

.PHONY: conformance
conformance: $(STAMP) ## certify a provider (TARGET=HOST:PORT, PROFILE=cloud,fault)
	@[ -n "$(TARGET)" ] || { echo "make conformance: name the provider, as in TARGET=127.0.0.1:7760" >&2; exit 2; }
	$(call say,certifying $(TARGET))
	@$(BIN)/bigfleet conformance --target $(TARGET) $(PROFILE:%=--profile %)

.PHONY: conformance-self
conformance-self: $(STAMP) ## certify what this tree ships: the simulated cloud, the kit, the example providers
	$(call say,certifying the simulated cloud and the kit)
	@$(BIN)/python -m pytest -s tests/conformance/test_conformance_self.py tests/examples

.PHONY: conformance-scale
conformance-scale: $(STAMP) ## certify a simulated cloud of 20,000 machines in the scale profile (minutes)
	$(call say,certifying 20000 machines)
	@$(BIN)/bigfleet conformance --target 127.0.0.1:7769 --profile scale --only B11 \
	  --launch "$(BIN)/bigfleet provider sim --config examples/cloud/scale.yaml --listen 127.0.0.1:7769 --log-level error"

.PHONY: lint
lint: $(STAMP) ## check style, types, layers, protos
	$(call say,ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	$(call say,mypy)
	@$(BIN)/mypy
	@for each in examples/providers/*/; do (cd $$each && "$(CURDIR)/$(BIN)/mypy"); done
	$(call say,import-linter)
	@$(BIN)/lint-imports
	$(call say,buf lint)
	@cd api/proto && "$(CURDIR)/$(BIN)/buf" lint
	$(call say,buf breaking against api/proto/contract.binpb)
	@cd api/proto && "$(CURDIR)/$(BIN)/buf" breaking --against contract.binpb

.PHONY: bench
bench: $(STAMP) ## measure every budget (ONLY=model for one part)
	$(call say,benchmarks $(ONLY))
	@$(BIN)/python -m bench $(ONLY)

.PHONY: soak
soak: warm-up ## the long forms: ten minutes of load, 200 kills, days of churn (ONLY=days for one part)
	$(call say,soaking $(ONLY))
	@$(BIN)/python -m bench.soak $(ONLY)

.PHONY: search-laws
search-laws: warm-up ## hunt for fleets that break a law of the engine (SECONDS=60)
	$(call say,searching for $(SECONDS) s)
	@$(BIN)/python -m tests.engine.oracle.search --seconds $(SECONDS)

.PHONY: generate
generate: $(STAMP) ## write the wire stubs from api/proto, the reference pages, the rule map and the drawings from the code
	$(call say,generating src/bigfleet/wire/v1alpha1)
	@$(BIN)/python hack/generate.py
	$(call say,generating docs/reference)
	@$(BIN)/python hack/reference.py
	$(call say,generating docs/internals/rule-map.md)
	@$(BIN)/python -m hack.rule_map
	$(call say,generating docs/internals/commitment-life-cycle.md)
	@$(BIN)/python -m hack.commitment_drawing

.PHONY: build
build: $(STAMP) ## build wheel and sdist into dist/
	$(call say,building dist/)
	@$(BIN)/python -m build --quiet --no-isolation
	@ls -1 dist

.PHONY: clean
clean: ## remove the virtual environment and everything built
	$(call say,removing $(VENV) build dist and caches)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

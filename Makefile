# The commands of the repository; `make` alone lists them. What they do lives in tools/ and pyproject.toml.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The Java classes of Spark, from which the tests' Spark starts in half the time.
CLASSES := $(VENV)/spark.jsa
# Without bytecode each process of a test run compiles everything again, and pytest rewrites every test.
unexport PYTHONDONTWRITEBYTECODE
# Few examples of each property, the same in every run.
QUICK := --hypothesis-profile quick
PROFILE := $(QUICK)
# What starts no RabbitMQ and no Spark.
SERVERLESS := -m "not spark and not rabbitmq and not slow"
# A process that a test kills leaves a file that coverage cannot read, and warns of.
QUIETLY := PYTHONWARNINGS="ignore:Data file"
# Of these all lines and branches are reached by their own tests that start no server,
PURE := protocol routing
# of these 90 % of the lines and branches are reached by their own tests that start no server,
MEASURED := broker client bridge testing channels django admin
MODULES := builds config errors lazy
# and of these by all of their own tests.
SLOWLY := spark cli
# Tests that wait for servers leave time for one more process than there are cores.
PROCESSES := -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) --dist worksteal
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')

# The package with its hot modules compiled, for tests: without optimization, which takes half the time.
COMPILED := build/compiled
# "yes" where there is a C compiler, with Python's headers.
COMPILER := $(shell PYTHONPATH=src:. $(BIN)/python -c 'import sys; from pathlib import Path; from tools.dist.build import lacks; \
	print("" if lacks(Path(sys.executable)) else "yes")' 2>/dev/null)
COPY_ONLY := HAREBELL_PURE= PYTHONPATH=$(CURDIR)/$(COMPILED)

# What is left for `others`: the other stages run the rest.
REST := --not-measured "$(PURE) $(MEASURED) $(MODULES:%=test_%.py)" --leave-out "$(SLOWLY)"

# The parts of `make test` after `lint`: each is run, whatever became of the others.
STAGES := first both compiled

# $(call gate,packages and modules): a line for each, and the reports of those that are below 90 %.
define gate
	@rm -f .coverage.*  # what a killed process left half written; pytest has taken the others
	@low=; for part in $(1); do \
		report=$$($(BIN)/coverage report --include="src/harebell/$$part/*,src/harebell/$$part.py" --fail-under=90) || \
			{ echo "$$report"; low="$$low $$part"; }; \
		echo "$$part: $$(echo "$$report" | awk '/^TOTAL/ { print $$NF }')"; \
	done; [ -z "$$low" ] || { echo "coverage: below 90 %:$$low"; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: compiled-copy help setup demo docs dist fast pictures quick test test-compiled servers lint generate coverage $(STAGES) reckoned pure measured others slowly kept pythons torture bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the package, all its extras and the development tools
	@echo "setup: ready, $$($(BIN)/python --version) in $(VENV)"

$(STAMP): pyproject.toml tools/setup.sh
	@tools/setup.sh $(VENV)

demo: setup ## run the main job: 336,776 flights through the broker, the client and Spark
	@echo "demo: harebell demo flights $(DEMO_ARGS)"
	@$(BIN)/harebell demo flights $(DEMO_ARGS)

quick: setup ## while you work, in half a minute: style, and the tests that need no server
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/python -m pytest -q -n logical $(QUICK) $(SERVERLESS) tests/protocol tests/routing tests/repository $(PYTEST_ARGS)

pictures: setup ## write the pictures of the web console in docs/how-to/pictures again
	@PYTHONPATH=src $(BIN)/python tools/console_pictures.py

lint: setup ## check style (ruff), types (mypy --strict) and the arrows between packages (import-linter)
	@echo "lint: ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "lint: \`$(BIN)/ruff format .\` formats what differs" >&2; exit 1; }
	@echo "lint: mypy --strict, over the tests and benchmarks too"
	@$(BIN)/mypy
	@echo "lint: import-linter"
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo

docs: setup ## build the documentation as a site in build/docs; a broken link or a warning is an error
	@$(BIN)/python -c 'import furo, myst_parser, sphinx' 2>/dev/null || { \
		echo "docs: installing sphinx, myst-parser and furo in $(VENV)"; $(BIN)/python -m pip install --quiet --group docs; }
	@PYTHONPATH=src:. $(BIN)/python -m tools.site

dist: setup ## build sdist and wheels into dist/, and try each in a clean environment: 5 minutes for each Python
	@$(BIN)/python -m tools.dist $(DIST_ARGS)

fast: setup ## compile the hot modules in place: a quarter to a half less CPU per message; needs a C compiler, and two to five minutes
	@$(BIN)/python tools/compile.py

# What `make fast` has compiled is not what these measure: coverage sees nothing in it, and some tests exchange parts.
quick test coverage $(filter-out compiled,$(STAGES)) reckoned pure measured others slowly kept: export HAREBELL_PURE := 1

test-compiled: seed := $(SEED)
test-compiled: fast servers ## every test but Spark's and the terminal's once, on what `make fast` compiles
	@$(BIN)/python -c 'import harebell, sys; sys.exit(harebell.build != "compiled" and "test-compiled: the build is " + harebell.build)'
	@echo "test-compiled: pytest, in the order of \`make test-compiled SEED=$(seed)\`"
	@$(BIN)/python -m pytest $(PROCESSES) --seed $(seed) $(PROFILE) --leave-out "$(SLOWLY)"

test: seed := $(SEED)
test: setup ## install the test servers where that is possible, then lint and run every test once, most with coverage
	@echo "test: test servers, lint and Spark's class archive, side by side"
	@$(MAKE) --no-print-directory -j3 --output-sync=target servers lint $(CLASSES)
	@failed=; for stage in $(if $(PYTEST_ARGS),others,$(STAGES)); do \
		$(MAKE) --no-print-directory $$stage SEED=$(seed) PROFILE= ORDER="--seed $(seed)" || failed="$$failed $$stage"; \
	done; [ -z "$$failed" ] || { echo "test: FAILED:$$failed, see above (make test SEED=$(seed))"; exit 1; }

servers:
	@tools/test_servers.sh

# The compiler takes one core for a while, these tests the other.
first:
	@$(MAKE) --no-print-directory -j2 -k reckoned compiled-copy

# One after the other: both write the data of coverage.
reckoned:
	@$(MAKE) --no-print-directory -k pure; status=$$?; $(MAKE) --no-print-directory -k measured && exit $$status

# Both wait for servers half of the time. What `slowly` prints comes in one piece at its end.
both:
	@$(MAKE) --no-print-directory -j2 -k others kept

kept:
	@log=$$(mktemp); $(MAKE) --no-print-directory slowly >$$log 2>&1; status=$$?; cat $$log; rm $$log; exit $$status

others: seed := $(SEED)
others:
	@echo "test: pytest, in the order of \`make test SEED=$(seed)\`"
	@$(BIN)/python -m pytest $(PROCESSES) --seed $(seed) $(if $(PYTEST_ARGS),$(PYTEST_ARGS),$(REST))

compiled-copy: $(if $(COMPILER),$(COMPILED)/harebell/compiled.json)

$(COMPILED)/harebell/compiled.json: $(STAMP) tools/compile.py $(shell find src -name '*.py')
	@HAREBELL_OPTIMIZATION=0 $(BIN)/python tools/compile.py --copy

# A build in src/ is not touched: it is faster, and may be stale.
compiled: compiled-copy
	@echo "test: protocol, routing and broker again, compiled$(if $(COMPILER),,: no, a C compiler or Python's headers are missing)"
	@$(if $(COMPILER),$(COPY_ONLY) $(BIN)/python -c 'from harebell import build; raise SystemExit(build != "compiled" and build)')
	@$(if $(COMPILER),$(COPY_ONLY) $(BIN)/python -m pytest -q $(PROCESSES) $(QUICK) $(ORDER) $(SERVERLESS) \
		-o pythonpath="$(COMPILED) ." tests/protocol tests/routing tests/broker)

$(CLASSES): $(STAMP) tools/class_archive.py
	@PYTHONPATH=src:. $(BIN)/python -m tools.class_archive $@ || echo "class archive: not written, Spark starts without it"

slowly: $(CLASSES)
	@echo "test: $(SLOWLY), and coverage, 90 % each"
	@$(QUIETLY) $(BIN)/python -m pytest -n logical --dist worksteal --seed $(SEED) \
		$(SLOWLY:%=--cov=harebell.%) --cov-report= $(SLOWLY:%=tests/%)
	$(call gate,$(SLOWLY))

generate: setup ## write again what is generated from the specification, the asyncio API, the hooks and the docstrings
	@$(BIN)/python -m tools.generate_v091
	@PYTHONPATH=src:. $(BIN)/python -m tools.generate_v010
	@PYTHONPATH=src:. $(BIN)/python -m tools.generate_blocking
	@PYTHONPATH=src:. $(BIN)/python -m tools.generate_providers
	@PYTHONPATH=src:. $(BIN)/python tools/client_reference.py
	@$(BIN)/python tools/option_table.py
	@PYTHONPATH=src:. $(BIN)/python tools/command_table.py
	@PYTHONPATH=src:. $(BIN)/python tools/http_api.py

coverage: setup pure measured ## all lines and branches of protocol and routing are reached by their own tests, 90 % of what is quick

pure: $(STAMP)
	@echo "coverage: protocol and routing, 100 %"
	@$(QUIETLY) $(BIN)/python -m pytest -q -n logical --dist worksteal $(PROFILE) $(ORDER) $(SERVERLESS) \
		$(PURE:%=--cov=harebell.%) --cov-report= $(PURE:%=tests/%)
	@$(BIN)/coverage report --fail-under=100

measured: $(STAMP)
	@echo "coverage: $(MEASURED) $(MODULES), 90 % each"
	@$(QUIETLY) $(BIN)/python -m pytest -q $(PROCESSES) $(PROFILE) $(ORDER) $(SERVERLESS) \
		$(MEASURED:%=--cov=harebell.%) $(MODULES:%=--cov=harebell.%) --cov-report= \
		$(MEASURED:%=tests/%) $(MODULES:%=tests/test_%.py)
	$(call gate,$(MEASURED) $(MODULES))

pythons: setup ## the tests of everything but Spark on every Python from 3.11 to 3.14 that there is
	@tools/pythons.sh

torture: setup ## kill the broker 200 times, cut its connections for 10 minutes, keep it busy for an hour, break its disk, cut the client and its sessions, torment Spark
	@echo "torture: python -m tests.torture"
	@PYTHONPATH=src $(BIN)/python -m tests.torture $(TORTURE_ARGS)
	@echo "torture: every property and model with 20 times the examples of make test"
	@HAREBELL_EXAMPLES=20 $(BIN)/python -m pytest -q -n logical --dist worksteal -o faulthandler_timeout=0 \
		-m "hypothesis and not spark and not rabbitmq" tests
	@echo "torture: a channel layer whose connections are cut, 10 minutes"
	@PYTHONPATH=src $(BIN)/python -m tests.channels.churn
	@echo "torture: 20,000 tasks of Django whose workers are killed, and 5,000 on RabbitMQ"
	@PYTHONPATH=src:. $(BIN)/python -m tests.django.kills
	@PYTHONPATH=src:. $(BIN)/python -m tests.django.kills --rabbitmq --tasks 5000
	@echo "torture: memberships of channels, 10,000 steps of joining, leaving, cutting and killing, and on RabbitMQ"
	@PYTHONPATH=src $(BIN)/python -m tests.channels.membership_model
	@PYTHONPATH=src $(BIN)/python -m tests.channels.membership_model --rabbitmq
	@echo "torture: a node on a disk that fails, 2,000 cases"
	@HAREBELL_CRASHES=2000 $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/broker/test_crash_model.py
	@echo "torture: 10,000 durable queues and 1,100 connections on 1,024 descriptors"
	@HAREBELL_QUEUES=10000 $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/broker/store/test_open_files.py
	@echo "torture: a data folder with each kind of damage to each of its files"
	@HAREBELL_DAMAGES=all $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/broker/test_damage.py
	@echo "torture: a client that is cut 3,000 times, and 1,000 times on RabbitMQ where there is one"
	@PYTHONPATH=src $(BIN)/python -m tests.client.churn --losses 3000 --restarts 20
	@PYTHONPATH=src $(BIN)/python -m tests.client.churn --losses 1000 --restarts 3 --broker rabbitmq
	@echo "torture: what is told of publications, with every policy in every way"
	@HAREBELL_LAW=all $(BIN)/python -m pytest -q -n logical -o faulthandler_timeout=0 tests/client/publications
	@echo "torture: publications to a cluster of RabbitMQ whose nodes are killed in turn, 4 times each, and a shovel into it"
	@HAREBELL_CLUSTER=4 $(BIN)/python -m pytest -q -rP -o faulthandler_timeout=0 tests/client/publications/test_cluster.py
	@echo "torture: sessions that move 200,000 messages while they are cut, each exactly once"
	@PYTHONPATH=src $(BIN)/python -m tests.client.sessions.ordeal
	@echo "torture: 300 batches of Spark's sink over sessions, whose attempts die, the broker killed 100 times"
	@PYTHONPATH=src $(BIN)/python -m tests.spark.sink.ordeal
	@echo "torture: a session that publishes while the broker is killed 100 times, each message once"
	@PYTHONPATH=src $(BIN)/python -m tests.client.sessions.kills
	@echo "torture: messages moved by distributed transactions while the broker is killed 100 times, each once"
	@PYTHONPATH=src $(BIN)/python -m tests.client.sessions.moves
	@echo "torture: 200,000 messages moved by plain transactions while the broker is killed 100 times, each once"
	@PYTHONPATH=src $(BIN)/python -m tests.client.sessions.moves --plain --messages 200000
	@echo "torture: tests that are too long for make test"
	@HAREBELL_LONG=1 $(BIN)/python -m pytest -q -o faulthandler_timeout=0 -m long tests
	@echo "torture: the bad days of a Spark pipeline, and on RabbitMQ where there is one"
	@PYTHONPATH=src $(BIN)/python -m tests.spark.bad_days
	@PYTHONPATH=src $(BIN)/python -m tests.spark.bad_days --rabbitmq

bench: setup ## measure the broker beside RabbitMQ
	@echo "bench: benchmarks/broker.py"
	@$(BIN)/python benchmarks/broker.py

clean: ## remove .venv and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* htmlcov

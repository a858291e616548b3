# Commands for developers. `make` without a target lists them; docs/contributing/development.md explains them.

# The Python that creates the virtual environment: 3.11 or newer.
PYTHON ?= python3
# The folder of the virtual environment; each Python needs its own folder.
VENV ?= .venv
# The experiment of `make demo`; `longshare experiment list` lists all experiments.
EXPERIMENT ?= sdrf-adaptive
# Further arguments for the command of a target: make demo ARGS='--speed 40', make lock ARGS=--upgrade
ARGS ?=

BIN := $(VENV)/bin
# All dependencies are installed as wheels, so that no compiler is needed. packages/pymesos is built from a pure Python sdist.
# Setuptools is installed first and builds without isolation, so that pip downloads pinned packages only.
# `-W ignore` hides the announcements of newer versions of pip.
PIP := $(BIN)/python -W ignore -m pip --disable-pip-version-check --no-input --quiet
# pip does not compile bytecode, which takes half of the installation time. Python compiles each module at its first import.
INSTALL := $(PIP) install --no-deps --no-compile --only-binary=:all: --require-hashes
unexport PYTHONDONTWRITEBYTECODE
BUILD_HERE := --no-build-isolation --use-pep517

# For `make packages`: the sources of a Mesos release, and of protobuf 3.5.0 if the Mesos sources do not contain them.
MESOS_SOURCE ?=
PROTOBUF_SOURCE ?=

# Packages of the temporary Debian systems. DEBIAN_PARTS are packages that each installed Debian has.
DEBIAN_PARTS := ca-certificates,dbus,iproute2,logrotate,python3,systemd,systemd-sysv
MAKE_PARTS := build-essential,ca-certificates,debhelper,git,make,python3-dev,python3-venv
# Packages to build the module, for `make packages-trixie MESOS_SOURCE=DIR`.
MODULE_PARTS := cmake,libcurl4-openssl-dev,libgrpc++-dev,libprotobuf-dev,patch,pkg-config,protobuf-compiler
# The Pythons of Debian's testing suite for `make newer`: the default and a later one.
NEWER_PYTHONS := python3 python3.15
SLURM_PARTS := slurmctld,slurmd,slurmdbd,slurm-client,munge,slurm-wlm-basic-plugins,mariadb-server-core,mariadb-client-core

# The folder for the result of `make compiled-wheel`.
COMPILED_DIST ?= dist/compiled
COMPILED_SOURCES := allocator frameworks LICENSE README.md pyproject.toml setup.py
COMPILED_TESTS := tests/cluster tests/fairness tests/simulation tests/service/record

LOCAL_PACKAGES := pyproject.toml packages/pymesos/pyproject.toml packages/pymesos/source.txt
WHEELS := $(VENV)/.installed-wheels
RUNTIME := $(VENV)/.installed-runtime
COMPILER := $(VENV)/.installed-compiler
DEV := $(VENV)/.installed-dev
SAMPLE := $(VENV)/.installed-sample
OPERATIONS := $(VENV)-operations/.installed
RELEASE := $(VENV)-release/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo install dev operations test checked compiled quick sample docs bench counts reproduce evidence dist newer roles fuzz hostile crashes sanitize proto lock
.PHONY: compiled-wheel compiled-wheels compiled-tests packages packages-check packages-trixie slurm-adaptive slurm-versions clean python world chaos mutants mutation endurance worst release-check versioned-docs ratios flakes language stock

help: ## list the targets
	@echo "Longshare: long-term fair sharing for Apache Mesos and Slurm. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "The first use of a target installs its dependencies into $(VENV)."
	@echo "With another Python: make test PYTHON=python3.13 VENV=.venv-3.13"

demo: $(RUNTIME) ## run the 41-node SDRF experiment on this machine (EXPERIMENT=..., ARGS=...)
	$(BIN)/longshare experiment run $(EXPERIMENT) $(ARGS)

install: $(RUNTIME) ## install `longshare` and its dependencies
	@echo "Ready: $(BIN)/longshare --help"

dev: $(DEV) ## install `longshare`, its dependencies and the development tools
	@echo "Ready: make test"

operations: $(OPERATIONS) ## install Ansible for ansible/ and its tests into a separate environment
	@echo "Ready: $(VENV)-operations/bin/ansible-playbook"

test: $(DEV) ## run `checked` and each commit's tests (ARGS=... for pytest)
	@$(MAKE) --no-print-directory -j2 checked compiled
	$(BIN)/pytest -n auto --dist worksteal -m "not release" $(ARGS)

checked: $(DEV) ## check format, style, types and layers
	$(BIN)/ruff format --check || { echo "This command mends the format: $(BIN)/ruff format"; exit 1; }
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Programs that several tests need are compiled in advance, so that no test waits for another test's compiler.
compiled: $(DEV)
	-@$(BIN)/python -m tests.beforehand # an error here also fails a test

quick: $(DEV) ## run the tests that are marked neither slow nor release (ARGS=... for pytest)
	$(BIN)/pytest -m "not slow and not release" $(ARGS)

sample: $(SAMPLE) ## run quick tests that show differences between Pythons (ARGS=... for pytest)
	$(BIN)/pytest -m "not slow and not release" tests/api tests/cluster/conformance tests/contract tests/fairness $(ARGS)

docs: $(DEV) ## build the documentation site, build/site/index.html
	@rm -rf build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -d build/doctrees docs build/site

bench: $(RUNTIME) ## run the benchmarks: each program in bench/ prints a table
	@set -e; for program in bench/*.py; do echo "== $$program"; $(BIN)/python -m bench.$$(basename $$program .py); done

dist: $(RUNTIME) ## build the wheels and the source distribution into dist/
	@mkdir -p dist
	@$(PIP) wheel --no-deps $(BUILD_HERE) --wheel-dir dist packages/pymesos .
	@$(BIN)/python -W ignore -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' >/dev/null
	@cd packages/pymesos && $(abspath $(BIN))/python -W ignore -c 'import build_backend; build_backend.build_sdist("../../dist")' >/dev/null
	@ls dist

compiled-wheel: $(COMPILER) ## build a wheel with compiled modules for this Python into dist/compiled/ (needs gcc and Python.h)
	@rm -rf build/compiled && mkdir -p build/compiled
	@cp -a $(COMPILED_SOURCES) build/compiled
	@cd build/compiled && LONGSHARE_COMPILED=1 $(abspath $(BIN))/$(PIP:$(BIN)/%=%) wheel --no-deps $(BUILD_HERE) \
	  --wheel-dir $(abspath $(COMPILED_DIST)) .
	@cd build/compiled/build/lib.* && find . -name '*.so' -exec cp --parents -t ../.. {} +
	@ls $(COMPILED_DIST)

compiled-wheels: $(RELEASE) ## build compiled wheels for each supported Python into dist/compiled/ (needs Docker)
	$(VENV)-release/bin/cibuildwheel --platform linux --output-dir $(COMPILED_DIST)

compiled-tests: $(DEV) compiled-wheel ## run the engine's tests with compiled modules, in build/compiled (ARGS=... for pytest)
	@cp -a bench deploy docs proto tests build/compiled
	cd build/compiled && PYTHONPATH=. $(abspath $(BIN))/python -m pytest -n auto $(or $(ARGS),$(COMPILED_TESTS))

release-check: $(DEV) $(OPERATIONS) $(RELEASE) ## build and check everything for a release that can be checked on this machine, in build/release
	$(BIN)/python deploy/release/check.py

versioned-docs: $(DEV) ## commit this version's documentation to the branch gh-pages, which keeps the other versions
	$(BIN)/python docs/versions.py

packages: $(RUNTIME) ## build Debian packages of both services and, with MESOS_SOURCE=DIR, of the module for that Mesos
	$(BIN)/python deploy/debian/build.py $(if $(MESOS_SOURCE),--mesos "$(MESOS_SOURCE)") \
	  $(if $(PROTOBUF_SOURCE),--protobuf "$(PROTOBUF_SOURCE)")

packages-check: $(DEV) packages .cache/debian-bookworm ## build the Debian packages, then test them in a booted Debian (as root)
	LONGSHARE_DEBIAN=.cache/debian-bookworm LONGSHARE_PACKAGES=build/packages $(BIN)/pytest tests/debian $(ARGS)

packages-trixie: $(DEV) .cache/make-trixie .cache/debian-trixie ## the same with Debian 13's Python and compiler, in a booted Debian 13 (as root)
	$(call IN_DEBIAN,.cache/make-trixie) packages VENV=.venv-debian13
	LONGSHARE_DEBIAN=.cache/debian-trixie LONGSHARE_PACKAGES=build/packages $(BIN)/pytest tests/debian $(ARGS)

roles: $(DEV) $(OPERATIONS) .cache/debian-bookworm ## test the Ansible roles in a temporary Debian (as root)
	LONGSHARE_DEBIAN=.cache/debian-bookworm $(BIN)/pytest --basetemp .cache/roles tests/ansible/test_roles.py $(ARGS)

slurm-adaptive: $(DEV) ## run the adaptive experiment on a real Slurm at four times its speed (as root)
	LONGSHARE_SLURM_ADAPTIVE=1 $(BIN)/pytest tests/slurm/test_experiments.py $(ARGS)

# The tests of experiments need this machine's Slurm, so they are left out.
slurm-versions: $(DEV) .cache/slurm-trixie .cache/slurm-sid ## test with Slurm 24.11 and newer, each in a temporary Debian (as root)
	@status=0; for suite in trixie sid; do \
	  LONGSHARE_SLURM_ROOT=$(CURDIR)/.cache/slurm-$$suite $(BIN)/pytest tests/slurm --ignore=tests/slurm/test_experiments.py $(ARGS) || status=1; \
	  done; exit $$status

define BOOTSTRAP
@mkdir -p .cache && rm -rf $@.part
debootstrap --variant=minbase --include=$(2) $(1) $@.part >/dev/null
@mv $@.part $@
endef

.cache/slurm-%:
	$(call BOOTSTRAP,$*,$(SLURM_PARTS))

.cache/debian-%:
	$(call BOOTSTRAP,$*,$(DEBIAN_PARTS))

.cache/make-trixie: MAKE_PARTS := $(MAKE_PARTS),$(MODULE_PARTS)
.cache/make-testing: MAKE_PARTS := $(MAKE_PARTS),python3.15-dev,python3.15-venv
.cache/make-%:
	$(call BOOTSTRAP,$*,$(MAKE_PARTS))

newer: $(NEWER_PYTHONS:%=newer-%) ## run quick tests on the Pythons of Debian's testing suite (as root; ARGS=... for pytest)

newer-%: .cache/make-testing
	$(call IN_DEBIAN,.cache/make-testing) quick PYTHON=$* VENV=.venv-testing-$* ARGS="$(or $(ARGS),$(NEWER_TESTS))"

# Git's folder, which is outside the checkout in a worktree.
HISTORY = $(shell git rev-parse --path-format=absolute --git-common-dir 2>/dev/null)
NEWER_TESTS := -n auto tests/cli tests/cluster tests/fairness tests/simulation
# The system in the folder gets the host's name resolution, certificates and pip settings. All mounts end with the process.
define IN_DEBIAN
@unshare --mount --propagation private sh -ec 'root=$(1); \
  for path in /dev /proc /etc/ssl /etc/pip.conf /etc/resolv.conf "$(CURDIR)" "$(HISTORY)" "$(abspath $(MESOS_SOURCE))" "$(abspath $(PROTOBUF_SOURCE))"; do \
    if test -d "$$path"; then mkdir -p "$$root$$path"; elif test -e "$$path"; then touch "$$root$$path"; else continue; fi; \
    mount --bind "$$path" "$$root$$path"; \
  done; \
  exec chroot "$$root" env -u PYTHON PATH=/usr/sbin:/usr/bin:/sbin:/bin make --no-print-directory -C "$(CURDIR)" "$$@"' sh
endef

counts: $(RUNTIME) ## record the numbers of lines that typical operations execute, for a test (for this Python)
	$(BIN)/python -m bench.counts --renew

language: $(DEV) ## measure how plainly the texts are written, and lower the record (ARGS='--worst 40 --under docs')
	$(BIN)/python -m tests.language --renew $(ARGS)

ratios: $(RUNTIME) ## record the reached fractions of limits for docs/lab/over-commits.md (needs an idle machine)
	$(BIN)/python -m bench.ratios --renew

stock: $(RUNTIME) ## compare with Mesos's own allocator for docs/lab/benchmarks.md (ARGS='--home FOLDER --source MESOS'; needs cmake, g++)
	$(BIN)/python -m bench.stock --write $(ARGS)

reproduce: $(RUNTIME) ## reproduce the papers' figures and claims at a small size, in minutes (into runs/)
	@set -e; for study in sdrf-small table-1 tsf-small rivals-small rivals-lies-small; do \
	  $(BIN)/longshare sweep $$study; $(BIN)/longshare report runs/$$study; done
	@set -e; for figure in sdrf-1 sdrf-2 sdrf-3 sdrf-4 sdrf-6 tsf-1 thesis-1.1 thesis-2.5 thesis-2.6 sprayer memory-workload \
	  memory-blocking; do \
	  $(BIN)/longshare figure $$figure; done
	@set -e; for policy in sdrf stsf dynamic-drf volcano kueue-afs; do \
	  $(BIN)/longshare games search --policy $$policy --trials 60 --seed 1; done

evidence: $(RUNTIME) ## reproduce both papers and the studies of other systems at full size, in hours (tables of docs/research)
	@set -e; for study in sdrf tsf rivals rivals-lies; do \
	  $(BIN)/longshare sweep $$study; $(BIN)/longshare report runs/$$study; done
	$(BIN)/longshare trace fit

sanitize: $(DEV) ## test the C++ transport with AddressSanitizer and ThreadSanitizer
	LONGSHARE_SANITIZE=1 $(BIN)/pytest tests/module -n 2 -k "asan or tsan" $(ARGS)

fuzz: $(DEV) ## send hostile messages to the service for minutes
	LONGSHARE_ATTACKS=30000 $(BIN)/pytest --timeout 0 tests/service/masters/test_hostile_input.py $(ARGS)

hostile: $(DEV) ## send ten million hostile messages while a correct framework runs, for an hour (LONGSHARE_SEED=...)
	LONGSHARE_HOSTILE=10000000 $(BIN)/pytest -s --timeout 0 tests/service/test_hostile_structure.py $(ARGS)

crashes: $(DEV) ## kill the service 50 times in a running cluster
	LONGSHARE_CRASHES=50 $(BIN)/pytest --timeout 0 tests/frameworks/test_crashes.py $(ARGS)

flakes: compiled ## repeat the tests under high load until thirty runs in a row pass, for hours (ARGS='--runs 3 -- tests/cli')
	$(BIN)/python -m tests.flakes $(ARGS)

world: $(DEV) ## search for faults in simulated clusters for minutes (SEED=... repeats one, ARGS=--minutes 30)
	$(BIN)/python -m tests.world.run $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: $(DEV) ## inject random faults into a real Mesos for an hour (ARGS='--minutes 3 --seed 2')
	$(BIN)/python -m tests.chaos.run $(ARGS)

mutants: $(DEV) ## put old faults back, one by one; the simulation must find each
	$(BIN)/pytest tests/world/test_world.py -k put_back $(ARGS)

mutation: $(DEV) ## put small faults into the engine's rules, one by one; a test must find each (ARGS='--mutants 50')
	$(BIN)/python -m tests.mutation $(ARGS)

endurance: $(DEV) ## kill simulated services 1,000 times, then simulate a week of one service, in minutes
	$(BIN)/python -m tests.world.endurance kills
	$(BIN)/python -m tests.world.endurance week

worst: $(DEV) ## measure how much the worst framework slows down a correct one in a simulated cluster
	$(BIN)/python -m tests.world.worst $(ARGS)

proto: $(DEV) ## generate the Python code from proto/
	$(BIN)/python proto/generate.py

clean: ## remove the virtual environment and all generated files
	rm -rf $(VENV) $(VENV)-operations $(VENV)-release .cache build dist *.egg-info packages/*/build packages/*/*.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find allocator frameworks packages proto tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The virtual environment. Each stamp file represents an installed set of packages, and depends on its requirements.

$(WHEELS): requirements/build.txt requirements/runtime.txt requirements/accounting.txt requirements/extras.txt | python
	@echo "Installing Longshare into $(VENV), by hash, once ..."
	@$(INSTALL) -r requirements/build.txt
	@$(INSTALL) -r requirements/runtime.txt -r requirements/accounting.txt -r requirements/extras.txt
	@touch $@

$(RUNTIME): $(WHEELS) $(LOCAL_PACKAGES)
	@$(PIP) install --no-deps $(BUILD_HERE) -e packages/pymesos -e .
	@$(PIP) check
	@touch $@

$(COMPILER): requirements/compiled.txt $(WHEELS)
	@$(INSTALL) -r requirements/compiled.txt
	@touch $@

$(DEV): requirements/dev.txt $(COMPILER) $(RUNTIME)
	@echo "Installing the tools for development into $(VENV) ..."
	@$(INSTALL) -r requirements/dev.txt
	@$(PIP) check
	@touch $@

# The tests of `make sample` import Longshare from the checkout, so only these packages are installed.
SAMPLED := execnet grpcio-tools hypothesis iniconfig mypy-protobuf numpy packaging pluggy pyarrow \
  pytest pytest-randomly pytest-timeout pytest-xdist scipy

$(SAMPLE): requirements/build.txt requirements/runtime.txt requirements/extras.txt requirements/dev.txt | python
	@echo "Installing the packages of a sample of tests into $(VENV) ..."
	@awk '/^[a-z]/ { split($$1, pin, "=="); wanted = index(" $(SAMPLED) ", " " pin[1] " ") } wanted' \
	  requirements/extras.txt requirements/dev.txt >$(VENV)/sample.txt
	@$(INSTALL) -r requirements/build.txt -r requirements/runtime.txt -r $(VENV)/sample.txt
	@touch $@

# Ansible has an environment of its own, because its dependencies conflict with those of the service.
$(OPERATIONS): requirements/operations.txt | python
	@echo "Installing Ansible and an emulator of EC2 into $(VENV)-operations, which takes a minute ..."
	@$(BIN)/python -m venv $(VENV)-operations
	@$(INSTALL:$(BIN)/%=$(VENV)-operations/bin/%) -r requirements/operations.txt
	@touch $@

# Tools that check, list, sign and document a release. They do not import Longshare.
$(RELEASE): requirements/release.txt | python
	@echo "Installing the tools for a release into $(VENV)-release ..."
	@$(BIN)/python -m venv $(VENV)-release
	@$(INSTALL:$(BIN)/%=$(VENV)-release/bin/%) -r requirements/release.txt
	@touch $@

python:
	@if ! test -x $(BIN)/pip; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(WRONG_PYTHON); \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(NO_VENV); \
	  $(PYTHON) -m venv $(VENV); \
	elif test "$(origin PYTHON)" != file; then \
	  test "$$($(BIN)/python --version)" = "$$($(PYTHON) --version)" || $(OTHER_PYTHON); \
	fi

WRONG_PYTHON = { exec >&2; echo "Longshare runs on Python 3.11 or newer, and '$(PYTHON)' is older."; \
  echo "Install a newer Python, then name it: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
NO_VENV = { exec >&2; echo "'$(PYTHON)' lacks the modules venv and ensurepip, which create $(VENV)."; \
  echo "On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
OTHER_PYTHON = { exec >&2; echo "$(VENV) was created by another Python than '$(PYTHON)'."; \
  echo "Remove it with 'make clean', or keep both: make $(MAKECMDGOALS) PYTHON=$(PYTHON) VENV=.venv-other"; exit 1; }

SERVICE := requirements/runtime.txt requirements/accounting.txt

# Pinned dependencies. The files accounting.txt, extras.txt, compiled.txt and dev.txt list only packages that no earlier file lists.
# The files operations.txt, release.txt and lock.txt are complete environments.

LOCK_TOOL := .cache/lock
COMPILE := $(LOCK_TOOL)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-emit-package longshare-pymesos --custom-compile-command 'make lock' $(ARGS)
BEYOND = $(1:%=-c %) $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' $(1))

lock: $(LOCK_TOOL)/bin/uv ## pin the dependencies of pyproject.toml (ARGS=--upgrade: their newest versions)
	$(COMPILE) --group build -o requirements/build.txt
	$(COMPILE) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) --extra accounting pyproject.toml $(call BEYOND,requirements/runtime.txt) -o requirements/accounting.txt
	$(COMPILE) --all-extras pyproject.toml $(call BEYOND,$(SERVICE)) -o requirements/extras.txt
	$(COMPILE) --group compiled $(call BEYOND,requirements/build.txt $(SERVICE) requirements/extras.txt) -o requirements/compiled.txt
	$(COMPILE) --group dev $(call BEYOND,requirements/build.txt $(SERVICE) requirements/extras.txt requirements/compiled.txt) -o requirements/dev.txt
	$(COMPILE) --group operations -o requirements/operations.txt
	$(COMPILE) --group release -o requirements/release.txt
	$(COMPILE) --group lock -o requirements/lock.txt

$(LOCK_TOOL)/bin/uv: requirements/lock.txt
	@$(PYTHON) -m venv $(LOCK_TOOL)
	@$(LOCK_TOOL)/bin/python -m pip install --quiet --require-hashes -r requirements/lock.txt
	@touch $@

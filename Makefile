# Two commands from a fresh clone: `make run` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
# All that tests and documentation need, and what the tour needs.
STAMP := .venv/.installed
TOUR := .venv/.tour
OUT ?= runs/tour
# Threads that wait sleep instead of spinning: see docs/decisions/0009.
export OMP_WAIT_POLICY ?= PASSIVE
# Modules are compiled once, not by each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
# No advertisement in the output of mkdocs.
export NO_MKDOCS_2_WARNING ?= 1

.PHONY: run test test-slow check docs format bench mutants release-check install clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing evergraph with all extras into .venv (a minute or two the first time) ..."
	@$(PYTHON) scripts/install.py all,docs,dev
	@touch $(TOUR) $@

$(TOUR): pyproject.toml constraints.txt
	@echo "Installing evergraph into .venv (a minute the first time) ..."
	@$(PYTHON) scripts/install.py report
	@touch $@

# Most of the tour is steps too small for two threads (docs/decisions/0030): one costs the least.
run: export OMP_NUM_THREADS ?= 1
run: $(TOUR)  ## WordNet, class-IL: finetune, tem, auto and joint side by side, in minutes
	@$(BIN)/evergraph run --dataset wordnet --preset tour --method finetune,tem,auto,joint \
		--out $(OUT) --resume --report

check: $(STAMP)  ## lint, format, types, floors, sizes, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	$(BIN)/python scripts/ratchet.py
	@mkdir -p build
	@WHOLE_SITE=false $(BIN)/mkdocs build --strict >build/docs.log 2>&1 || { cat build/docs.log; exit 1; }

# Two halves of about the same work, each with a core: what one of them imports, the other need not. The checks and the wheel
# go on beside them, and what they find is told after the suite.
LIVE := tests/cli tests/online tests/reports tests/server tests/studies
test: export OMP_NUM_THREADS ?= 1
test: $(STAMP)  ## the checks, the whole suite but for slow claims, and the wheel in a clean environment
	@mkdir -p build
	@{ $(MAKE) --no-print-directory check && PYTHON=$(BIN)/python scripts/check_wheel.sh; \
	} >build/check.log 2>&1 & checking=$$!; \
	$(BIN)/python -m pytest -q $(LIVE) >build/live.log 2>&1 & living=$$!; \
	$(BIN)/python -m pytest -q $(LIVE:%=--ignore=%); tested=$$?; \
	wait $$living || tested=1; cat build/live.log; \
	wait $$checking || { cat build/check.log; echo "make check, or the wheel, failed" >&2; exit 1; }; \
	echo "make check passed, the wheel works"; [ $$tested = 0 ] || exit $$tested; \
	if git diff --quiet HEAD 2>/dev/null; then git rev-parse HEAD >build/tested; fi

release-check: $(STAMP)  ## what a release would be, and what is in its way; nothing is written but dist/
	$(BIN)/python scripts/release.py --dry-run

test-slow: $(STAMP)  ## accuracy claims on the real graphs, minutes each; new examples for properties
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -m "slow or hypothesis"

mutants: $(STAMP)  ## how many small faults the tests of graphs, memory, methods, online and server notice
	$(BIN)/python scripts/mutants.py

docs: $(STAMP)  ## the documentation, served on this machine as it is written
	$(BIN)/mkdocs serve

bench: $(STAMP)  ## every figure of benchmarks/results
	$(BIN)/python benchmarks/service/attacks.py
	$(BIN)/python benchmarks/speed/cluster.py
	$(BIN)/python benchmarks/accuracy/false_claims.py
	$(BIN)/python benchmarks/speed/kernels.py
	$(BIN)/python benchmarks/service/kills.py
	$(BIN)/python benchmarks/service/limits.py
	$(BIN)/python benchmarks/speed/memory_limit.py
	$(BIN)/python benchmarks/speed/reach.py
	$(BIN)/python benchmarks/accuracy/retraining.py
	$(BIN)/python benchmarks/service/service.py
	$(BIN)/python benchmarks/service/soak.py
	$(BIN)/python benchmarks/accuracy/tables.py
	$(BIN)/python benchmarks/speed/updates.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs build dist site .mypy_cache .ruff_cache .pytest_cache src/*.egg-info

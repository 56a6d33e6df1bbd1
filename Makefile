# Everything on a fresh machine with Python 3.10 or newer: `make demo` and `make test`.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-cpus test-oldest test-lock lint bench clean

$(BIN)/acr: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/acr
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(BIN)/acr  ## ACR against ER and fine-tuning on handwritten digits, with a report page
	$(BIN)/acr demo

test: $(BIN)/pytest  ## what must hold, in under ten minutes on two cores
	$(BIN)/pytest -n auto --dist worksteal

$(BIN)/ray: pyproject.toml $(BIN)/pytest
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev,cluster,export]"
	touch $@

test-slow: $(BIN)/ray  ## what takes longer: every method killed many times, sweeps on Ray, ONNX, a package installed, LaTeX (if there is pdflatex)
	$(BIN)/pytest -n auto -m slow

COMPUTES := tests/golden tests/methods tests/memory tests/networks tests/shift tests/data/test_views.py tests/test_losses.py \
	tests/test_metrics.py tests/evaluation/test_evaluator.py tests/training/test_trainer.py tests/training/test_checkpoint.py
CPUS ?= "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41" "ATEN_CPU_CAPABILITY=avx2" "ACR_TEST_THREADS=3"

test-cpus: $(BIN)/pytest  ## what computes, as on other processors: without vector instructions, with AVX2, on three threads
	for setting in $(CPUS); do echo "== $$setting"; env $$setting $(BIN)/pytest -n auto $(COMPUTES) || exit 1; done

OLDEST_TOOLS := pytest pytest-xdist hypothesis  # not the dashboard, which needs newer versions of what it shares with us
test-oldest: $(BIN)/pytest  ## all tests with the oldest versions that pyproject.toml admits, in an environment of their own
	$(PYTHON) -m venv $(VENV)-oldest
	$(BIN)/python tests/helpers/lower_bounds.py > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-oldest/constraints.txt -e .
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-oldest/constraints.txt $(OLDEST_TOOLS)
	$(VENV)-oldest/bin/pytest -n auto

lint: $(BIN)/pytest  ## style, types, and the layers that imports must keep to
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

LOCKED := $(VENV)-locked
test-lock:  ## the versions of requirements.lock, which is checked by hash, in an environment of their own
	$(PYTHON) -m venv $(LOCKED)
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check --no-deps "$$(sed -n 's/^# \(torch==[0-9.]*\),.*/\1/p' requirements.lock)"
	$(LOCKED)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(LOCKED)/bin/pytest tests/data tests/golden tests/test_cli.py

SPEED := checkpoint core data dense_memory device huge_pages method_maths methods scale shift threads
bench: $(BIN)/pytest  ## speed and memory, as ratios inside one run; the other scripts there measure accuracy
	for script in $(SPEED); do $(BIN)/python benchmarks/$$script.py; done

clean:
	rm -rf $(VENV) $(VENV)-oldest $(LOCKED) demo .mypy_cache .ruff_cache .pytest_cache

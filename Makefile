# Two commands on a fresh machine: `make demo` and `make test`. `make quick` is for between two edits.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test quick lint format support clean

demo: $(VENV)/installed-demo
	@sh scripts/ensure-adapter.sh $(BIN)/webgpu-ops
	$(BIN)/webgpu-ops demo embed

test: $(VENV)/installed-test
	@sh scripts/ensure-adapter.sh $(BIN)/webgpu-ops
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Every test, of its parameters a few. Mesa's software Vulkan compiles faster without LLVM's optimizer.
quick: $(VENV)/installed-test
	@sh scripts/ensure-adapter.sh $(BIN)/webgpu-ops
	GALLIVM_PERF=nopt $(BIN)/python -m pytest -n 2 --dist loadgroup --quick

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The support table of the README and the list of operators still missing.
support: $(VENV)/installed-test
	$(BIN)/python scripts/update_support.py

# One stamp for each extra: a second run installs nothing.
$(VENV)/installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything from a clean clone needs only Python 3.11+, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test check bench soak clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[local,test]'
	@touch $@

demo: install
	$(BIN)/scheduler demo

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -m 'not soak' -n 3 --dist loadfile tests

soak: install
	$(BIN)/pytest -m soak --timeout=7200 tests

bench: install
	-$(BIN)/pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache

# make repair   the main job, on the bundled model and the Python standard library's own sources
# make test     the tests, in two processes of one thread each
# make check    style, types and import contracts
# make bench    how fast it is against its peers (docs/performance.md); for a quiet machine
# Each sets up .venv first, once.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: repair test check bench format

repair: .venv/ready
	$(BIN)/everlong repair

test: .venv/ready
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement benchmarks/requirements.txt || \
		echo "some peers cannot be installed here: their rows will say so"
	$(BIN)/python -m benchmarks

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Everlong needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch .venv/ready

# Needs make and Python 3.11 or newer; everything else goes into .venv, and nothing is activated.
#
#   make lab        set up once, then open JupyterLab on labs/   (PORT=8888; a taken one moves on)
#   make test       the tests, without browser, GPU and long runs
#   make test-all   all of them
#   make clean      remove .venv and caches
#
# Without an NVIDIA GPU, PyTorch comes from its CPU index (200 MB instead of several GB).
# TORCH_INDEX=URL takes another index, TORCH_INDEX= takes pip's own.

.ONESHELL:
.SHELLFLAGS := -ec
.PHONY: help lab lint test test-browser test-all clean

PORT ?= 8888
# In a container, IP=0.0.0.0 lets the machine outside in.
IP ?= localhost
GPU := $(wildcard /dev/nvidiactl /usr/lib/wsl/lib/libcuda.so.1)
# pip that is told of wheels at hand (PIP_FIND_LINKS) is left to them.
TORCH_INDEX ?= $(if $(GPU)$(PIP_FIND_LINKS),,https://download.pytorch.org/whl/cpu)

help:
	@sed -n 's/^#   make/make/p' Makefile

.venv/.installed: pyproject.toml constraints.txt
	@stop() { echo "$$1" >&2; exit 1; }
	if [ "$$(uname -s)" = Darwin ]; then
	    stop "macOS has no wheels of NVIDIA's compilers: run this in a Linux container (see README.md)."
	fi
	python=
	for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	        python=$$candidate
	        break
	    fi
	done
	if [ -z "$$python" ]; then
	    stop "No Python 3.11 or newer was found (python3 is $$(python3 -V 2>&1 || true)): install one, or name it with PYTHON=/path/to/python3."
	fi
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
	    stop "$$python cannot create a virtual environment: install its venv module (on Debian and Ubuntu: apt install python3-venv)."
	fi
	echo "Setting up .venv with $$("$$python" -V); this takes a few minutes, once."
	"$$python" -m venv .venv
	if [ -n "$(TORCH_INDEX)" ]; then
	    .venv/bin/python -m pip install -q --retries 2 --no-deps -c constraints.txt \
	        --index-url "$(TORCH_INDEX)" torch ||
	        echo "PyTorch did not come from $(TORCH_INDEX): taking pip's own index." >&2
	fi
	.venv/bin/python -m pip install -q -c constraints.txt -e '.[test]' ||
	    stop "The packages could not be installed (pip says why, above); see that the network is there, and run make again."
	touch $@

.venv/.browser: .venv/.installed
	@.venv/bin/python -m pip install -q -c constraints.txt -e '.[browser]'
	touch $@

lab: .venv/.installed
	@export PATH="$$PWD/.venv/bin:$$PATH"
	cd labs
	exec ../.venv/bin/python -m jupyterlab --log-level=WARN --ip=$(IP) --port=$(PORT) \
	    $$([ "$$(id -u)" != 0 ] || echo --allow-root)

lint: .venv/.installed
	@.venv/bin/python -m ruff check .

test: .venv/.installed
	@if [ ! -d tests ]; then
	    echo "This copy of the labs comes without the tests of labkit; your kernels are checked in the notebooks."
	    exit 0
	fi
	.venv/bin/python -m pytest -n auto --dist worksteal -m "not browser and not slow and not gpu"

test-browser: .venv/.browser
	@.venv/bin/python -m pytest -m browser

test-all: .venv/.browser
	@.venv/bin/python -m pytest

clean:
	@rm -rf .venv build labkit.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

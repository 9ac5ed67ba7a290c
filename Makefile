# The commands of this project, the same on a laptop and in CI. Needs Rust 1.95 and a C compiler.

ARGS ?=
# Of `make cluster`: how many nodes; mariadb or cassandra; etcd or zookeeper.
NODES ?= 3
STORE ?= mariadb
COORDINATOR ?= etcd
# Where `make install` puts things, and what is in the program beyond one machine: `make install FEATURES=`
# builds without clusters, which need the Protocol Buffers compiler.
PREFIX ?= $(HOME)/.local
FEATURES ?= punctual-cli/cluster
BUILT := $(or $(CARGO_TARGET_DIR),target)/release
# What runs the tests, if not the shell itself: `make test LIMIT="timeout 3000"` ends those that hang.
LIMIT ?=
# What is optional is checked and tested too, and built only once for that.
EVERYTHING := --features punctual-bench/cluster,punctual-cli/cluster,punctual-cli/otel

.NOTPARALLEL:
.PHONY: run console console-test install test setup fmt-check tidy lint plain docs unit deny advisories bench fuzz cluster fmt

# Starts the broker, with the console where Node.js can build it: `make run ARGS="--data other-dir"`.
run:
	scripts/console.sh --if-possible
	cargo run --release -- serve $(ARGS)

# Builds the web console, which the next build of the program takes in.
console:
	scripts/console.sh

# The console in a real browser, against the real program; takes pictures of every page.
console-test: console
	scripts/console-browser.sh --install
	cargo build --features "$(FEATURES)"
	scripts/console-browser.sh

# Three nodes over real services, for a look; Ctrl-C ends them all. `make cluster NODES=5 STORE=cassandra`.
cluster:
	scripts/services install $(COORDINATOR) $(STORE) kafka
	scripts/protoc-check.sh
	scripts/console.sh --if-possible
	cargo build --release --features punctual-cli/cluster
	NODES="$(NODES)" STORE="$(STORE)" COORDINATOR="$(COORDINATOR)" scripts/cluster.sh

# Puts the program, its manual pages and its completions under PREFIX.
install:
	case "$(FEATURES)" in *cluster*) scripts/protoc-check.sh || { \
		echo "or build without clusters: make install FEATURES=" >&2; exit 1; } ;; esac
	scripts/console.sh --if-possible
	cargo build --release --features "$(FEATURES)"
	install -D $(BUILT)/punctual "$(DESTDIR)$(PREFIX)/bin/punctual"
	$(BUILT)/punctual man --dir "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	$(BUILT)/punctual completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/punctual"
	install -d "$(DESTDIR)$(PREFIX)/share/zsh/site-functions"
	$(BUILT)/punctual completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_punctual"
	install -d "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	$(BUILT)/punctual completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/punctual.fish"

# Everything that must hold before a change lands.
test: setup console fmt-check tidy lint plain docs unit deny

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

# The services that the tests have started are ended in any case.
unit:
	$(LIMIT) cargo test --workspace $(EVERYTHING) --no-fail-fast; \
		status=$$?; scripts/services down; exit $$status

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

#!/usr/bin/env bash
# Installs what `make test` needs beyond Rust and a C compiler. Safe to repeat; does nothing when all
# is there. Where it cannot install something it says what to install, and fails.
set -euo pipefail

missing=()

have() { command -v "$1" >/dev/null 2>&1; }

# Debian packages, as `command:package`.
packages=()
for pair in cc:build-essential make:build-essential faketime:faketime curl:curl python3:python3 script:bsdutils kcat:kcat \
    pkg-config:pkg-config ip:iproute2; do
    have "${pair%%:*}" || packages+=("${pair##*:}")
done
# For the etcd client.
"$(dirname "$0")/protoc-check.sh" 2>/dev/null || packages+=(protobuf-compiler libprotobuf-dev)
# For gzip in librdkafka.
echo '#include <zlib.h>' | cc -E -x c - >/dev/null 2>&1 || packages+=(zlib1g-dev)
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages+=(python3-venv)
if [ "${#packages[@]}" -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5
        apt-get install -y -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 --no-install-recommends "${packages[@]}"
    else
        missing+=("the packages ${packages[*]} (Debian names), with your package manager")
    fi
fi

# What cron series are compared with.
"$(dirname "$0")/cron-oracle.sh" --install || missing+=("Python 3.9 or newer with pip")
# What holds the server to its OpenAPI document.
"$(dirname "$0")/openapi-check.sh" --install || missing+=("Python 3.11 or newer with venv and pip")
# What traces are sent to.
"$(dirname "$0")/otlp-receiver.sh" --install || missing+=("Python 3.9 or newer with pip")
# What the dashboard and the alerts are checked with.
"$(dirname "$0")/deploy-check.sh" --install || missing+=("promtool, which comes with Prometheus")
# Kafka clients of other people, and librdkafka with its tests; those whose language is not there are left out.
"$(dirname "$0")/clients/kafka/kafka.sh" --install ||
    missing+=("what scripts/clients/kafka needs: Python 3 with venv and pip, Node.js with npm, Java 17 with Maven, Go, make")
# What the console is tried with. Where it cannot be had its tests are left out, and fail in CI.
"$(dirname "$0")/console-browser.sh" --install || { code=$?; [ "$code" -eq 3 ] || exit "$code"; }
# What a cluster runs on. Where one cannot be had the tests that need it are left out, and fail in CI.
"$(dirname "$0")/services" install || { code=$?; [ "$code" -eq 3 ] || exit "$code"; }
# Clients of other people, for gRPC and Dubbo; those whose language is not there are left out.
"$(dirname "$0")/clients/clients.sh" --install ||
    missing+=("what the clients in scripts/clients need: Python 3 with venv and pip, Go, Node.js with npm")

if ! have cargo; then
    missing+=("Rust 1.95 or newer, with cargo")
else
    for component in rustfmt clippy; do
        if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
            if have rustup; then
                rustup component add "$component"
            else
                missing+=("$component")
            fi
        fi
    done
    # About three minutes of one core, once.
    cargo deny --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-deny --version '^0.20'
fi

if [ "${#missing[@]}" -gt 0 ]; then
    printf 'please install %s\n' "${missing[@]}" >&2
    exit 1
fi

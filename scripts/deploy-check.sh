#!/usr/bin/env bash
# Holds what is in deploy/ to Prometheus' own tool and to a running server.
#
#   scripts/deploy-check.sh --install    fetches the tool only
#   scripts/deploy-check.sh URL          rules, their tests, the example configuration, the metrics of the server,
#                                        and every name that the dashboard and the rules use
#
# A token for a server with authentication is taken from PUNCTUAL_TOKEN.
set -euo pipefail
cd "$(dirname "$0")/.."

tools="$(realpath -m "${CARGO_TARGET_DIR:-target}")/deploy-check/1"

# The tool out of its Debian package, which is not installed: that would start a server.
fetch() {
    local scratch="$1"
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    download() { (cd "$scratch" && apt-get -qq -o Acquire::Retries=5 download prometheus >&2); }
    download || { [ "$(id -u)" -eq 0 ] && apt-get update -qq -o Acquire::Retries=5 >&2 && download; } || return 1
    dpkg-deb -x "$scratch"/prometheus_*.deb "$scratch/unpacked"
    mv "$scratch/unpacked/usr/bin/promtool" "$tools/promtool"
}

if command -v promtool >/dev/null; then
    promtool="$(command -v promtool)"
else
    promtool="$tools/promtool"
    if [ ! -x "$promtool" ]; then
        mkdir -p "$tools"
        exec 9>"$tools.lock"
        flock 9
        if [ ! -x "$promtool" ]; then
            scratch="$(mktemp -d "$tools/fetch.XXXXXX")"
            # Whoever fetches for root reads and writes there too.
            chmod 755 "$scratch"
            got=0
            fetch "$scratch" || got=1
            rm -rf "$scratch"
            if [ "$got" -ne 0 ]; then
                echo "the checks of deploy/ need promtool, which comes with Prometheus" >&2
                exit 1
            fi
        fi
        exec 9>&-
    fi
fi

url="${1:?say what to do: --install, or the address of a server}"
[ "$url" != --install ] || exit 0

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"$promtool" check rules deploy/prometheus/alerts.yml
(cd deploy/prometheus && "$promtool" test rules alerts_test.yml)
"$promtool" check config deploy/prometheus/prometheus.yml
token=()
[ -z "${PUNCTUAL_TOKEN:-}" ] || token=(--header "Authorization: Bearer $PUNCTUAL_TOKEN")
curl -fsS "${token[@]}" "$url/metrics" >"$scratch/metrics"
"$promtool" check metrics <"$scratch/metrics"
python3 scripts/deploy-check.py "$scratch/metrics" "$scratch/dashboard.yml"
"$promtool" check rules "$scratch/dashboard.yml"
# Each rule has a story in which it fires and one in which it does not.
for rule in $(sed -n 's/^ *- alert: //p' deploy/prometheus/alerts.yml); do
    for story in "fires" "does not fire"; do
        grep -q "name: $rule $story\$" deploy/prometheus/alerts_test.yml || {
            echo "no test shows that $rule $story" >&2
            exit 1
        }
    done
done
echo "deploy: in order"

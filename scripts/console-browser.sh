#!/usr/bin/env bash
# Uses the console in a real browser, against the real program.
#
#   scripts/console-browser.sh --install      fetches the browser and what drives it
#   scripts/console-browser.sh [FILE...]      all tests, or those in these files of console/tests
#
# PUNCTUAL_BIN names the program; otherwise it is the workspace's debug build. With
# PUNCTUAL_CONSOLE_SCALE=1 the test of scale takes ten million messages, and that of totals a million
# operations. The pictures that are taken are in console/tests/screenshots. The last line counts the
# tests as cargo does.
# Where there is no Node.js, or no Chromium and no way to install it, the exit code is 3.
set -euo pipefail
# It may be named from where the caller is.
[ -z "${PUNCTUAL_BIN:-}" ] || PUNCTUAL_BIN="$(realpath "$PUNCTUAL_BIN")"
cd "$(dirname "$0")/.."
root="$PWD"
tests="$root/console/tests"
target="${CARGO_TARGET_DIR:-$root/target}"
case "$target" in /*) ;; *) target="$root/$target" ;; esac

have() { command -v "$1" >/dev/null 2>&1; }

# A font for Chinese too: without one the pictures show boxes.
install_browser() {
    browser >/dev/null && return 0
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 >&2
        apt-get install -y -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 --no-install-recommends \
            chromium fonts-dejavu-core fonts-wqy-microhei >&2
    else
        echo "please install the packages chromium and fonts-wqy-microhei (Debian names)" >&2
        return 3
    fi
}

browser() {
    if [ -n "${CHROMIUM_BIN:-}" ]; then
        echo "$CHROMIUM_BIN"
    else
        command -v chromium || command -v chromium-browser || command -v google-chrome
    fi
}

# What drives the browser. Tests may come at the same time.
install_driver() {
    have npm || { echo "Node.js with npm is not on this machine" >&2; return 3; }
    (
        mkdir -p "$target"
        exec 9>"$target/console-browser.lock"
        flock 9
        mark="$tests/node_modules/.installed"
        now="$(sha256sum <"$tests/package-lock.json")"
        if [ ! -f "$mark" ] || [ "$(cat "$mark")" != "$now" ]; then
            (cd "$tests" && npm ci --silent --no-audit --no-fund >&2) && echo "$now" >"$mark"
        fi
    )
}

need() {
    "$@" || exit $?
}

case "${1:-}" in
--install)
    need install_driver
    need install_browser
    exit 0
    ;;
-*)
    echo "$1 is not an option; there is --install" >&2
    exit 2
    ;;
esac

need install_driver
CHROMIUM_BIN="$(browser)" || { echo "Chromium is not on this machine" >&2; exit 3; }
export CHROMIUM_BIN
export PUNCTUAL_BIN="${PUNCTUAL_BIN:-$target/debug/punctual}"
[ -x "$PUNCTUAL_BIN" ] || { echo "there is no program $PUNCTUAL_BIN" >&2; exit 1; }

cd "$tests"
files=("$@")
if [ "${#files[@]}" -eq 0 ]; then
    files=(*.test.mjs)
    rm -f screenshots/failed-*.png
fi
counted="$(mktemp)"
trap 'rm -f "$counted"' EXIT
code=0
node --test --test-concurrency="${CONSOLE_TESTS_AT_ONCE:-2}" \
    --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter=tap --test-reporter-destination="$counted" "${files[@]}" || code=$?

count() { sed -n "s/^# $1 //p" "$counted" | tail -n 1; }
failed=$(($(count fail) + $(count cancelled)))
[ "$code" -eq 0 ] && verdict=ok || verdict=FAILED
echo "test result: $verdict. $(count pass) passed; $failed failed; $(count skipped) ignored"
exit "$code"

#!/usr/bin/env bash
# Builds the web console, from which the program takes it when it is built. Does nothing when it is
# built and nothing has changed. With `--if-possible` a machine without Node.js is no failure: the
# program is then built without the console, and says so where it would be.
set -euo pipefail
cd "$(dirname "$0")/../console"

possible=false
[ "${1:-}" = "--if-possible" ] && possible=true

node_major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/' || true)
if [ "${node_major:-0}" -lt 20 ] || ! command -v npm >/dev/null 2>&1; then
    echo "the web console needs Node.js 20 or newer, with npm, to be built" >&2
    if $possible; then
        echo "going on without it; everything else works" >&2
        exit 0
    fi
    exit 1
fi

# A file that is newer than all it is made of.
if [ -f dist/index.html ] &&
    [ -z "$(find src public index.html package-lock.json vite.config.ts -newer dist/index.html -print -quit)" ]; then
    exit 0
fi

build() {
    if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
        # Not `npm ci`: it wants the builds of the bundler for every other system listed, too.
        npm install --no-save --no-audit --no-fund --loglevel=error
    fi
    npm run --silent build
}
if ! build; then
    $possible || exit 1
    echo "the web console could not be built; going on without it" >&2
fi

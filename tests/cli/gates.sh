#!/bin/bash
# tests/cli/gates.sh - the short form of each reliability gate (tests/gates). `make gates` runs all of their cases.
# usage: tests/cli/gates.sh [GATE...]        GATE: r02; tests/check.sh runs each of them as a job of its own
set -u
. tests/cli/common.inc
for gate in tests/gates/r*.sh; do
    name=${gate##*/}
    (($# == 0)) || [[ " $* " == *" ${name%%_*} "* ]] || continue
    if MUSHER_LONG=0 timeout $((600 * ${SLOWDOWN:-1})) bash "$gate" > "$scratch/out" 2> "$scratch/err"; then
        ok "$(grep -v '^ok ' "$scratch/out" | tr -s ' ' | head -c 300)"
    else
        not_ok "$gate" "$(grep -v '^ok ' "$scratch/out" | head -c 1000; tail -n 3 "$scratch/err")"
    fi
done
exit $bad

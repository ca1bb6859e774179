#!/bin/bash
# tests/cli/gates.sh - the short form of each reliability gate (tests/gates). `make gates` runs all of their cases.
set -u
. tests/cli/common.inc
for gate in tests/gates/r*.sh; do
    if MUSHER_LONG=0 timeout $((600 * ${SLOWDOWN:-1})) bash "$gate" > "$scratch/out" 2> "$scratch/err"; then
        ok "$(grep -v '^ok ' "$scratch/out" | tr -s ' ' | head -c 300)"
    else
        not_ok "$gate" "$(grep -v '^ok ' "$scratch/out" | head -c 1000; tail -n 3 "$scratch/err")"
    fi
done
exit $bad

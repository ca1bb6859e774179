#!/bin/bash
# tests/check.sh - runs the suites, the command-line tests and the lint; the last line counts all checks.
# usage: BUILD=build [SLOWDOWN=4] [SCRIPTS="gpu cuda"] tests/check.sh   after `make tests`; SLOWDOWN: factor of all time limits; SCRIPTS: of
#        tests/cli, these alone
set -u
BUILD=${BUILD:-build}
MUSHER=$PWD/$BUILD/musher
export BUILD MUSHER SLOWDOWN=${SLOWDOWN:-1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/lsan.supp:print_suppressions=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp}
# One BLAS thread a process, because the tests start many processes on few cores.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

passed=0 failed=0
scratch=$(mktemp -d) || exit 6
suites=
trap 'kill $suites $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
shopt -s nullglob

# The longest scripts first, so that no processor is idle at the end.
scripts=(tests/cli/{training,readme,gpu,sharded,peers,harp,sailor}.sh)
if [[ -n ${SCRIPTS:-} ]]; then
    scripts=()
    for script in $SCRIPTS; do scripts+=("tests/cli/$script.sh"); done
fi
for script in tests/cli/*.sh; do [[ -n ${SCRIPTS:-} ]] || [[ " ${scripts[*]} " == *" $script "* ]] || scripts+=("$script"); done

# worker: runs scripts that no other worker has started, and prints a line for each. Their output is in $scratch/SCRIPT/cli.
worker() {
    local script at code good bad began
    for script in "${scripts[@]}"; do
        at=$scratch/$(basename "$script")
        mkdir "$at" 2>/dev/null || continue
        began=$SECONDS
        timeout $((${CLI_TIMEOUT:-1200} * SLOWDOWN)) bash "$script" >"$at/cli" 2>&1
        code=$?
        good=$(grep -c '^ok ' "$at/cli") bad=$(grep -c '^not ok ' "$at/cli")
        # A script that ends before it prints a failure counts as one failure.
        if ((code && !bad)); then
            echo "not ok $script: ended with $code" >>"$at/cli"
            bad=1
        fi
        echo "$script: $good ok, $bad not ok, $((SECONDS - began)) s"
        echo "$good $bad" >"$at/counts"
    done
}

# The suites have one processor until they end. Half as many scripts as processors run at once, because each script starts ranks.
"$BUILD/tests/run" >"$scratch/suites" 2>&1 &
suites=$!
workers=()
for ((i = 0; i < ($(nproc) + 1) / 2; i++)); do
    worker &
    workers+=($!)
done
wait "$suites"
suites=
worker
wait "${workers[@]}"

for script in "${scripts[@]}"; do
    at=$scratch/$(basename "$script")
    read -r good bad <"$at/counts" || good=0 bad=1
    if ((bad)); then cat "$at/cli"; fi
    ((passed += good, failed += bad))
done

sed '$d' "$scratch/suites"
if [[ $(tail -n 1 "$scratch/suites") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2]))
else
    tail -n 1 "$scratch/suites"
    echo "not ok: the suites did not finish"
    ((failed++))
fi

if tests/lint.sh; then ((passed++)); else
    echo "not ok: lint"
    ((failed++))
fi
echo "$passed passed, $failed failed"
((failed == 0))

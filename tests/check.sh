#!/bin/bash
# tests/check.sh - runs the suites, the command-line tests and the lint; the last line counts all checks.
# usage: BUILD=build [SLOWDOWN=4] [SUITES="plugin cuda_device"] [SCRIPTS="gpu cuda"] tests/check.sh   after `make tests`; SLOWDOWN: factor of all
#        time limits; SUITES, SCRIPTS: these suites, these scripts of tests/cli alone
# Jobs are started longest first while processors are free, by tests/lengths.txt. No test depends on what runs beside it.
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
trap 'for job in $(jobs -p); do pkill -P $job; done; rm -rf "$scratch"' EXIT

# ---- jobs: a suite that is listed, the others in four parts, a script (NAME.sh), a gate (gates.sh:r02)
declare -A seconds share suites
while read -r name s percent; do
    [[ $name == "#" ]] || seconds[$name]=$s share[$name]=$percent
done <tests/lengths.txt
jobs=()
n=0
for suite in ${SUITES-$("$BUILD/tests/run" --list)}; do
    job=$suite
    [[ ${seconds[$suite]-} ]] || job=rest-$((n++ % 4))
    [[ ${suites[$job]-} ]] || jobs+=("$job")
    suites[$job]+=" $suite"
done
for script in ${SCRIPTS-$(cd tests/cli && echo *.sh)}; do
    script=${script%.sh}
    if [[ $script == gates ]]; then
        for gate in tests/gates/r*.sh; do gate=${gate##*/} && jobs+=("gates.sh:${gate%%_*}"); done
    else
        jobs+=("$script.sh")
    fi
done
for job in "${jobs[@]}"; do
    name=${job%-[0-3]}
    [[ ${seconds[$name]-} ]] || seconds[$name]=3 share[$name]=100
    seconds[$job]=${seconds[$name]} share[$job]=${share[$name]}
done
mapfile -t jobs < <(for job in "${jobs[@]}"; do echo "${seconds[$job]} $job"; done | sort -k 1,1nr -k 2 | cut -d ' ' -f 2)

# perform JOB: its output is in $scratch/JOB, its processor time in $scratch/JOB.cpu
perform() {
    local script part command TIMEFORMAT='%U %S'
    IFS=: read -r script part <<<"$1"
    # shellcheck disable=SC2206
    command=("$BUILD/tests/run" ${suites[$1]-})
    # shellcheck disable=SC2206
    [[ $script == *.sh ]] && command=(timeout $((${CLI_TIMEOUT:-1200} * SLOWDOWN)) bash "tests/cli/$script" $part)
    { time "${command[@]}" >"$scratch/$1" 2>&1; } 2>"$scratch/$1.cpu"
}
# report JOB CODE: a line for the job, and its output if it failed
report() {
    local good bad last
    if [[ $1 == *.sh* ]]; then
        good=$(grep -c '^ok ' "$scratch/$1") bad=$(grep -c '^not ok ' "$scratch/$1")
    else
        good=0 bad=0 last=$(tail -n 1 "$scratch/$1")
        [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] && good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
    fi
    # A job that ends before it prints a failure counts as one failure, and so do suites that test nothing.
    if (($2 && !bad)) || [[ $1 != *.sh* && $good$bad == 00 ]]; then
        echo "not ok $1: ended with $2" >>"$scratch/$1"
        bad=1
    fi
    echo "$1: $good ok, $bad not ok, $((SECONDS - began[$1])) s, $(awk '{ printf "%.0f", $1 + $2 }' "$scratch/$1.cpu") s of a processor"
    ((passed += good, failed += bad))
    ((bad == 0)) || cat "$scratch/$1"
}

# Free processors in percent. A job that mostly waits needs a part of one; where the longest job does not fit, a shorter one may.
free=$(($(nproc) * 100)) n_running=0
declare -A running began
while ((${#jobs[@]} + n_running)); do
    later=()
    for job in "${jobs[@]}"; do
        if ((${share[$job]} > free && n_running)); then
            later+=("$job")
            continue
        fi
        perform "$job" &
        running[$!]=$job began[$job]=$SECONDS
        ((free -= ${share[$job]}, ++n_running))
    done
    jobs=("${later[@]}")
    wait -n -p ended
    code=$?
    job=${running[$ended]}
    ((free += ${share[$job]}, --n_running))
    report "$job" $code
done

if tests/lint.sh; then ((passed++)); else
    echo "not ok: lint"
    ((failed++))
fi
echo "$passed passed, $failed failed"
((failed == 0))

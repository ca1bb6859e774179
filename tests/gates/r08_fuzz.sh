#!/bin/bash
# tests/gates/r08_fuzz.sh - R8: coverage-guided fuzzing of every file format, with sanitizers. Without MUSHER_LONG=1, or without clang: the corpus only.
# usage: [BUILD=build] [MUSHER_LONG=1] [FUZZ_SECONDS=60] tests/gates/r08_fuzz.sh        from the root of the tree, after make
set -u
formats=$(grep -c '^    {"[a-z-]*", \(true\|false\),' tests/fuzz/formats.c)
inputs=$(find tests/fuzz/corpus -type f | wc -l)
if ! "${BUILD:-build}/tests/run" fuzz_corpus >/tmp/r08.$$ 2>&1; then
    cat /tmp/r08.$$ && rm -f /tmp/r08.$$
    echo "R8 fuzz      $inputs inputs of $formats formats, a reader breaks a rule"
    exit 1
fi
rm -f /tmp/r08.$$
if [[ ${MUSHER_LONG:-0} == 0 ]] || ! command -v clang >/dev/null; then
    echo "R8 fuzz      corpus of $inputs inputs of $formats formats, 0 findings$([[ ${MUSHER_LONG:-0} == 0 ]] || echo '; no clang, so none was mutated')"
    exit 0
fi
last=$(${MAKE:-make} --no-print-directory -s fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-60}" | tee /dev/stderr | tail -n 1)
echo "R8 fuzz      ${last#fuzz: }"
[[ $last == *", 0 findings" ]]

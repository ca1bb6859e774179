#!/bin/bash
# tests/tuning_experiment.sh FILE NAME VALUE... - the experiment behind a tuning constant of docs/tuning.md: random questions
# (tests/support/random_questions.h) are planned with the constant as it is and with each VALUE, and the iteration times compared.
#
# SEEDS="301 302 …": the questions; none of them is used by a test. BUILD: a build folder, in which the constant's file is compiled anew.
# The file is restored at the end. A line a value: how many plans became faster and slower by more than 0.05 %, the mean change of the
# iteration time over all questions, its extremes with their seeds, and the CPU time relative to that of the present value.
set -eu
file=$1 name=$2
shift 2
: "${BUILD:=build}" "${SEEDS:=301 302 303 304 305 306 307 308}"
kept=$(mktemp)
cp "$file" "$kept"
trap 'cp "$kept" "$file"; rm -f "$kept"' EXIT

answers() { # "SEED NS CPU_S" of each question
    make -s -j1 BUILD="$BUILD" "$BUILD/tests/run" >&2
    for seed in $SEEDS; do
        MUSHER_WIDER=$seed:$seed:z timeout 600 "$BUILD/tests/run" wider |
            sed -n 's/^answer \([0-9]*\): \([-0-9.]*\) ms in \([0-9.]*\) s.*/\1 \2 \3/p'
    done
}

base=${BASE:-$BUILD/tuning.base}
[[ -s $base ]] || answers >"$base"
for value in "$@"; do
    sed -z -i -E "s/\b($name[ \n]*=[ \n]*)[-(]*[0-9][^,;} \n]*/\1$value/; s/(#define $name[ \\\\\n]+)[^ \n]+/\1$value/" "$file"
    cmp -s "$file" "$kept" && { echo "$file: no '$name = …' to set to $value" >&2; exit 1; }
    answers | paste -d ' ' "$base" - | awk -v what="$file $name = $value" '
        $1 != $4 { print "a question without an answer: " $0 > "/dev/stderr"; exit 1 }
        { d = 100 * ($5 / $2 - 1); sum += d; before += $3; after += $6
          if (d < -0.05) faster++; if (d > 0.05) slower++
          if (NR == 1 || d < least) { least = d; at = $1 }
          if (NR == 1 || d > most) { most = d; by = $1 } }
        END { printf "%s: %d of %d faster, %d slower; mean %+.2f %%, from %+.2f %% (%d) to %+.2f %% (%d); CPU %.2f times\n",
              what, faster, NR, slower, sum / NR, least, at, most, by, after / before }'
    cp "$kept" "$file"
done

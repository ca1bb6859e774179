#!/bin/bash
# tests/gates/r22_mutation.sh - R22: mutants of sim/ and planner/ (tests/programs/mutate.c), each compiled, linked to the suites and run against those of its
# top-level folder: those that killed before come first, then those that include a header of its folder; a mutant lives if all of them pass. One whose object is
# that of the original is equivalent and not counted, nor is one that does not compile. CPU_LIMIT s of a suite kill too, because the mutant hangs.
# Short: a planted mutant of sim/goodput/goodput.c is killed by the suite that passes without it. Long: MUTANTS (60) of the files of MUTATED ("sim planner"), drawn
# by SEED (1); a line each on stderr, survivors are listed, and fewer than 85 % killed fail.
# usage: [BUILD=build] [MUSHER_LONG=1 MUTANTS=60 SEED=1 MUTATED="sim/goodput"] tests/gates/r22_mutation.sh      from the root of the tree, after make tests
set -u
root=$PWD
export BUILD=${BUILD:-build} OPENBLAS_NUM_THREADS=1 CK_FORK=no
MUSHER=${MUSHER:-$root/$BUILD/musher}
. tests/gates/common.inc
. tests/gates/cases.inc # draw
wanted=${MUTANTS:-60} seed=${SEED:-1} least=85
CPU_LIMIT=100 # s; the longest suite of a folder takes a minute (M1, 11-28)
[[ $long == 1 ]] || wanted=1
unless_sanitized R22 mutation
make=(make -n -s NVCC= "BUILD=$BUILD" "CC=${CC:-gcc}")
# the commands of make: of an object, with warnings off; of the program of all suites
compile() { "${make[@]}" -W "$1" "$BUILD/${1%.c}.o" | tail -n 1 | sed 's/^echo [^;]*; //; s/ -W[a-z][^ ]*/ /g; s/ -MMD -MP / -w /; s/ -g / /; s| -c [^ ]* -o .*||'; }
"${make[@]}" -W tests/run.c "$BUILD/tests/run" | tail -n 1 | sed 's/^echo [^;]*; //' >"$scratch/link"
linker=
command -v ld.lld >"$scratch/out" && linker=-fuse-ld=lld
program=$BUILD/tests/run-mutant-$$ # beside the libraries that it finds by its own folder
trap 'rm -rf "$scratch" "$program"' EXIT
link() { # OBJECT OF-SOURCE
    sed "s| $BUILD/${2%.c}.o | $1 |; s| -o $BUILD/tests/run | $linker -Wl,-S -o $program |" "$scratch/link" >"$scratch/command"
    bash "$scratch/command" >"$scratch/out" 2>&1
}
run_suite() { (ulimit -t $CPU_LIMIT; exec "$program" "$1") >"$scratch/suite" 2>&1; }
suites_of() { # FILE
    local all=(tests/"${1%%/*}"/test_*.c)
    { grep -l "include \"${1%/*}/" "${all[@]}"; printf '%s\n' "${all[@]}"; } | sed 's/.*test_//; s/\.c$//'
}
order=() # suites that killed, the last one first
mutant() { # FILE SITE: sets verdict, text and killer
    local file=$1 command suite tried=' ' name
    verdict='' text=$("$programs/mutate" at "$file" "$2" 2>&1 >"$scratch/mutant.c")
    command=$(compile "$file")
    cp "$file" "$scratch/original.c"
    for name in original mutant; do # under one name, which an object has in it
        cp "$scratch/$name.c" "$scratch/unit.c"
        (eval "$command -c $scratch/unit.c -o $scratch/$name.o") 2>"$scratch/err" || verdict=stillborn
    done
    [[ ! $verdict ]] && cmp -s "$scratch/original.o" "$scratch/mutant.o" && verdict=equivalent
    [[ $verdict ]] && return
    link "$scratch/mutant.o" "$file" || { verdict=stillborn && return; }
    for suite in "${order[@]}" $(suites_of "$file"); do
        [[ $tried == *" $suite "* || ! -e tests/${file%%/*}/test_$suite.c ]] && continue
        tried+="$suite "
        run_suite "$suite" && continue
        verdict=killed order=("$suite" "${order[@]}") killer=$suite
        return
    done
    verdict=survived
}
killed=0 survived=0 equivalent=0 stillborn=0
if [[ $long != 1 ]]; then # time of work with the wrong sign
    file=sim/goodput/goodput.c
    suites_of() { echo goodput; }
    line=$(grep -n 'part_ns\[GOODPUT_useful\] += work' $file | cut -d: -f1)
    for ((site = 0; site < 1000; site++)); do "$programs/mutate" at $file $site 2>&1 >"$scratch/out" | grep -q "^$file:$line: += -> -=" && break; done
    link "$BUILD/${file%.c}.o" $file && run_suite goodput || not_ok "R22 mutation" "goodput fails without a mutant: $(tail -n 3 "$scratch/suite" "$scratch/out")"
    mutant $file $site
    ((++$verdict))
else
    find ${MUTATED:-sim planner} -name '*.c' | LC_ALL=C sort | xargs "$programs/mutate" sites >"$scratch/sites"
    all=$(awk '{ n += $1 } END { print n }' "$scratch/sites")
    for ((tries = 0; killed + survived < wanted && tries < 20 * wanted; tries++)); do
        draw "$all" at
        read -r file site < <(awk -v at="$at" '{ if (at < $1) { print $2, at; exit } at -= $1 }' "$scratch/sites")
        mutant "$file" "$site"
        ((++$verdict))
        echo "$verdict $text$([[ $verdict == killed ]] && echo " ($killer)")" >&2
        [[ $verdict == survived ]] && survivors+="    $text"$'\n'
    done
fi
percent=$((killed + survived ? 100 * killed / (killed + survived) : 0))
figure R22 mutation "$((killed + survived)) mutants, $killed killed ($percent %), $equivalent equivalent, $stillborn do not compile"
[[ ${survivors-} ]] && printf 'survived:\n%s' "$survivors"
((killed + survived == wanted && percent >= least)) || not_ok "R22 mutation" "fewer than $least % of the mutants are killed"
exit $bad

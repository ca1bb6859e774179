#!/bin/bash
# tests/gates/r23_calibration.sh - R23: poisoned feedback. The suite calibrate_poison has runs in wrong units, with outliers, jumping clocks,
# and repeated feedback; here the program: what is refused leaves the database as it was, --force and --restore.
# usage: [BUILD=build] tests/gates/r23_calibration.sh        from the root of the tree, after make
set -u
root=$PWD
export BUILD=${BUILD:-build} OPENBLAS_NUM_THREADS=1
MUSHER=${MUSHER:-$root/$BUILD/musher}
. tests/cli/common.inc
failures=0
fails() {
    echo "not ok $1: $2"
    ((failures++))
}
"$BUILD/tests/run" calibrate_poison >"$scratch/suite" 2>&1 || fails "calibrate_poison" "$(cat "$scratch/suite")"
cases=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$scratch/suite")
cd "$scratch" || exit 6
small_job >job.yaml && small_team >team.yaml && seq 1 4000 >text
"$MUSHER" plan job.yaml team.yaml -o plan.yaml --baseline even-pipeline >out 2>err &&
    "$MUSHER" profile job.yaml team.yaml --db db --repeats 3 >out 2>err &&
    "$MUSHER" run plan.yaml --data text --steps 6 --trace run.trace >out 2>err || fails "a run" "$(cat err)"
newest() { "$MUSHER" simulate plan.yaml --db db --json 2>err | jq -c '[.profile_id, .iteration_ns]'; }
# refused NAME TEXT ARGUMENTS...: exit code 3, and the database keeps its newest profile
refused() {
    local name=$1 text=$2 before code
    shift 2
    before=$(cksum <db)
    "$MUSHER" calibrate --db db "$@" >out 2>err
    code=$?
    ((code == 3)) && grep -qF -- "$text" err || fails "$name" "exit code $code: $(cat err)"
    [[ $before == "$(cksum <db)" ]] || fails "$name" "the database changed"
}
# poison AWK: run.trace with spans changed by a program that has begin and end
poison() { jq -c "$1" run.trace >poisoned.trace; }
first=$(newest)
poison 'if .begin_ns then .end_ns = .begin_ns + (.end_ns - .begin_ns) * 1000 else . end'
refused "ps instead of ns" "times the cost measured on host before any calibration" poisoned.trace
poison 'if .begin_ns then .end_ns = .begin_ns else . end'
refused "spans of no time" "end when or before they begin" poisoned.trace
poison 'if .spans then .iteration_ns = .iteration_ns * 1000 else . end'
refused "a header in ps" "check the unit of its times" poisoned.trace
cp run.trace copy.trace
refused "the same run twice" "the same run as run.trace, which would count twice" run.trace copy.trace
# Times of the machine at this moment may differ from the profile's by more than a factor of 10; what counts is the way back.
"$MUSHER" calibrate --db db --force run.trace >out 2>err || fails "calibrate" "$(cat err)"
poison 'if .begin_ns then .end_ns = .begin_ns + (.end_ns - .begin_ns) * 1000 else . end'
good=$(newest)
"$MUSHER" calibrate --db db --force poisoned.trace >out 2>err || fails "--force" "$(cat err)"
bad=$(newest)
jq -ne "$bad[1] > 20 * $good[1]" >out || fails "a forced calibration is taken" "$good, $bad"
"$MUSHER" calibrate --db db --restore "$(jq -n "$good[0]")" >out 2>err || fails "--restore" "$(cat err)"
again=$(newest)
jq -ne "$again[1] == $good[1] and $again[0] == $bad[0] + 1" >out || fails "--restore goes back" "$good, $bad, $again"
"$MUSHER" calibrate --db db --restore 99 >out 2>err && fails "--restore of no profile" "taken"
"$MUSHER" calibrate --db db --restore 1 run.trace >out 2>err
(($? == 2)) || fails "--restore with a run" "$(cat err)"
"$MUSHER" calibrate --db db >out 2>err
(($? == 2)) || fails "no run" "$(cat err)"
((failures == 0)) && verdict="0 coefficients moved by more than a factor of 10" || verdict="$failures failures"
echo "R23 calibration  ${cases:-0} poisoned runs and 9 commands, $verdict"
((failures == 0))

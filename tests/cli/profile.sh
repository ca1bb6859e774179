#!/bin/bash
# tests/cli/profile.sh - operators of given plans are measured once each; calibrations are kept; collective skew is calibrated.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
job=$scratch/job.yaml team=$scratch/team.yaml db=$scratch/p.db
small_job > "$job"
small_team > "$team"
number() { sed -n "s/.*\"$1\": *\\([-0-9.e]*\\).*/\\1/p" "$scratch/out" | head -n 1; }
# is NAME KEY VALUE: the number in the JSON that the last command printed.
is() { [[ $(number "$2") == "$3" ]] && ok "$1" || not_ok "$1" "$2 is $(number "$2"), not $3"; }
measure=("$MUSHER" profile "$job" "$team" --repeats 3 -q)

says "leave-one-out errors are printed" 0 "by orientation" "${measure[@]}" --db "$db"
"$MUSHER" plan "$job" "$team" --db "$db" -o "$scratch/even.yaml" --baseline even-pipeline > /dev/null
{
    cat <<'END'
version: 1
name: shared
microbatch: 3
replicas:
  - microbatches: 2
    stages:
      - layers: [0, 7]
        devices: [a.0, a.1]
        sharding:
          ratios: [[5, 2]]
          operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.c_proj", shard: inputs}, {match: "h.*.mlp.*", shard: features}]
END
    sed -n '/^job:/,$p' "$scratch/even.yaml"
} > "$scratch/shared.yaml"

says "a plan's operators are measured" 0 '"profile_id": 2' "${measure[@]}" "$scratch/shared.yaml" --db "$db" --json
first=$(number operators_measured) rows=$(number operators)
((first > 10)) && ok "operators without rows are measured" || not_ok "operators without rows are measured" "$first"
is "as the next profile" parent_id 1
has "with the error of the fits" out fit_error
has "scaled to the profile's pace" out machine_pace
says "a second time nothing is measured" 0 '"operators_measured": 0' "${measure[@]}" "$scratch/shared.yaml" --db "$db" --json
is "and no new profile" profile_id 2
is "all rows are there" operators "$rows"
says "--again measures again" 0 '"profile_id": 3' "${measure[@]}" "$scratch/shared.yaml" --db "$db" --json --again
(($(number operators_measured) >= first)) && ok "then all of the plan" || not_ok "then all of the plan" "$(number operators_measured) < $first"
is "the rows are replaced" operators "$rows"
says "several plans" 0 "of 2 plans measured" "${measure[@]}" "$scratch/shared.yaml" "$scratch/even.yaml" --db "$db"
says "simulate uses the newest" 0 '"profile_id": 4' "$MUSHER" simulate "$scratch/shared.yaml" --db "$db" --json

"$MUSHER" run "$scratch/shared.yaml" --steps 4 --data LICENSE --trace "$scratch/run" > /dev/null 2> "$scratch/err" && ok "the plan runs" || not_ok "the plan runs" "$(cat "$scratch/err")"
# The two devices are late alternately: in each step the operators of one start later, by two thirds of their time.
# (The skew of two real devices depends on the other load of the machine.)
mv "$scratch/run" "$scratch/measured"
awk 'function number(key) { match($0, "\"" key "\":[0-9]+"); return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) }
    /^{"kind":"compute"/ && (number("step") + number("device")) % 2 {
        begin = number("begin_ns"); end = number("end_ns")
        sub("\"begin_ns\":" begin, sprintf("\"begin_ns\":%.0f", end - int((end - begin) / 3)))
    }
    { print }' "$scratch/measured" > "$scratch/run"
says "its run calibrates the collective skew" 0 "collective skew: the members" "$MUSHER" calibrate --db "$db" "$scratch/run"
says "the skew is explained" 0 "skew" "$MUSHER" simulate "$scratch/shared.yaml" --db "$db" --explain
sed 's/\[\[5, 2\]\]/[[3, 2]]/; s/^name: .*/name: other/' "$scratch/shared.yaml" > "$scratch/other.yaml"
says "another plan" 0 '"parent_id": 5' "${measure[@]}" "$scratch/other.yaml" --db "$db" --json
says "calibrations are kept" 0 "profile 6, calibrated on shared (run)" "$MUSHER" simulate "$scratch/other.yaml" --db "$db"
says "the skew too" 0 "skew" "$MUSHER" simulate "$scratch/other.yaml" --db "$db" --explain
"$MUSHER" simulate "$scratch/shared.yaml" --db "$db" --profile 5 | tail -n +2 > "$scratch/before"
"$MUSHER" simulate "$scratch/shared.yaml" --db "$db" --profile 6 | tail -n +2 | cmp -s - "$scratch/before" && [[ -s $scratch/before ]] && ok "a plan that was known is predicted as before" ||
    not_ok "a plan that was known is predicted as before" "differs"

says "a plan alone makes a database" 0 "link bus" "${measure[@]}" "$scratch/shared.yaml" --db "$scratch/new.db"
says "with its operators only" 0 '"operators_measured": 0' "${measure[@]}" "$scratch/shared.yaml" --db "$scratch/new.db" --json
says "--again needs a plan" 2 "--again needs a PLAN" "${measure[@]}" --db "$scratch/x.db" --again
sed 's/20 MB/21 MB/' "$team" > "$scratch/other-team.yaml"
says "a plan for another cluster is refused" 3 "its version of cluster team differs" "$MUSHER" profile "$job" "$scratch/other-team.yaml" "$scratch/shared.yaml" --db "$db"
{
    cat "$job"
    echo "precision: fp64"
} > "$scratch/wide.yaml"
says "a plan in another precision is refused" 3 "computes in fp32, the job in fp64" "$MUSHER" profile "$scratch/wide.yaml" "$team" "$scratch/shared.yaml" --db "$db"
says "a file that is not a plan is refused" 3 "job.yaml" "$MUSHER" profile "$job" "$team" "$job" --db "$db"
exit $bad

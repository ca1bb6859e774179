#!/bin/bash
# tests/cli/harp.sh - the program of `make validate`, --harp: HARP's cases planned and simulated, in text and in JSON.
set -u
. tests/cli/common.inc
validate=$BUILD/tests/validate/validate
cp -r tests/data/harp "$scratch/harp"
cp -r tests/data/harp "$scratch/first" # only the first case, for speed
head -n 2 tests/data/harp/cases.csv > "$scratch/first/cases.csv"
says "HARP's first case" 0 "a constant sought on 760m alone" "$validate" --harp "$scratch/first"
cp "$scratch/out" "$scratch/text"
has "its published split is found" text "24 on v w3, 28 on a w1: at most 2 layers apart"
has "the sweep of bandwidths" text "their 2.6B plan on links of other bandwidths"
has "ablations, labelled" text "760m, simulated: the best of each class of pipelines"
has "the presets beside" text "even-pipeline"
for i in 1 2; do "$validate" --harp "$scratch/first" --json | grep -v plan_cpu_s > "$scratch/json.$i"; done
cmp -s "$scratch/json.1" "$scratch/json.2" && ok "twice the same" || not_ok "twice the same" "differ"
says "all cases" 0 '"fitted_on": "760m"' "$validate" --harp tests/data/harp --json
mv "$scratch/out" "$scratch/one.json"
# the plan found is faster than HARP's in every case
awk '/"iteration_ns":/ && !/"name"/ && !/"class"/ { gsub(/[^0-9]/, ""); if (!ran) ran = $0 }
    /"found_ns":/ { gsub(/[^0-9]/, ""); n++; bad += $0 + 0 > ran + 0; ran = 0 }
    END { exit n != 3 || bad }' "$scratch/one.json" && ok "the planner's plans are faster than theirs" || not_ok "the planner's plans are faster than theirs" "$(grep '_ns' "$scratch/one.json" | grep -v name | grep -v class)"
sed -i 's/,sequences,/,everything,/' "$scratch/harp/cases.csv"
says "an unknown sharing mode" 3 "expected operators or sequences" "$validate" --harp "$scratch/harp"
cp tests/data/harp/cases.csv "$scratch/harp/"
sed -i 's/22|28/22|28|3/' "$scratch/harp/cases.csv"
says "a stage too many" 3 "expected one for each stage, between bars" "$validate" --harp "$scratch/harp"
says "no such folder" 3 "cases.csv" "$validate" --harp "$scratch"
says "two modes at once" 2 "one at a time" "$validate" --harp tests/data/harp --nccl
exit $bad

#!/bin/bash
# tests/cli/sweep.sh - musher sweep: every point is the search of `plan`; table, CSV and picture; rows without a plan.
set -u
. tests/cli/common.inc
job=$scratch/job.yaml team=$scratch/team.yaml csv=$scratch/s.csv
small_job > "$job"
small_team > "$team"
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | sed -n "${3:-1}p"; }
times() { sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' "$1" | tr '\n' ' '; }

says "a sweep" 0 "predicted with" "$MUSHER" sweep "$job" "$team" --vary batch=6,12 --vary link:lan=20MB/s,200MB/s --evaluations 300 -o "$csv"
has "its head" out "batch  link:lan"
[[ $(wc -l < "$scratch/out") == 6 ]] && ok "a row a point" || not_ok "a row a point" "$(cat "$scratch/out")"
[[ $(head -n 1 "$csv") == "batch,link:lan [B/s],iteration_s,samples_per_s,tokens_per_s,cost,lower_bound_s,gap,devices,devices_used,strategy_s,baseline_s,baseline,exact,evaluated,stopped,plan,strategy,why" ]] &&
    ok "the columns of the CSV" || not_ok "the columns of the CSV" "$(head -n 1 "$csv")"
[[ $(cut -d, -f 1,2 "$csv" | tail -n +2 | tr '\n' ' ') == "6,20000000 6,200000000 12,20000000 12,200000000 " ]] && ok "the last axis varies fastest" || not_ok "the last axis varies fastest" "$(cut -d, -f 1,2 "$csv")"

# Every point is what plan answers.
sed 's/global_batch: 6/global_batch: 12/' "$job" > "$scratch/job12.yaml"
"$MUSHER" plan "$scratch/job12.yaml" "$team" --evaluations 300 -o "$scratch/p.yaml" --json > "$scratch/p.json"
"$MUSHER" sweep "$job" "$team" --vary batch=6,12 --evaluations 300 --json > "$scratch/one.json"
[[ $(number "$scratch/one.json" iteration_ns 2) == "$(number "$scratch/p.json" iteration_ns)" ]] && ok "a point is the plan of the changed job" || not_ok "a point is the plan of the changed job" "$(times "$scratch/one.json") and $(number "$scratch/p.json" iteration_ns)"
cat > "$scratch/alone.yaml" <<'END'
version: 1
name: alone
device_types: [{name: fast, device: host, slowdown: 2, memory: 64 MiB}]
nodes: [{name: a, host: localhost, devices: [{type: fast}]}]
links: []
END
"$MUSHER" plan "$job" "$scratch/alone.yaml" --evaluations 300 -o "$scratch/p.yaml" --json > "$scratch/p.json" 2> "$scratch/err" || not_ok "a plan of one device" "$(cat "$scratch/err")"
"$MUSHER" sweep "$job" "$team" --vary devices:slow=0..2 --evaluations 300 --json > "$scratch/devices.json"
[[ $(number "$scratch/devices.json" iteration_ns 1) == "$(number "$scratch/p.json" iteration_ns)" ]] && ok "without the slow devices it is the plan of the fast one" || not_ok "without the slow devices it is the plan of the fast one" "$(times "$scratch/devices.json")"
read -r -a t <<< "$(times "$scratch/devices.json")"
((t[1] <= t[0] && t[2] <= t[1])) && ok "a device more never slows" || not_ok "a device more never slows" "${t[*]}"

# Few evaluations find a plan at one bandwidth that is better at another one than the plan found there.
sed 's/global_batch: 6/global_batch: 14/' "$job" > "$scratch/job14.yaml"
"$MUSHER" sweep "$scratch/job14.yaml" "$team" --vary link:lan=50MB/s,250MB/s,100MB/s,150MB/s,200MB/s --evaluations 20 --json > "$scratch/links.json"
"$MUSHER" sweep "$scratch/job14.yaml" "$team" --vary link:lan=200MB/s --evaluations 20 --json > "$scratch/alone.json"
read -r -a t <<< "$(times "$scratch/links.json")"
((t[0] >= t[2] && t[2] >= t[3] && t[3] >= t[4] && t[4] >= t[1] && t[1] < t[0])) && ok "a faster link never slows" || not_ok "a faster link never slows" "${t[*]}"
((t[4] < $(number "$scratch/alone.json" iteration_ns))) && ok "a plan of one point is tried at the others" || not_ok "a plan of one point is tried at the others" "${t[*]}, alone $(times "$scratch/alone.json")"

# Same bytes on two runs and for any number of threads.
for threads in 1 2 5; do "$MUSHER" sweep "$job" "$team" --vary batch=6,12 --vary nodes:b=0..2 --evaluations 100 --threads $threads -o "$scratch/$threads.csv" > "$scratch/$threads.out"; done
cmp -s "$scratch/1.csv" "$scratch/2.csv" && cmp -s "$scratch/1.csv" "$scratch/5.csv" && cmp -s "$scratch/1.out" "$scratch/5.out" && ok "the same bytes for one, two and five threads" || not_ok "the same bytes for one, two and five threads" "$(diff "$scratch/1.csv" "$scratch/5.csv" | head -n 4)"
"$MUSHER" sweep "$job" "$team" --vary batch=6,12 --vary nodes:b=0..2 --evaluations 100 -o - > "$scratch/again.csv"
cmp -s "$scratch/1.csv" "$scratch/again.csv" && ok "on standard output too, and nothing else" || not_ok "on standard output too, and nothing else" "$(head -n 3 "$scratch/again.csv")"
grep -q '^6,2,' "$scratch/1.csv" && [[ $(grep '^6,2,' "$scratch/1.csv" | cut -d, -f 9) == 4 ]] && ok "a node more than there are is a copy" || not_ok "a node more than there are is a copy" "$(grep '^6,2,' "$scratch/1.csv")"

# Points without a plan are rows.
sed 's/memory: 64 MiB/memory: 64 KiB/g' "$team" > "$scratch/tiny.yaml"
sed 's/microbatch: 1/microbatch: 2/' "$job" > "$scratch/two.yaml"
says "a batch that the microbatch does not divide is a row" 0 "no plan: no microbatch size of the job divides a batch of 7" "$MUSHER" sweep "$scratch/two.yaml" "$team" --vary batch=6,7 --evaluations 50 -o "$csv"
tail -n 1 "$csv" | grep -q '^7,,,.*,no microbatch size' && ok "with its reason in the CSV" || not_ok "with its reason in the CSV" "$(tail -n 1 "$csv")"
says "no device is a row" 0 "no plan: nodes:b=0 leaves no device" "$MUSHER" sweep "$job" "$team" --vary nodes:a=0,1 --vary nodes:b=0,1 --evaluations 50
says "memory that does not suffice is a row, and all rows are exit code 4" 4 "no plan at any point" "$MUSHER" sweep "$job" "$scratch/tiny.yaml" --vary batch=6,12 --evaluations 50
[[ $(grep -c 'no plan: parameters' "$scratch/out") == 2 ]] && ok "each with its reason" || not_ok "each with its reason" "$(cat "$scratch/out")"

says "a link that goes with its node" 0 "1 GB/s" "$MUSHER" sweep "$job" "$team" --vary nodes:b=0..2 --vary link:lan=1GB/s --evaluations 50 -o "$csv"
[[ $(cut -d, -f 9 "$csv" | tr '\n' ' ') == "devices 2 3 4 " ]] && ok "is no error" || not_ok "is no error" "$(cut -d, -f 1,2,9 "$csv")"

# Prices.
sed 's/slowdown: 2,/slowdown: 2, price: 2\/h,/' "$team" > "$scratch/priced.yaml"
"$MUSHER" sweep "$job" "$scratch/priced.yaml" --vary price:slow=0.01/h,100/h --objective cost --evaluations 300 -o "$csv" > "$scratch/out"
has "costs have a column" out "cost"
awk -F, 'NR == 2 { a = $5 } NR == 3 { b = $5 } END { exit !(a > 0 && b > a) }' "$csv" && ok "dearer devices never make a cheaper plan" || not_ok "dearer devices never make a cheaper plan" "$(cut -d, -f 1-6 "$csv")"

"$MUSHER" sweep "$job" "$scratch/priced.yaml" --vary price:slow=0/h,3/h --vary price:fast=0/h,1/h --objective cost --evaluations 50 -o "$csv" > "$scratch/out" 2> "$scratch/err"
code=$?
[[ $code == 0 && $(grep -c 'are free' "$scratch/out") == 1 && $(wc -l < "$csv") == 5 ]] && ok "of points one without any price is refused alone" || not_ok "of points one without any price is refused alone" "exit $code: $(cat "$scratch/err" "$scratch/out")"
says "a plan on free devices" 0 "cost" "$MUSHER" sweep "$job" "$scratch/priced.yaml" --vary price:slow=0/h --vary price:fast=0/h,1/h --objective cost --evaluations 50 -o "$csv"
awk -F, 'NR == 3 { exit !($6 == "0") }' "$csv" && ok "costs nothing" || not_ok "costs nothing" "$(cut -d, -f 1-7 "$csv")"
says "a sweep of nothing else is refused" 3 "every plan costs the same" "$MUSHER" sweep "$job" "$scratch/priced.yaml" --vary price:slow=0/h --vary price:fast=0/h --objective cost

# Pictures.
is_png() { [[ $(head -c 8 "$1" | od -An -tx1 | tr -d ' ') == 89504e470d0a1a0a && $(tail -c 8 "$1" | od -An -tx1 | tr -d ' ') == 49454e44ae426082 ]]; }
says "a picture" 0 "" "$MUSHER" sweep "$scratch/two.yaml" "$team" --vary batch=6,7,8,10 --vary nodes:b=0,1 --evaluations 50 -o "$csv" --picture "$scratch/s.png"
is_png "$scratch/s.png" && ok "is an image" || not_ok "is an image" "$(ls -l "$scratch")"
"$MUSHER" plot "$csv" -o "$scratch/from_csv.gp" && "$MUSHER" sweep "$scratch/two.yaml" "$team" --vary batch=6,7,8,10 --vary nodes:b=0,1 --evaluations 50 --picture "$scratch/direct.gp" > /dev/null
diff <(grep -v '^set output' "$scratch/from_csv.gp") <(grep -v '^set output' "$scratch/direct.gp") > /dev/null && ok "plot draws the same from the CSV" || not_ok "plot draws the same from the CSV" "$(diff "$scratch/from_csv.gp" "$scratch/direct.gp" | head -n 5)"
has "a line a combination of the other axes" direct.gp 'nodes:b 0'
has "points without a plan are marked" direct.gp 'no plan'
sed 's/^batch/"`touch PWNED` @x \\"/' "$csv" > "$scratch/odd.csv"
(cd "$scratch" && "$MUSHER" plot odd.csv -o odd.svg > out 2> err; [[ ! -e PWNED ]]) && ok "a name is no command" || not_ok "a name is no command" "it was"

# A sweep that is stopped has the points searched so far. --foreground: one signal, not two.
large=("$MUSHER" sweep tests/data/jobs/gpt-2.6b.yaml tests/data/clusters/fleet64.yaml --vary batch=256..16384:x2 --vary nodes:h=0..2 --vary nodes:a=1..2 --evaluations 1000000)
"${large[@]}" --time-limit 1 -o "$scratch/cut.csv" > "$scratch/out" 2> "$scratch/err"
code=$?
[[ $code == 0 || $code == 4 ]] && grep -q 'stopped by --time-limit: [0-9]* of 42 points' "$scratch/err" && (($(wc -l < "$scratch/cut.csv") < 43)) && ok "a time limit" || not_ok "a time limit" "exit $code: $(cat "$scratch/err")"
for seconds in 1 2 4 8 16; do # independent of the machine's speed: later and later, until the searches have begun
    timeout --foreground --preserve-status -s INT $seconds "${large[@]}" > "$scratch/out" 2> "$scratch/err"
    code=$?
    grep -q interrupted "$scratch/err" && break
done
[[ $code == 130 ]] && grep -q 'interrupted: [0-9]* of 42 points' "$scratch/err" && ok "an interrupt" || not_ok "an interrupt" "exit $code: $(cat "$scratch/err")"

# Wrong input.
says "no axis" 2 "sweep needs --vary" "$MUSHER" sweep "$job" "$team"
says "too many points" 2 "20 x 20 points are more than 256 searches" "$MUSHER" sweep "$job" "$team" --vary batch=1..20 --vary sequence=1..20
says "unless allowed" 2 "4 x 1 points are more than 3 searches" "$MUSHER" sweep "$job" "$team" --vary batch=1..4 --vary sequence=8 --max-points 3
says "an axis twice" 2 "--vary batch is given twice" "$MUSHER" sweep "$job" "$team" --vary batch=6 --vary batch=7
says "a mistyped axis" 2 "did you mean 'sequence'?" "$MUSHER" sweep "$job" "$team" --vary sequenc=6
says "an unknown link, before any search" 3 "links are: bus (a:a), lan (a:b)" "$MUSHER" sweep "$job" "$team" --vary link:wan=1GB/s
says "an unknown node" 3 "nodes are: a, b" "$MUSHER" sweep "$job" "$team" --vary nodes:z=1..2
says "an unknown type" 3 "types are: fast, slow" "$MUSHER" sweep "$job" "$team" --vary price:z=1/h
says "a sequence beyond the model's" 3 "longer than the 32 positions" "$MUSHER" sweep "$job" "$team" --vary sequence=24,64
says "another suffix of the picture" 2 "plot writes .png, .svg, .gp" "$MUSHER" sweep "$job" "$team" --vary batch=6 --picture "$scratch/x.jpg"
says "an output that is an input" 2 "input" "$MUSHER" sweep "$job" "$team" --vary batch=6 -o "$job"
sed '3s/,[^,]*$//' "$csv" > "$scratch/odd2.csv"
says "a damaged table" 3 "odd2.csv:3: expected 19 fields" "$MUSHER" plot "$scratch/odd2.csv" -o "$scratch/x.svg"
exit $bad

#!/bin/bash
# tests/cli/explain.sh - simulate --explain: the critical path adds up to the iteration, and repeated output is identical.
set -u
. tests/cli/common.inc
job=$scratch/job.yaml team=$scratch/team.yaml plan=$scratch/plan.yaml
small_job > "$job"
small_team > "$team"
"$MUSHER" plan "$job" "$team" -o "$plan" >/dev/null 2>"$scratch/err" && ok "plan" || not_ok "plan" "$(cat "$scratch/err")"

"$MUSHER" simulate "$plan" --explain >"$scratch/text" 2>"$scratch/err" && ok "explain" || not_ok "explain" "$(cat "$scratch/err")"
has "the critical path is printed" text "critical path of step 2, "
has "its kinds" text "  compute  "
has "its longest operations" text "longest on it:"
has "the devices and what they wait for" text "on the path"
has "in the words of the table of device types" text "; waits: "
has "the busiest device" text "busiest: "
has "the fullest device and its largest buffers" text "fullest memory: "
has "what if" text "what if, one at a time: no time at all (a lower bound for any speed-up of it)"
"$MUSHER" simulate "$plan" >"$scratch/plain" 2>/dev/null
head -n "$(wc -l <"$scratch/plain")" "$scratch/text" | cmp -s - "$scratch/plain" && ok "the prediction stands above it, unchanged" || not_ok "the prediction stands above it, unchanged" "$(cat "$scratch/plain")"

for i in 1 2; do "$MUSHER" simulate "$plan" --explain --json >"$scratch/json.$i" 2>/dev/null; done
cmp -s "$scratch/json.1" "$scratch/json.2" && ok "twice the same bytes" || not_ok "twice the same bytes" ""
iteration=$(grep -m 1 -o '"iteration_ns": [0-9]*' "$scratch/json.1" | grep -o '[0-9]*')
sum=$(sed -n '/"path": \[/,/^    \]/p' "$scratch/json.1" | grep -o '"ns": *[0-9]*' | awk -F: '{s += $2} END {printf "%d", s}')
[[ -n $iteration && $sum == "$iteration" ]] && ok "the pieces of the path add up to the iteration" || not_ok "the pieces of the path add up to the iteration" "$sum and $iteration"
kinds=$(grep -o '"kinds": {[^}]*}' "$scratch/json.1" | grep -o '[0-9][0-9]*' | awk '{s += $1} END {printf "%d", s}')
[[ $kinds == "$iteration" ]] && ok "its kinds add up too" || not_ok "its kinds add up too" "$kinds and $iteration"
has "waits by kind" json.1 '"wait_ns": {'
waits=$(sed -n '/"explain": {/,$p' "$scratch/json.1" | grep -oE '"(busy_ns|messages|collectives|bubble|imbalance)": [0-9]+' | head -5 | awk '{s += $2} END {printf "%d", s}')
[[ $waits == "$iteration" ]] && ok "busy and waits of a device add up to the iteration" || not_ok "busy and waits of a device add up to the iteration" "$waits and $iteration"
has "the what-if list is present" json.1 '"what_if": ['
has "and nothing was left out" json.1 '"what_if_left_out": 0'

"$MUSHER" simulate "$plan" --explain --what-if 0 >"$scratch/text" 2>/dev/null
grep -q "what if" "$scratch/text" && not_ok "--what-if 0 simulates nothing" "$(cat "$scratch/text")" || ok "--what-if 0 simulates nothing"
"$MUSHER" simulate "$plan" --explain --what-if 1 >"$scratch/text" 2>/dev/null
has "--what-if 1 states the number left out" text "more on the path were not simulated"
"$MUSHER" simulate "$plan" --explain --what-if -1 >"$scratch/text" 2>"$scratch/err"
code=$?
((code == 2)) && ok "a negative --what-if is refused" || not_ok "a negative --what-if is refused" "exit code $code"
"$MUSHER" simulate "$plan" --explain --trace "$scratch/t" >/dev/null 2>&1 && "$MUSHER" simulate "$plan" --trace "$scratch/u" >/dev/null 2>&1
cmp -s "$scratch/t" "$scratch/u" && ok "explaining does not change the trace" || not_ok "explaining does not change the trace" ""

# 20 pipelines of two stages, each on a link of its own: links with equal figures are one line.
{
    printf 'version: 1\nname: links\nmicrobatch: 1\nreplicas:\n'
    for ((r = 0; r < 20; r++)); do printf '  - {microbatches: 2, stages: [{layers: [0, 3], device: n%d.0}, {layers: [4, 7], device: n%d.1}]}\n' $r $r; done
    echo 'job:'
    small_job | sed 's/global_batch: 6/global_batch: 40/; s/^/  /'
    printf 'cluster:\n  version: 1\n  name: links\n  device_types: [{name: cpu, device: T4}]\n  nodes:\n'
    for ((r = 0; r < 20; r++)); do printf '    - {name: n%d, host: localhost, devices: {type: cpu, count: 2}}\n' $r; done
    printf '  links:\n    - {name: lan, every: across, bandwidth: 1 GB/s, latency: 10 us}\n'
    for ((r = 0; r < 20; r++)); do printf '    - {name: bus%d, between: [n%d], bandwidth: 1 GB/s, latency: 10 us}\n' $r $r; done
} > "$scratch/links.yaml"
says "many links" 0 "links, by exposed time:" "$MUSHER" simulate "$scratch/links.yaml" --explain
grep -qE '^  bus.* messages in flight .* \([0-9]+ links\)$' "$scratch/out" && ok "with equal figures are one line" || not_ok "with equal figures are one line" "$(grep -A15 '^links' "$scratch/out")"
(($(grep -c ' messages in flight ' "$scratch/out") <= 12)) && ok "and few lines" || not_ok "and few lines" "$(grep -A15 '^links' "$scratch/out")"
says "--all lists each" 0 "  bus19 " "$MUSHER" simulate "$scratch/links.yaml" --explain --all

# A route over several links is named by the devices that it joins.
{
    printf 'version: 1\nname: switched\ndevice_types: [{name: gpu, device: T4}]\nnodes: [{name: n, count: 2, devices: [{type: gpu}]}]\nswitches: [{name: core}]\n'
    printf 'links: [{name: up, count: 2, between: [n, core], bandwidth: 1 GB/s, latency: 10 us}]\n'
} > "$scratch/switched.yaml"
"$MUSHER" plan "$job" "$scratch/switched.yaml" --baseline data-parallel -o "$scratch/dp.yaml" > "$scratch/out" 2>&1 || not_ok "a data-parallel plan" "$(cat "$scratch/out")"
says "a collective over a route names its devices" 0 "collective on n0.0 to n1.0 over up0" "$MUSHER" simulate "$scratch/dp.yaml" --explain --what-if 0
exit $bad

#!/bin/bash
# tests/bench/strategies.sh - predicted and measured iterations of 31 plans of all strategies on two islands of two emulated host devices
# over a slow link: synchronous, ZeRO, hierarchical, pipelines, local SGD, DiLoCo, streaming DiLoCo, sums in halves, codes, PowerSGD.
#
# Every operator and link is profiled; then each plan is simulated with this profile; then all plans are run in rounds, every other round in
# reverse, so that a slow period of the machine affects all of them. Nothing measured in a run changes a prediction. The time of a plan is the median
# over its rounds of the iteration that `run` reports; its steps are two periods of local SGD, or STEPS.
# Prints a row for each plan, the median of the errors' absolute values, and Spearman's rank correlation.
# usage: MUSHER=build/musher tests/bench/strategies.sh [FOLDER]       results in FOLDER (build/strategies), about fifteen minutes
#   ROUNDS=3 STEPS=8        PLANS="sync-4 diloco-8"  only these plans        NET="30 MB/s"  the link between the islands
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
MUSHER=${MUSHER:-$here/build/musher}
out=${1:-build/strategies}
rounds=${ROUNDS:-3} steps=${STEPS:-8} net=${NET:-30 MB/s} only=${PLANS:-}
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

die() {
    echo "strategies: $*" >&2
    exit 1
}
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | head -n 1; }

mkdir -p "$out" || exit
rm -f "$out"/*
job='  version: 1
  model: {model_type: gpt2, n_embd: 128, n_layer: 4, n_head: 4, n_positions: 64, vocab_size: 256}
  sequence_length: 64
  global_batch: 12
  microbatch: 1
  optimizer: {kind: adamw, lr: 1e-3}'
cluster="  version: 1
  name: two-islands
  device_types: [{name: cpu, device: host, slowdown: 5, memory: 1 GiB}]
  nodes:
    - {name: a, host: localhost, devices: {type: cpu, count: 2}}
    - {name: b, host: localhost, devices: {type: cpu, count: 2}}
  links:
    - {name: bus-a, between: [a], bandwidth: 1 GB/s, latency: 20 us}
    - {name: bus-b, between: [b], bandwidth: 1 GB/s, latency: 20 us}
    - {name: net, between: [a, b], bandwidth: $net, latency: 1 ms}"
sed 's/^  //' <<<"$job" >"$out/job.yaml"
sed 's/^  //' <<<"$cluster" >"$out/cluster.yaml"

# plan NAME PERIOD HEAD REPLICAS: a plan file, and its name and steps in the list
plan() {
    [[ -n $only && " $only " != *" $1 "* ]] && return
    printf 'version: 1\nname: %s\nmicrobatch: 1\n%s\nreplicas:\n%s\njob:\n%s\ncluster:\n%s\n' "$1" "$3" "$4" "$job" "$cluster" >"$out/$1.yaml"
    echo "$1 $(($2 ? 2 * $2 : steps))" >>"$out/plans"
}
# replicas SETTINGS DEVICE...: one on each device, with equal shares of the batch
replicas() {
    local settings=$1 d
    shift
    for d; do echo "  - {microbatches: $((12 / $#)), stages: [{layers: [0, 11], device: $d$settings}]}"; done
}
two=$(replicas '' a.0 b.0) three=$(replicas '' a.0 a.1 b.0) four=$(replicas '' a.0 a.1 b.0 b.1)
pipelines='  - {microbatches: 6, stages: [{layers: [0, 5], device: a.0}, {layers: [6, 11], device: a.1}]}
  - {microbatches: 6, stages: [{layers: [0, 5], device: b.0}, {layers: [6, 11], device: b.1}]}'
across='  - {microbatches: 6, stages: [{layers: [0, 5], device: a.0}, {layers: [6, 11], device: b.0}]}
  - {microbatches: 6, stages: [{layers: [0, 5], device: a.1}, {layers: [6, 11], device: b.1}]}'
islands='islands: [[0, 1], [2, 3]]' singles='islands: [[0], [1]]' nesterov='outer: nesterov, lr: 0.7, momentum: 0.9'

plan sync-2 0 '' "$two"
plan sync-3 0 '' "$three"
plan sync-4 0 '' "$four"
plan buckets-4 0 '' "$(replicas ', bucket: 512 KiB' a.0 a.1 b.0 b.1)"
plan zero1-4 0 '' "$(replicas ', zero: 1' a.0 a.1 b.0 b.1)"
plan hybrid1-4 0 '' "$(replicas ', zero: 1, hybrid_shard: true' a.0 a.1 b.0 b.1)"
plan hybrid3-4 0 '' "$(replicas ', zero: 3, hybrid_shard: true' a.0 a.1 b.0 b.1)"
plan pipelines 0 '' "$pipelines"
plan across 0 '' "$across"
for h in 2 4 8 16; do plan local-$h $h "local_sgd: {every: $h, $islands}" "$four"; done
plan local-4-singles 4 "local_sgd: {every: 4, $singles}" "$two"
plan local-8-pipelines 8 "local_sgd: {every: 8, $singles}" "$pipelines"
for h in 4 8 16; do plan diloco-$h $h "local_sgd: {every: $h, $islands, $nesterov}" "$four"; done
plan diloco-4-bf16 4 $'compression: {outer: bf16}\n'"local_sgd: {every: 4, $islands, $nesterov}" "$four"
plan streaming-8 8 "local_sgd: {every: 8, $islands, $nesterov, fragments: 2, delay: 1, alpha: 0.5}" "$four"
plan streaming-16 16 "local_sgd: {every: 16, $islands, $nesterov, fragments: 4, delay: 2, alpha: 0.5}" "$four"
plan streaming-8-singles 8 "local_sgd: {every: 8, $singles, $nesterov, fragments: 4, delay: 1, alpha: 0.5}" "$two"
for n in two four; do
    plan bf16-$n 0 'compression: {gradients: bf16}' "${!n}"
    plan int8-$n 0 'compression: {gradients: int8}' "${!n}"
done
plan fp16-four 0 'compression: {gradients: fp16}' "$four"
plan sign-four 0 'compression: {gradients: sign}' "$four"
plan top-k-four 0 'compression: {gradients: {kind: top-k, fraction: 0.01}}' "$four"
plan power-sgd-four 0 'compression: {gradients: {kind: power-sgd, rank: 4}}' "$four"
plan power-sgd-pipelines 0 'compression: {gradients: {kind: power-sgd, rank: 4}}' "$pipelines"
[[ -s $out/plans ]] || die "no plan has a name of PLANS"

mapfile -t files < <(sed "s|^\\([^ ]*\\) .*|$out/\\1.yaml|" "$out/plans")
echo "profiling ${#files[@]} plans"
"$MUSHER" profile -q "$out/job.yaml" "$out/cluster.yaml" "${files[@]}" --db "$out/profiles.db" >"$out/profile.txt" 2>"$out/err" || die "profile: $(tail -n 3 "$out/err")"
while read -r name _; do
    "$MUSHER" simulate -q "$out/$name.yaml" --db "$out/profiles.db" --json >"$out/$name.sim.json" 2>"$out/err" </dev/null || die "$name: $(tail -n 3 "$out/err")"
    echo "plan $name $(number "$out/$name.sim.json" iteration_ns)"
done <"$out/plans" >"$out/predicted"
: >"$out/measured"
for ((r = 1; r <= rounds; r++)); do
    while read -r name n <&3; do
        "$MUSHER" run -q "$out/$name.yaml" --steps "$n" --data "$here/LICENSE" --json >"$out/run.json" 2>"$out/err" </dev/null || die "$name: $(tail -n 3 "$out/err")"
        echo "run $name $(number "$out/run.json" iteration_ns)" >>"$out/measured"
    done 3< <(((r % 2)) && cat "$out/plans" || tac "$out/plans")
    echo "round $r of $rounds: load $(cut -d' ' -f1 /proc/loadavg)"
done
cat "$out/predicted" "$out/measured" | awk "$(cat "$here/tools/ranks.awk")"'
    $1 == "plan" { n++; name[n] = $2; at[$2] = n; predicted[n] = $3 }
    $1 == "run" { i = at[$2]; runs[i] = runs[i] " " $3; count[i]++ }
    END {
        printf "%-20s %12s %12s %9s %8s\n", "plan", "predicted", "measured", "error", "spread"
        for (i = 1; i <= n; i++) {
            measured[i] = median(runs[i], count[i])
            error = 100 * (predicted[i] - measured[i]) / measured[i]
            errors = errors " " (error < 0 ? -error : error)
            printf "%-20s %9.1f ms %9.1f ms %+7.1f %% %6.1f %%\n", name[i], predicted[i] / 1e6, measured[i] / 1e6, error, 100 * spread
        }
        printf "%d plans: median error %.1f %%, Spearman %.3f\n", n, median(errors, n), (n > 1 ? spearman(predicted, measured, n) : 1)
    }' | tee "$out/table.txt"

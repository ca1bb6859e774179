#!/bin/bash
# tests/bench/namespaces.sh - predicted and measured iterations of plans on four hosts whose links are real: network namespaces of this machine with
# TCP between them, each with an interface of 100 Mbit/s in each direction (tc) and 1 ms to each other host.
#
# Links and operators are measured by `musher profile --agent`; then each plan is simulated with this profile; then all plans are run
# (`run --agent`) in rounds, every other round in reverse. found-JOB is the plan that `musher plan` finds with the job's first profile; its
# operators are measured too. Nothing measured in a run changes a prediction. The time of a plan is the median over its rounds of the
# iteration that `run` reports. Devices are real host devices (no slowdown). All hosts share this machine's processors, and a prediction takes
# operators to last as long as they do alone: jobs are small, so that links decide, except with the plans found, which hide them. Ranks have
# real-time priority if that is permitted, because other load would count as theirs.
# usage: BUILD=build tests/bench/namespaces.sh [FOLDER]       results in FOLDER (build/namespaces), about six minutes; needs root and ip, tc, mpirun
#   ROUNDS=3 STEPS=6        PLANS="ring pipeline"  only these plans        DELAY=1000 RATE=100  us and Mbit/s of each host
set -u
cd "$(dirname "$0")/../.." || exit
BUILD=${BUILD:-build}
musher=$(realpath "${MUSHER:-$BUILD/musher}")
out=$(realpath -m "${1:-$BUILD/namespaces}")
rounds=${ROUNDS:-3} steps=${STEPS:-6} only=${PLANS:-}
scratch=$(mktemp -d) || exit
trap 'rm -rf "$scratch"' EXIT
. tests/support/namespaces.inc
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$scratch

die() {
    echo "namespaces: $*" >&2
    exit 1
}
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | head -n 1; }
why=$(spaces_missing delay)
[[ ! $why ]] || die "left out: $why"
mkdir -p "$out" && rm -f "$out"/* || exit

# Of the wide job gradients are the traffic, of the narrow one activations.
wide='  version: 1
  model: {model_type: gpt2, n_embd: 256, n_layer: 4, n_head: 4, n_positions: 64, vocab_size: 256}
  sequence_length: 8
  global_batch: 8
  microbatch: 1
  optimizer: {kind: adamw, lr: 1e-3}'
narrow='  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 2, n_positions: 64, vocab_size: 256}
  sequence_length: 64
  global_batch: 256
  microbatch: 16
  optimizer: {kind: adamw, lr: 1e-3}'
cluster='  version: 1
  name: four-hosts
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: a, host: h0, devices: [{type: cpu}]}, {name: b, host: h1, devices: [{type: cpu}]}, {name: c, host: h2, devices: [{type: cpu}]}, {name: d, host: h3, devices: [{type: cpu}]}]
  switches: [{name: net}]
  links:
    - {name: card-a, between: [a, net], bandwidth: 100 Mbit/s, latency: 500 us}
    - {name: card-b, between: [b, net], bandwidth: 100 Mbit/s, latency: 500 us}
    - {name: card-c, between: [c, net], bandwidth: 100 Mbit/s, latency: 500 us}
    - {name: card-d, between: [d, net], bandwidth: 100 Mbit/s, latency: 500 us}'
sed 's/^  //' <<<"$cluster" >"$out/cluster.yaml"

# plan NAME JOB HEAD REPLICAS: a plan file, and its name in the lists of all plans and of the job's
plan() {
    [[ -n $only && " $only " != *" $1 "* ]] && return
    printf 'version: 1\nname: %s\nmicrobatch: %d\n%s\nreplicas:\n%s\njob:\n%s\ncluster:\n%s\n' "$1" "$([[ $2 == wide ]] && echo 1 || echo 16)" "$3" "$4" "${!2}" "$cluster" >"$out/$1.yaml"
    echo "$1" >>"$out/plans"
    echo "$out/$1.yaml" >>"$out/$2"
}
# four SETTINGS: a replica on each host
four() {
    local d
    for d in a b c d; do echo "  - {microbatches: 2, stages: [{layers: [0, 11], device: $d.0$1}]}"; done
}
pairs='  - {microbatches: 4, stages: [{layers: [0, 5], device: a.0}, {layers: [6, 11], device: b.0}]}
  - {microbatches: 4, stages: [{layers: [0, 5], device: c.0}, {layers: [6, 11], device: d.0}]}'
plan ring wide '' "$(four '')"
plan doubling wide '' "$(four ', all_reduce: halving-doubling')"
plan zero1 wide '' "$(four ', zero: 1')"
plan bf16 wide 'compression: {gradients: bf16}' "$(four '')"
plan local-2 wide 'local_sgd: {every: 2, islands: [[0, 1], [2, 3]]}' "$(four '')"
plan pairs wide '' "$pairs"
plan pipeline narrow '' '  - {microbatches: 16, stages: [{layers: [0, 1], device: a.0}, {layers: [2, 3], device: b.0}, {layers: [4, 5], device: c.0}, {layers: [6, 7], device: d.0}]}'
plan pipelines narrow '' '  - {microbatches: 8, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: b.0}]}
  - {microbatches: 8, stages: [{layers: [0, 3], device: c.0}, {layers: [4, 7], device: d.0}]}'

chrt -r 1 true 2>/dev/null && space_nice=(chrt -r 1)
spaces_make 4 "${DELAY:-1000}" "${RATE:-100}" || die "the hosts cannot be made"
echo "4 hosts in network namespaces: links real (TCP), devices real; $(nproc) processors for all; ranks have $([[ ${space_nice[*]} ]] && echo real-time || echo normal) priority"
# measure JOB PLAN...: the links, once, and the operators of the plans
measure() {
    local job=$1
    shift
    "$scratch/on" h0 "$musher" profile -q "$out/$job.yaml" "$out/cluster.yaml" "$@" --db "$out/profiles.db" --agent "$scratch/agent" >"$out/profile.$job" 2>"$out/err" || die "profile: $(tail -n 3 "$out/err")"
}
for job in wide narrow; do
    [[ -z $only || -s $out/$job || " $only " == *" found-$job "* ]] || continue
    touch "$out/$job"
    mapfile -t files <"$out/$job"
    sed 's/^  //' <<<"${!job}" >"$out/$job.yaml"
    measure "$job" "${files[@]}"
    [[ -z $only || " $only " == *" found-$job "* ]] || continue
    "$musher" plan -q "$out/$job.yaml" "$out/cluster.yaml" --db "$out/profiles.db" -o "$out/found-$job.yaml" >"$out/search.$job" 2>"$out/err" || die "plan: $(tail -n 3 "$out/err")"
    measure "$job" "$out/found-$job.yaml"
    echo "found-$job" >>"$out/plans"
done
[[ -s $out/plans ]] || die "no plan has a name of PLANS"
grep -h '  link ' "$out"/profile.* | sort -u
while read -r name; do
    "$musher" simulate -q "$out/$name.yaml" --db "$out/profiles.db" --json >"$out/$name.sim.json" 2>"$out/err" </dev/null || die "$name: $(tail -n 3 "$out/err")"
    echo "plan $name $(number "$out/$name.sim.json" iteration_ns)"
done <"$out/plans" >"$out/predicted"
for ((r = 1; r <= rounds; r++)); do
    while read -r name <&3; do
        "$scratch/on" h0 "$musher" run -q "$out/$name.yaml" --agent "$scratch/agent" --steps "$steps" --data "$PWD/LICENSE" --json >"$out/run.json" 2>"$out/err" </dev/null || die "$name: $(tail -n 3 "$out/err")"
        echo "run $name $(number "$out/run.json" iteration_ns)" >>"$out/measured"
    done 3< <(((r % 2)) && cat "$out/plans" || tac "$out/plans")
    echo "round $r of $rounds: load $(cut -d' ' -f1 /proc/loadavg)"
done
cat "$out/predicted" "$out/measured" | awk "$(cat tools/ranks.awk)"'
    $1 == "plan" { n++; name[n] = $2; at[$2] = n; predicted[n] = $3 }
    $1 == "run" { i = at[$2]; runs[i] = runs[i] " " $3; count[i]++ }
    END {
        printf "%-12s %12s %12s %9s %8s\n", "plan", "predicted", "measured", "error", "spread"
        for (i = 1; i <= n; i++) {
            measured[i] = median(runs[i], count[i])
            error = 100 * (predicted[i] - measured[i]) / measured[i]
            errors = errors " " (error < 0 ? -error : error)
            printf "%-12s %9.1f ms %9.1f ms %+7.1f %% %6.1f %%\n", name[i], predicted[i] / 1e6, measured[i] / 1e6, error, 100 * spread
        }
        printf "%d plans: median error %.1f %%\n", n, median(errors, n)
    }' | tee "$out/table.txt"

#!/bin/bash
# tests/bench/faults.sh - goodput predicted and measured: random fault scripts in runs of a small GPT on emulated devices, whose steps cost
# little CPU time; and the restart of one of 3 million parameters.
# usage: tests/bench/faults.sh [SCRIPTS [STEPS [async]]]     default: 20 scripts, 80 steps, checkpoints while all ranks wait; 8 s a script
# Costs are those of one run with one killed rank and no other fault. Each script is drawn from its number: one to four faults of random kinds at
# random steps and places. Prints a row for each script, and the median error of goodput.
set -eu
count=${1:-20} steps=${2:-80} mode=${3:-sync}
musher=${MUSHER:-build/musher}
scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # checkpoints in memory: a shared disk's syncs vary by a second
trap 'rm -rf "$scratch"' EXIT
export MUSHER_TIMEOUT=3 OPENBLAS_NUM_THREADS=1
# plan FILE WIDTH BLOCKS CUT LAST SLOWDOWN MB/S: two pipelines of two stages on two nodes
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
deterministic: true
replicas:
  - {microbatches: 4, stages: [{layers: [0, $(($4 - 1))], device: a.0}, {layers: [$4, $5], device: a.1}]}
  - {microbatches: 4, stages: [{layers: [0, $(($4 - 1))], device: b.0}, {layers: [$4, $5], device: b.1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: $2, n_layer: $3, n_head: 4, n_positions: 64, vocab_size: 256}
  sequence_length: 24
  global_batch: 8
  precision: fp32
  optimizer: {kind: adamw}
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, slowdown: $6, memory: 1 GiB}]
  nodes: [{name: a, host: localhost, devices: [{type: cpu}, {type: cpu}]}, {name: b, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links:
    - {name: ina, between: [a], bandwidth: 1 GB/s, latency: 10 us}
    - {name: inb, between: [b], bandwidth: 1 GB/s, latency: 10 us}
    - {name: bus, between: [a, b], bandwidth: $7 MB/s, latency: 50 us}
END
}
plan large 224 5 7 13 4 400
plan small 32 2 4 7 20 20
# draw SCRIPT: a fault script
draw() {
    RANDOM=$1
    local devices=(a.0 a.1 b.0 b.1) nodes=(a b) n=$((RANDOM % 4 + 1)) at device
    echo $'version: 1\nfaults:'
    for ((i = 0; i < n; i++)); do
        at=$((RANDOM % (steps - 4) + 2)) device=${devices[RANDOM % 4]}
        case $((RANDOM % 9)) in
        0 | 1) echo "  - {kind: kill, device: $device, at_step: $at}" ;;
        2) echo "  - {kind: kill, device: $device, at: $((RANDOM % 5000 + 500)) ms}" ;;
        3) echo "  - {kind: exit, device: $device, at_step: $at, code: 9}" ;;
        4) echo "  - {kind: stop, device: $device, at_step: $at}" ;;
        5) echo "  - {kind: slow, device: $device, at_step: $at, factor: $((RANDOM % 3 + 2)), steps: $((RANDOM % 8 + 4))}" ;;
        6) echo "  - {kind: link_slow, link: bus, at_step: $at, factor: $((RANDOM % 8 + 2)), steps: $((RANDOM % 8 + 4))}" ;;
        7) echo "  - {kind: disk_full, at_step: $at}" ;;
        8) echo "  - {kind: host_lost, node: ${nodes[RANDOM % 2]}, at_step: $at, back: $((RANDOM % 3 + 1)) s}" ;;
        esac
    done
}
number() { sed -n "s/.*\"$1\": *\([-0-9.][-0-9.e]*\).*/\1/p" "$2" | head -n 1; }
# train PLAN STEPS: with $scratch/faults.yaml; its object in $scratch/run.json
train() {
    rm -rf "$scratch/saved"
    "$musher" run -q "$scratch/$1.yaml" --data LICENSE --steps "$2" --save "$scratch/saved" --save-every 10 --save-mode "$mode" --max-restarts 9 --json --faults "$scratch/faults.yaml" >"$scratch/run.json"
}
for name in large small; do
    n=$([[ $name == large ]] && echo 16 || echo "$steps")
    printf 'version: 1\nfaults:\n  - {kind: kill, device: b.0, at_step: %d}\n' $((n / 2 + 3)) >"$scratch/faults.yaml"
    train $name "$n"
    awk -v name=$name -v step="$(number step_ns "$scratch/run.json")" -v resume="$(number resume_ns "$scratch/run.json")" -v found="$(number detection_ns "$scratch/run.json")" \
        'BEGIN { printf "%s: step %.1f ms; from the death of a rank to the end of the first new step %.3f s, %.3f s of them after detection\n", name, step / 1e6, (resume + found) / 1e9, resume / 1e9 }'
done
cp "$scratch/run.json" "$scratch/costs.json"
printf '%-7s %-44s %19s %15s %13s\n' script faults 'goodput % (error)' restarts 'lost steps'
for ((script = 1; script <= count; script++)); do
    draw "$script" >"$scratch/faults.yaml"
    "$musher" goodput "$scratch/small.yaml" --faults "$scratch/faults.yaml" --steps "$steps" --save-every 10 --max-restarts 9 --measured "$scratch/costs.json" --json >"$scratch/predicted.json"
    train small "$steps"
    kinds=$(sed -n 's/.*kind: \([a-z_]*\).*/\1/p' "$scratch/faults.yaml" | tr '\n' ' ')
    awk -v n="$script" -v kinds="$kinds" -v p="$(number goodput "$scratch/predicted.json")" -v m="$(number goodput "$scratch/run.json")" \
        -v pr="$(number restarts "$scratch/predicted.json")" -v mr="$(number restarts "$scratch/run.json")" \
        -v pl="$(number lost_steps "$scratch/predicted.json")" -v ml="$(number lost_steps "$scratch/run.json")" \
        'BEGIN { printf "%-7d %-44s %5.1f %5.1f (%+5.1f) %7d %7d %6d %6d\n", n, kinds, 100 * p, 100 * m, 100 * (p - m) / m, pr, mr, pl, ml }' | tee -a "$scratch/rows"
done
sed 's/.*(\([^)]*\)).*/\1/' "$scratch/rows" | awk '{ print $1 < 0 ? -$1 : $1 + 0 }' | sort -n | awk '{ x[NR] = $1 } END { printf "median error of goodput %.1f %%, largest %.1f %%\n", (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2, x[NR] }'

#!/bin/bash
# tests/cli/all_reduce.sh - gradient all-reduces by every algorithm of a plan's stage, really run: the losses of a ring to rounding, the same
# losses again, in half precision, in pipelines and buckets, between the nodes of hybrid_shard; over NCCL's stand-in; what the planner
# chooses for small sums over high latency, and for large ones over a slow link between nodes of three.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
steps=4

# plan NAME PRECISION REPLICAS: two nodes of four real host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
replicas:
$3
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 257}
  sequence_length: 24
  global_batch: 12
  precision: $2
  optimizer: {kind: adamw, lr: 1e-3}
  seed: 7
cluster:
  version: 1
  name: two
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes:
    - {name: a, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}, {type: cpu}]}
    - {name: b, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}, {type: cpu}]}
  links: [{name: bus-a, between: [a]}, {name: bus-b, between: [b]}, {name: net, between: [a, b]}]
END
}

# replicas MICROBATCHES SETTINGS DEVICE…: one on each device
replicas() {
    local m=$1 settings=$2 d
    shift 2
    for d; do echo "  - {microbatches: $m, stages: [{layers: [0, 7], device: $d, $settings}]}"; done
}

same() { # NAME PRECISION TOLERANCE REPLICAS: the losses of the ring to rounding, and its own bits when it runs again
    local d
    plan "$1" "$2" "$4"
    losses "$1" $steps >"$scratch/$1.losses" && losses "$1" $steps >"$scratch/$1.again" || { not_ok "$1 runs" "$(tail -n 2 "$scratch/err")"; return; }
    d=$(distance "$scratch/ring-$2.losses" "$scratch/$1.losses")
    [[ $(wc -l <"$scratch/$1.losses") == $steps ]] && within "$d" "$3"
    check "$1, $2: the losses of a ring ($d)" $?
    cmp -s "$scratch/$1.losses" "$scratch/$1.again"
    check "$1, $2: the same bits again" $?
}

four=(a.0 b.0 a.1 b.1) six=(a.0 a.1 a.2 b.0 b.1 b.2)
for precision in fp64 fp16; do
    plan ring-$precision $precision "$(replicas 3 'recompute: false' "${four[@]}")"
    losses ring-$precision $steps >"$scratch/ring-$precision.losses"
done
for w in hierarchical halving-doubling double-tree; do
    same "$w" fp64 1e-12 "$(replicas 3 "all_reduce: $w" "${four[@]}")"
    same "$w-buckets-of-six" fp64 1e-12 "$(replicas 2 "all_reduce: $w, bucket: 8 KiB" "${six[@]}")"
    same "$w-half" fp16 5e-3 "$(replicas 3 "all_reduce: $w, bucket: 8 KiB" "${four[@]}")"
done
for w in halving-doubling double-tree; do
    same "$w-of-three" fp64 1e-12 "$(replicas 4 "all_reduce: $w" a.0 b.0 b.1)"
    same "$w-between-nodes" fp64 1e-12 "$(replicas 3 "all_reduce: $w, zero: 2, hybrid_shard: true" "${four[@]}")"
    same "$w-pipelines" fp64 1e-12 "$(for d in "a.0 b.0" "a.1 b.1" "b.2 a.2"; do
        set -- $d
        echo "  - {microbatches: 4, stages: [{layers: [0, 3], device: $1, all_reduce: $w}, {layers: [4, 7], device: $2, all_reduce: ring, bucket: 8 KiB}]}"
    done)"
done

# Through NCCL (its stand-in): each round is a send and a receive. One sequence a replica, because the stand-in's kernels are slow.
gpus() { # NAME PRECISION ALGORITHM
    plan "$1" "$2" "$(replicas 1 "all_reduce: $3, bucket: 8 KiB" a.0 a.1 b.2 b.3)"
    sed -i -e 's/global_batch: 12/global_batch: 4/' -e 's/{name: cpu, device: host, memory: 1 GiB}/{name: h, device: H100-SXM5, memory: 8 GiB}/' \
        -e 's/{name: a, .*/{name: a, host: localhost, devices: [{type: h, index: 0}, {type: h, index: 1}]}/' \
        -e 's/{name: b, .*/{name: b, host: localhost, devices: [{type: h, index: 2}, {type: h, index: 3}]}/' "$scratch/$1.yaml"
    local by d
    for by in devices host; do
        MUSHER_TRANSPORT=$by run "$1" --steps 2 || return
        cp "$scratch/$1.losses" "$scratch/$by.losses"
    done
    d=$(distance "$scratch/devices.losses" "$scratch/host.losses")
    within "$d" 1e-3
    check "$1, $2: NCCL and the host give the same losses ($d)" $?
}
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    gpus gpus-tree fp32 double-tree
    gpus gpus-halving bf16 halving-doubling
    gpus gpus-hierarchical fp32 hierarchical
    exit $bad
) || bad=1

# chosen NAME ALGORITHM: the plan of the question NAME has it, and with rings it takes at least 5 % longer
chosen() {
    local with without
    "$MUSHER" plan "$scratch/$1-job.yaml" "$scratch/$1.yaml" -o "$scratch/$1-plan.yaml" --json >"$scratch/out" 2>"$scratch/err" &&
        grep -q "all_reduce: $2" "$scratch/$1-plan.yaml"
    check "$1: the planner chooses $2" $?
    sed 's/, all_reduce: [a-z-]*//' "$scratch/$1-plan.yaml" >"$scratch/$1-ring.yaml"
    with=$("$MUSHER" simulate "$scratch/$1-plan.yaml" --json | sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
    without=$("$MUSHER" simulate "$scratch/$1-ring.yaml" --json | sed -n 's/.*"iteration_ns": \([0-9]*\).*/\1/p' | head -n 1)
    ((without * 100 > with * 105))
    check "$1: $2 takes $with ns, rings $without" $?
}
job() { # LAYERS WIDTH HEADS LENGTH WORDS BATCH OPTIMIZER
    cat <<END
version: 1
model: {model_type: gpt2, n_embd: $2, n_layer: $1, n_head: $3, n_positions: $4, vocab_size: $5}
sequence_length: $4
global_batch: $6
precision: bf16
optimizer: {kind: $7, lr: 1e-3}
END
}
job 6 512 8 512 8192 1024 adamw >"$scratch/far-job.yaml"
job 3 2048 16 1024 50257 384 lamb >"$scratch/slow-job.yaml"
{
    printf 'version: 1\nname: far\ndevice_types: [{name: h, device: H100-SXM5, memory: 79 GiB}]\nnodes:\n'
    for i in 0 1 2 3 4 5 6 7; do echo "  - {name: n$i, host: n$i, devices: [{type: h}]}"; done
    printf 'switches: [{name: s}]\nlinks:\n'
    for i in 0 1 2 3 4 5 6 7; do echo "  - {name: l$i, between: [n$i, s], bandwidth: 25 GB/s, latency: 200 us}"; done
} >"$scratch/far.yaml"
cat >"$scratch/slow.yaml" <<END
version: 1
name: slow
device_types: [{name: h, device: A100-SXM4-80, memory: 79 GiB}]
nodes: [{name: a, host: a, devices: [{type: h}, {type: h}, {type: h}]}, {name: b, host: b, devices: [{type: h}, {type: h}, {type: h}]}]
links:
  - {name: bus-a, between: [a], bandwidth: 200 GB/s, latency: 5 us}
  - {name: bus-b, between: [b], bandwidth: 200 GB/s, latency: 5 us}
  - {name: net, between: [a, b], bandwidth: 3 GB/s, latency: 20 us}
END
chosen far halving-doubling
chosen slow hierarchical

# refused NAME MESSAGE COMMAND…: exit 3
refused() {
    local name=$1 message=$2
    shift 2
    "$@" >"$scratch/out" 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q "$message" "$scratch/err"
    check "refused: $name" $?
}
plan alone fp64 "$(replicas 6 'all_reduce: hierarchical' a.0 b.0)"
refused 'one device a node' 'all_reduce: no gradient all-reduce of the plan can be hierarchical' "$MUSHER" run "$scratch/alone.yaml" --data "$text" --steps 2
plan typo fp64 "$(replicas 6 'all_reduce: trees' a.0 b.0)"
refused 'no such algorithm' 'halving-doubling' "$MUSHER" show "$scratch/typo.yaml"
exit $bad

#!/bin/bash
# tests/cli/hybrid_shard.sh - ZeRO inside nodes (core/lower/hybrid.h), really run: the losses of one device at every level, on nodes of
# unequal size, in pipelines, chunks and sharded stages, with loss scaling; checkpoints that plans with other shards resume; NCCL's form.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
steps=20

# plan NAME PRECISION REPLICAS [MODEL]: two nodes of four real host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: ${microbatch:-1}
replicas:
$3
job:
  version: 1
  model: {model_type: ${4:-gpt2}, $([[ ${4:-gpt2} == gpt2 ]] && echo "$gpt" || echo "$llama")}
  sequence_length: 24
  global_batch: 12
  precision: $2
  optimizer: {kind: adamw, lr: 1e-3, max_grad_norm: 0.5}
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
gpt='n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 257'
llama='hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false'

# replicas MICROBATCHES SETTINGS DEVICE…: one on each device
replicas() {
    local m=$1 settings=$2 d
    shift 2
    for d; do echo "  - {microbatches: $m, stages: [{layers: [0, 7], device: $d, $settings}]}"; done
}

equal() { # NAME PRECISION TOLERANCE REPLICAS [MODEL]: trains like one device
    local d
    plan "$1" "$2" "$4" "${5:-gpt2}"
    run "$1" --steps $steps || return
    d=$(distance "$scratch/one-$2${5:-}.losses" "$scratch/$1.losses")
    within "$d" "$3" && ok "$1, $2${5:+, $5}: trains like one device ($d)" ||
        not_ok "$1, $2${5:+, $5}: trains like one device" "losses differ by $d, more than $3"
}

for precision in fp64 fp16; do
    plan one-$precision $precision "$(replicas 12 'recompute: false' a.0)"
    run one-$precision --steps $steps
done
plan one-fp64llama fp64 "$(replicas 12 'recompute: false' a.0)" llama
run one-fp64llama --steps $steps

inside='hybrid_shard: true'
for level in 1 2 3; do
    equal level-$level fp64 1e-12 "$(replicas 3 "zero: $level, $inside" a.0 b.1 a.2 b.0)"
    equal three-parts-$level fp64 1e-12 "$(replicas 2 "zero: $level, $inside, bucket: 8 KiB" a.0 b.1 a.3 a.1 b.0 a.2)"
done
equal untied-3 fp64 1e-12 "$(replicas 3 "zero: 3, $inside, recompute: blocks" a.0 a.1 b.0 b.1)" llama
equal uneven-shares fp64 1e-12 "$(replicas 5 "zero: 1, $inside" a.0 a.1; replicas 1 "zero: 1, $inside" b.0 b.1)"
equal pipelines fp64 1e-12 "$(for d in "a.0 b.0" "a.1 b.1" "b.2 a.2" "b.3 a.3"; do
    set -- $d
    echo "  - {microbatches: 3, stages: [{layers: [0, 3], device: $1, zero: 3, $inside}, {layers: [4, 7], device: $2, zero: 1, $inside, bucket: 8 KiB}]}"
done)"
equal chunks fp64 1e-12 "$(for d in "a.0 a.2" "a.1 a.3" "b.0 b.2" "b.1 b.3"; do
    set -- $d
    echo "  - {microbatches: 3, schedule: zb-v, stages: [{layers: [0, 1], device: $1, zero: 2, $inside}, {layers: [2, 3], device: $2, zero: 1, $inside}, {layers: [4, 5], device: $2, zero: 1, $inside}, {layers: [6, 7], device: $1, zero: 2, $inside}]}"
done)"
microbatch=4 equal sequences fp64 1e-12 "  - {microbatches: 3, stages: [{layers: [0, 7], devices: [a.0, a.1, b.0, b.1], sequences: [1, 1, 1, 1], zero: 2, $inside}]}"
split='        sharding:
          operators:
            - {match: "h.*.attn.*", shard: heads}
            - {match: "h.*.mlp.*", shard: features}
            - {match: "*", shard: none}'
equal sharded fp64 1e-12 "$(for d in "a.0, a.1" "a.2, a.3" "b.0, b.1" "b.2, b.3"; do
    printf '  - microbatches: 3\n    stages:\n      - layers: [0, 7]\n        devices: [%s]\n        zero: 1\n        %s\n%s\n' "$d" "$inside" "$split"
done)"
# Half precision rounds in another order of additions.
equal half-2 fp16 5e-3 "$(replicas 3 "zero: 2, $inside" a.0 a.1 b.0 b.1)"

# Checkpoints have whole tensors, whichever shards wrote them.
plan plain-3 fp64 "$(replicas 2 'zero: 3' a.0 a.1 a.2 a.3 b.0 b.1)"
joins() { # FROM TO
    local d
    rm -rf "$scratch/saved"
    run "$1" --steps 8 --save "$scratch/saved" || return
    cp "$scratch/$1.losses" "$scratch/joined.losses"
    run "$2" --steps $((steps - 8)) --resume "$scratch/saved" || return
    cat "$scratch/$2.losses" >>"$scratch/joined.losses"
    d=$(distance "$scratch/one-fp64.losses" "$scratch/joined.losses")
    within "$d" 1e-12 && ok "$2 resumes the run of $1 ($d)" || not_ok "$2 resumes the run of $1" "losses differ by $d"
}
joins three-parts-3 plain-3
joins plain-3 level-1
joins level-2 three-parts-3

# Through NCCL (its stand-in): a communicator for each part and one for each shard; the same losses as through the host.
gpus() { # NAME PRECISION LEVEL
    plan "$1" "$2" "$(replicas 3 "zero: $3, $inside" a.0 a.1 b.2 b.3)"
    sed -i -e 's/{name: cpu, device: host, memory: 1 GiB}/{name: h, device: H100-SXM5, memory: 8 GiB}/' \
        -e 's/{name: a, .*/{name: a, host: localhost, devices: [{type: h, index: 0}, {type: h, index: 1}]}/' \
        -e 's/{name: b, .*/{name: b, host: localhost, devices: [{type: h, index: 2}, {type: h, index: 3}]}/' "$scratch/$1.yaml"
    local by d
    for by in devices host; do
        MUSHER_TRANSPORT=$by run "$1" --steps 6 --verbose || return
        cp "$scratch/$1.losses" "$scratch/$by.losses" && cp "$scratch/$1.err" "$scratch/$by.err"
    done
    d=$(distance "$scratch/devices.losses" "$scratch/host.losses")
    grep -q "collectives: 0, 0, [1-9]" "$scratch/devices.err" && within "$d" 1e-3
    check "$1, $2: NCCL and the host give the same losses ($d)" $?
}
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    gpus gpus-1 fp32 1
    gpus gpus-2 fp16 2
    gpus gpus-3 bf16 3
    exit $bad
) || bad=1

# refused NAME MESSAGE COMMAND…: exit 3
refused() {
    local name=$1 message=$2
    shift 2
    "$@" >"$scratch/out" 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q "$message" "$scratch/err"
    check "refused: $name" $?
}
plan alone fp64 "$(replicas 6 "zero: 1, $inside" a.0 b.0)"
refused 'one copy a node' 'hybrid_shard: copies of these layers are 1 on a, 1 on b' "$MUSHER" run "$scratch/alone.yaml" --data "$text" --steps 2
plan without fp64 "$(replicas 6 "$inside" a.0 a.1)"
refused 'without zero' 'hybrid_shard: needs zero: 1, 2 or 3' "$MUSHER" show "$scratch/without.yaml"
plan shown fp64 "$(replicas 2 "zero: 3, $inside" a.0 a.1 a.2 a.3 b.0 b.1)"
sed -i 's/between: \[[ab, ]*\]/&, bandwidth: 1 GB\/s, latency: 1 us/g' "$scratch/shown.yaml" "$scratch/one-fp64.yaml"
"$MUSHER" show "$scratch/shown.yaml" >"$scratch/out" 2>"$scratch/err" && grep -q 'hybrid_shard: the 2 GPUs of a shard group hold everything once; gradients are all-reduced between 3 groups' "$scratch/out"
check "show has the size and the number of shard groups" $?
"$MUSHER" show "$scratch/shown.yaml" --json >"$scratch/out" 2>"$scratch/err" && grep -q '"devices": 2, "groups": 3' "$scratch/out"
check "and so in JSON" $?
"$MUSHER" show "$scratch/one-fp64.yaml" >"$scratch/out" 2>"$scratch/err" && ! grep -q hybrid_shard "$scratch/out"
check "and nothing of other plans" $?
exit $bad

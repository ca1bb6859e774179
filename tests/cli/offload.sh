#!/bin/bash
# tests/cli/offload.sh - an optimizer's state in host memory (`offload: optimizer` of a device type), really run on hosts and on the CUDA
# stand-in: the same bits as in the device's memory, checkpoints of either resumed by the other, what it excludes; planned.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME PRECISION TYPE [HEAD]: replicas on n.0 and n.1, the second one with its share of ZeRO
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: offload
microbatch: 1
${4:-}
replicas:
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0, zero: 1}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1, zero: 1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 257}
  sequence_length: 24
  global_batch: 6
  precision: $2
  optimizer: {kind: adamw, lr: 1e-3}
  seed: 7
cluster:
  version: 1
  name: two
  device_types: [{name: d, $3}]
  nodes: [{name: n, host: localhost, devices: [{type: d, index: 0}, {type: d, index: 1}]}]
  links: [{name: bus, between: [n], bandwidth: 1 GB/s, latency: 20 us}]
END
}
same() { # NAME WITH WITHOUT: the losses, and those of either's checkpoint resumed by the other
    losses "$2" 5 >"$scratch/a" && losses "$3" 5 >"$scratch/b" && [[ $(wc -l <"$scratch/a") == 5 ]] && cmp -s "$scratch/a" "$scratch/b"
    check "$1: the same losses as in the device's memory" $?
    rm -rf "$scratch/saved"
    losses "$2" 3 --save "$scratch/saved" >"$scratch/a" && losses "$3" 2 --resume "$scratch/saved" >>"$scratch/a" && cmp -s "$scratch/a" "$scratch/b"
    check "$1: its checkpoint is resumed without" $?
    rm -rf "$scratch/saved"
    losses "$3" 3 --save "$scratch/saved" >"$scratch/a" && losses "$2" 2 --resume "$scratch/saved" >>"$scratch/a" && cmp -s "$scratch/a" "$scratch/b"
    check "$1: and the other way round" $?
}
for precision in fp32 bf16; do
    plan with-$precision $precision "device: host, memory: 1 GiB, offload: optimizer"
    plan without-$precision $precision "device: host, memory: 1 GiB"
    same "hosts, $precision" with-$precision without-$precision
done
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=2 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    for precision in fp32 bf16; do
        plan with $precision "device: H100-SXM5, memory: 8 GiB, offload: optimizer"
        plan without $precision "device: H100-SXM5, memory: 8 GiB"
        same "GPUs, $precision" with without
    done
    exit $bad
) || bad=1

# ---- planned where the state does not fit
cat >"$scratch/llama.yaml" <<END
version: 1
model: $root/tests/data/models/llama-3.1-8b.json
sequence_length: 2048
global_batch: 16
precision: bf16
END
cat >"$scratch/small.yaml" <<END
version: 1
name: cards
device_types: [{name: card, device: RTX-4090}]
nodes: [{name: n, devices: {type: card, count: 4}}]
links: [{name: bus, between: [n], bandwidth: 20 GB/s, latency: 5 us}]
END
says "without a plan, the remedy is printed" 4 "--offload TYPE (offload: optimizer in the cluster file) would keep the optimizer's state in host memory" "$MUSHER" plan "$scratch/llama.yaml" "$scratch/small.yaml" -o "$scratch/none.yaml"
says "and with it there is a plan" 0 "found" "$MUSHER" plan "$scratch/llama.yaml" "$scratch/small.yaml" --offload card -o "$scratch/found.yaml"
says "an unknown type is refused" 3 "no device type 'cart' in cluster 'cards'; did you mean 'card'? known: card; \`all\` means every type" "$MUSHER" plan "$scratch/llama.yaml" "$scratch/small.yaml" --offload cart -o "$scratch/none.yaml"
says "also without a near name" 3 "no device type 'xyz' in cluster 'cards'; known: card; \`all\`" "$MUSHER" plan "$scratch/llama.yaml" "$scratch/small.yaml" --offload xyz -o "$scratch/none.yaml"
says "whatif compares" 0 "offload d" "$MUSHER" whatif "$scratch/without-bf16.yaml" --offload d
says "which holds the key" 0 "offload: optimizer" cat "$scratch/found.yaml"
says "the memory table tells where the state is" 0 "in host memory" "$MUSHER" memory "$scratch/found.yaml"

# ---- refused
plan bad fp32 "device: host, memory: 1 GiB, offload: weights"
says "another part of the memory is refused" 3 "only the optimizer's state and activations can be offloaded" "$MUSHER" simulate "$scratch/bad.yaml"
plan bad fp32 "device: host, memory: 1 GiB, offload: optimizer" "local_sgd: {every: 2}"
sed -i 's/, zero: 1//' "$scratch/bad.yaml"
says "local_sgd is excluded" 3 "replicas[0].stages[0].device: type 'd' has offload: optimizer, which cannot be combined with local_sgd" "$MUSHER" simulate "$scratch/bad.yaml"
plan idle fp32 "device: host, memory: 1 GiB, offload: optimizer"
sed -i 's/, zero: 1//; s/kind: adamw, lr: 1e-3/kind: lamb/' "$scratch/idle.yaml"
says "lamb is excluded" 3 "replicas[0].stages[0].device: type 'd' has offload: optimizer, which cannot be combined with lamb" "$MUSHER" show "$scratch/idle.yaml"
sed -i 's/kind: lamb/kind: sgd, lr: 0.1/' "$scratch/idle.yaml"
for verb in show simulate; do
    says "$verb states that sgd has no state to offload" 0 "offload  optimizer: no effect, because sgd in fp32 has no state" "$MUSHER" $verb "$scratch/idle.yaml"
    [[ $(grep -c 'no effect' "$scratch/out") == 1 ]]
    check "once" $?
done
sed 's/, offload: optimizer//' "$scratch/idle.yaml" >"$scratch/plain.yaml"
says "and whatif" 0 "offload: no effect, because sgd in fp32 has no state" "$MUSHER" whatif "$scratch/plain.yaml" --offload d
sed 's/precision: fp32/precision: bf16/' "$scratch/idle.yaml" >"$scratch/half.yaml"
"$MUSHER" show "$scratch/half.yaml" >"$scratch/out" 2>"$scratch/err" && ! grep -q 'no effect' "$scratch/out"
check "but in bf16 it has fp32 masters" $?
plan codes fp32 "device: host, memory: 1 GiB, offload: optimizer" "compression: {gradients: {kind: top-k, fraction: 0.1}}"
plan resident fp32 "device: host, memory: 1 GiB" "compression: {gradients: {kind: top-k, fraction: 0.1}}"
sed -i 's/, zero: 1//' "$scratch/codes.yaml" "$scratch/resident.yaml"
same "with codes, whose feedback stays on the device" codes resident
exit $bad

#!/bin/bash
# tests/cli/offload_activations.sh - activations that wait in host memory (`offload: activations` of a stage), really run on hosts, emulated
# devices and the CUDA stand-in: the same bits as on the device; copies in the program, the trace and the prediction; planned beside
# recomputation; what is refused.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME PRECISION TYPE STAGE1 STAGE2 [HEAD]: a pipeline of two stages on n.0 and n.1 with these settings
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: offload
microbatch: 1
replicas:
  - microbatches: 6
${6:-}
    stages:
      - {layers: [0, 6], device: n.0$4}
      - {layers: [7, 11], device: n.1$5}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 4, n_head: 4, n_positions: 32, vocab_size: 257}
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
same() { # NAME WITH WITHOUT: the losses
    losses "$2" 4 >"$scratch/a" && losses "$3" 4 >"$scratch/b" && [[ $(wc -l <"$scratch/a") == 4 ]] && cmp -s "$scratch/a" "$scratch/b"
    check "$1: the same losses as without" $?
}
off=", offload: activations"
pairs() { # NAME PRECISION TYPE: several orders, each with and without
    plan with "$2" "$3" ", warmup: 4$off" ", warmup: 3$off"
    plan without "$2" "$3" ", warmup: 4" ", warmup: 3"
    same "$1, 1F1B" with without
    plan with "$2" "$3" ", warmup: 4$off, recompute: blocks" "$off"
    same "$1, beside recomputed blocks" with without
    plan with "$2" "$3" "$off" "$off" "    schedule: zb-h1"
    plan without "$2" "$3" "" "" "    schedule: zb-h1"
    same "$1, separate I and W" with without
}
pairs "hosts, fp32" fp32 "device: host, memory: 1 GiB"
pairs "hosts, bf16" bf16 "device: host, memory: 1 GiB"
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=2 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    pairs "GPUs, bf16" bf16 "device: H100-SXM5, memory: 8 GiB"
    plan with fp32 "device: H100-SXM5, memory: 8 GiB" ", warmup: 4$off" ", warmup: 3$off"
    says "a traced run on GPUs" 0 "" "$MUSHER" run -q "$scratch/with.yaml" --data "$text" --steps 3 --trace "$scratch/gpu.trace"
    "$MUSHER" lower "$scratch/with.yaml" -o "$scratch/program" >"$scratch/out" 2>&1
    copies=$((3 * 6 * $(grep -o ' OFFLOAD ' "$scratch/program" | wc -l)))
    [[ $(grep -c '"kind":"offload"' "$scratch/gpu.trace") == "$copies" && $(grep -c '"kind":"fetch"' "$scratch/gpu.trace") == "$copies" && $copies -gt 54 ]]
    check "has a span for each copy" $?
    exit $bad
) || bad=1

# ---- emulated devices: the copies take the time that host_bandwidth states, in the run as in the simulation
plan emulated fp32 "device: host, slowdown: 20, memory: 64 MiB, host_bandwidth: 20 MB/s" ", warmup: 4$off" ", warmup: 3$off"
says "emulated devices run" 0 "" "$MUSHER" run -q "$scratch/emulated.yaml" --data "$text" --steps 4 --trace "$scratch/run.trace"
says "and are simulated" 0 "" "$MUSHER" simulate "$scratch/emulated.yaml" --steps 4 --trace "$scratch/sim.trace"
lengths() { # TRACE KIND: of all such spans
    grep "\"kind\":\"$2\"" "$1" | sed 's/.*"begin_ns":\([0-9]*\),"end_ns":\([0-9]*\).*/\1 \2/' | awk '{ print $2 - $1 }' | sort | uniq -c
}
for kind in offload fetch; do
    lengths "$scratch/run.trace" $kind >"$scratch/a"
    lengths "$scratch/sim.trace" $kind >"$scratch/b"
    [[ -s $scratch/a ]] && cmp -s "$scratch/a" "$scratch/b"
    check "every $kind takes as long as predicted" $?
done
"$MUSHER" lower "$scratch/emulated.yaml" -o "$scratch/program" >"$scratch/out" 2>&1 && grep -q '^offload ' "$scratch/program" && grep -q ' OFFLOAD 2 ' "$scratch/program" && grep -q ' FETCH 2 ' "$scratch/program"
check "the program names the copies" $?
says "memory tells where activations wait" 0 "host memory has 4 microbatches" "$MUSHER" memory "$scratch/emulated.yaml"
plan slow fp32 "device: host, slowdown: 20, memory: 64 MiB, host_bandwidth: 2 MB/s" ", warmup: 4$off" ", warmup: 3$off"
says "the critical path is made of copies" 0 "offload" "$MUSHER" simulate "$scratch/slow.yaml" --explain

# ---- planned: recomputation, or activations in host memory where the cluster file or the option allows it
cat >"$scratch/job.yaml" <<END
version: 1
model: $root/tests/data/models/llama-3.1-8b.json
sequence_length: 4096
global_batch: 64
precision: bf16
END
cat >"$scratch/cards.yaml" <<END
version: 1
name: cards
device_types: [{name: card, device: RTX-4090}]
nodes: [{name: a, devices: {type: card, count: 4}}, {name: b, devices: {type: card, count: 4}}]
links:
  - {name: pcie-a, between: [a], bandwidth: 20 GB/s, latency: 5 us}
  - {name: pcie-b, between: [b], bandwidth: 20 GB/s, latency: 5 us}
  - {name: lan, between: [a, b], bandwidth: 12 GB/s, latency: 20 us}
END
says "a search may offload" 0 "activations offloaded" "$MUSHER" plan "$scratch/job.yaml" "$scratch/cards.yaml" --offload optimizer --offload activations -o "$scratch/moved.yaml" --evaluations 1000
has "the plan states it" moved.yaml "offload: activations"
has "and the cluster what is allowed" moved.yaml "offload: [optimizer, activations]"
says "an unknown part is refused" 3 "behind a type \`optimizer\` or \`activations\`" "$MUSHER" plan "$scratch/job.yaml" "$scratch/cards.yaml" --offload card:weights -o "$scratch/none.yaml"

# ---- refused
plan bad fp32 "device: host, memory: 1 GiB" "$off, recompute: true" ""
says "nothing waits with recompute: true" 3 "replicas[0].stages[0].offload: activations: with recompute: true none waits for the backward" "$MUSHER" simulate "$scratch/bad.yaml"
plan bad fp32 "device: host, memory: 1 GiB" ", offload: weights" ""
says "another value is refused" 3 "offload" "$MUSHER" simulate "$scratch/bad.yaml"
plan bad fp32 "device: host, slowdown: 2, memory: 1 GiB" "$off" ""
says "an emulated device needs its bandwidth" 3 "needs the bandwidth of copies to host memory" "$MUSHER" simulate "$scratch/bad.yaml"
plan bad fp32 "device: host, memory: 1 GiB" "$off" ""
says "and so does a type without PCIe" 3 "state host_bandwidth" "$MUSHER" simulate "$scratch/bad.yaml"
exit $bad

#!/bin/bash
# tests/cli/regroup.sh - plans whose stages are on several devices, and unused devices, from the command line.
set -u
. tests/cli/common.inc
small_job > "$scratch/job.yaml"
cat > "$scratch/far.yaml" << 'END'
version: 1
name: far
device_types: [{name: fast, device: host, slowdown: 2, memory: 64 MiB}, {name: slow, device: host, slowdown: 60, memory: 64 MiB}]
nodes: [{name: a, host: localhost, devices: [{type: fast}]}, {name: b, host: localhost, devices: [{type: slow}]}]
links: [{name: lan, between: [a, b], bandwidth: 1 MB/s, latency: 30 ms}]
END
says "an unused slow device is named" 0 "unused: b.0: no faster plan with it was found" \
    "$MUSHER" plan "$scratch/job.yaml" "$scratch/far.yaml" -o "$scratch/plan.yaml"
says "in JSON" 0 '"idle": [' "$MUSHER" plan "$scratch/job.yaml" "$scratch/far.yaml" -o "$scratch/plan.yaml" --json
has "by its name" out '"b.0"'
"$MUSHER" plan examples/job.yaml examples/team.yaml -o "$scratch/plan.yaml" > "$scratch/out"
grep -q idle: "$scratch/out" && not_ok "a team of which all work" "$(cat "$scratch/out")" || ok "a team of which all work"

# Two equal GPUs on a fast bus and few microbatches: a stage on both is faster than one GPU after the other.
cat > "$scratch/pair.yaml" << 'END'
version: 1
name: pair
device_types: [{name: gpu, device: A100-SXM4-40}, {name: old, device: V100-SXM2-16}]
nodes: [{name: a, devices: {type: gpu, count: 2}}, {name: b, devices: {type: old, count: 1}}]
links:
  - {name: bus, between: [a], bandwidth: 250 GB/s, latency: 5 us}
  - {name: lan, between: [a, b], bandwidth: 1 GB/s, latency: 50 us}
END
cat > "$scratch/few.yaml" << 'END'
version: 1
model: {model_type: gpt2, n_embd: 1024, n_layer: 4, n_head: 16, n_positions: 1024, vocab_size: 8192}
sequence_length: 1024
global_batch: 8
microbatch: 8
precision: fp16
END
says "a stage on two GPUs" 0 "a.0-1 (batch " "$MUSHER" plan "$scratch/few.yaml" "$scratch/pair.yaml" --no-sharding -o "$scratch/one.yaml"
"$MUSHER" plan "$scratch/few.yaml" "$scratch/pair.yaml" --no-sharding -o "$scratch/two.yaml" > /dev/null
cmp -s "$scratch/one.yaml" "$scratch/two.yaml" && ok "twice the same" || not_ok "twice the same" "differ"
says "it is simulated as planned" 0 "iteration" "$MUSHER" simulate "$scratch/one.yaml"
exit $bad

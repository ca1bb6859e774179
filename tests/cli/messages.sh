#!/bin/bash
# tests/cli/messages.sh - compression of messages between stages, and of what crosses nodes only: losses equal to those without, or near
# them; bytes, simulated and run; resumed runs; settings without effect; what is refused.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME HEAD REPLICAS [PRECISION] [OPTIMIZER]: four real host devices, on two nodes a and b
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
$2
replicas:
$3
$(four_hosts "${4:-fp32}" "${5:-adamw, lr: 1e-3}" | sed '/nodes: /,$d')
  nodes: [{name: a, host: localhost, devices: [{type: cpu}, {type: cpu}]}, {name: b, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links: [{name: bus-a, between: [a], bandwidth: 1 GB/s, latency: 10 us}, {name: bus-b, between: [b], bandwidth: 1 GB/s, latency: 10 us}, {name: net, between: [a, b], bandwidth: 100 MB/s, latency: 50 us}]
END
}
# bytes TRACE KIND: what all devices send in spans of the kind in the first step
bytes() { grep "\"kind\":\"$2\"" "$1" | grep '"step":0,' | sed 's/.*"bytes":\([0-9]*\).*/\1/' | awk '{ n += $1 } END { print n + 0 }'; }
# traced NAME KIND: bytes of one simulated step and of one that is run
traced() {
    "$MUSHER" simulate -q "$scratch/$1.yaml" --trace "$scratch/sim.trace" >/dev/null 2>"$scratch/err" &&
        "$MUSHER" run -q "$scratch/$1.yaml" --data "$text" --steps 1 --trace "$scratch/run.trace" >/dev/null 2>"$scratch/err" &&
        echo "$(bytes "$scratch/sim.trace" "$2") $(bytes "$scratch/run.trace" "$2")"
}

# --- codes of all elements are the messages themselves, to the bit ---

split='        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}'
declare -A shapes=(
    [pipelines]='  - {microbatches: 5, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: b.0}]}
  - {microbatches: 3, stages: [{layers: [0, 5], device: a.1, recompute: true}, {layers: [6, 7], device: b.1}]}'
    [chunks]='  - {microbatches: 8, schedule: interleaved, stages: [{layers: [0, 1], device: a.0}, {layers: [2, 3], device: b.0}, {layers: [4, 5], device: a.0}, {layers: [6, 7], device: b.0}]}'
    [pieces]='  - {microbatches: 4, stages: [{layers: [0, 2], devices: [a.0, a.1], sequences: [1, 1]}, {layers: [3, 6], device: b.0}, {layers: [7, 7], device: b.1}]}'
    [sharded]="  - microbatches: 8
    stages:
      - layers: [0, 3]
        devices: [a.0, a.1]
$split
      - layers: [4, 7]
        devices: [b.0, b.1]
$split")
all='compression: {pipeline: {forward: {kind: top-k, fraction: 1}, backward: {kind: random-k, fraction: 1, block: 50}}}'
for name in pipelines chunks pieces sharded; do
    plan whole '' "${shapes[$name]}" fp64 'sgd, lr: 0.1'
    plan all "$all" "${shapes[$name]}" fp64 'sgd, lr: 0.1'
    [[ $name == pieces ]] && sed -i 's/^microbatch: 1/microbatch: 2/' "$scratch/whole.yaml" "$scratch/all.yaml"
    losses whole >"$scratch/whole" && losses all >"$scratch/all" && cmp -s "$scratch/whole" "$scratch/all" && [[ $(wc -l <"$scratch/all") == 8 ]]
    check "all elements of messages are the messages: $name" $?
done

# --- losses near those without; bytes of one message; a resumed run ---

one='  - {microbatches: 8, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: b.0}]}'
plan whole '' "$one"
losses whole >"$scratch/whole"
# one message of 24 positions by 32 numbers, 768, in each direction, for 8 microbatches
while IFS='|' read -r kind forward backward limit; do
    plan code "compression: {pipeline: $kind}" "$one"
    losses code >"$scratch/code" && ! cmp -s "$scratch/whole" "$scratch/code" && within "$(distance "$scratch/whole" "$scratch/code")" "$limit"
    check "losses within $limit of those without: pipeline: $kind" $?
    n=$((8 * 4 * (forward + backward)))
    [[ $(traced code send) == "$n $n" ]]
    check "$n bytes a step, simulated and run: pipeline: $kind" $?
done <<'END'
bf16|384|384|1e-3
fp16|384|384|1e-4
{forward: int8, backward: {kind: fp8-e5m2, block: 64, rounding: stochastic}}|3 * 65|12 * 17|0.01
{backward: {kind: int8, block: 768}}|768|193|0.01
{forward: {kind: fp8-e4m3, block: 32}}|24 * 9|768|0.01
END
plan code 'compression: {pipeline: {forward: int8, backward: {kind: int8, rounding: stochastic}}}' "$one"
losses code 6 >"$scratch/six" && losses code 2 --save "$scratch/saved" >"$scratch/two" && losses code 4 --resume "$scratch/saved" >"$scratch/four"
cmp -s "$scratch/six" <(cat "$scratch/two" "$scratch/four")
check "a resumed run is the undisturbed one to the bit" $?
for precision in bf16 fp16; do
    plan whole '' "$one" $precision
    plan code 'compression: {pipeline: fp8-e4m3}' "$one" $precision
    losses whole >"$scratch/half" && losses code >"$scratch/code" && ! cmp -s "$scratch/half" "$scratch/code" && within "$(distance "$scratch/half" "$scratch/code")" 0.02
    check "8-bit floats between stages of a $precision job" $?
done

# GPUs of the stand-in, and one GPU beside a host
plan whole 'compression: {pipeline: {forward: {kind: fp8-e4m3, rounding: stochastic}, backward: bf16}}' "$one"
losses whole >"$scratch/hosts"
for second in h cpu; do
    sed "s/device_types: .*/device_types: [{name: h, device: H100-SXM5, memory: 30 GiB}, {name: cpu, device: host, memory: 1 GiB}]/; s/name: a, host: localhost, devices: \[{type: cpu}, {type: cpu}\]/name: a, host: localhost, devices: [{type: h}]/; s/name: b, host: localhost, devices: \[{type: cpu}, {type: cpu}\]/name: b, host: localhost, devices: [{type: $second}]/; s/{name: bus-.*latency: 10 us}, {name: net/{name: net/" \
        "$scratch/whole.yaml" >"$scratch/gpu.yaml"
    STANDIN_DEVICES=1 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=80000000000 MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2 \
        losses gpu 4 >"$scratch/gpu" && [[ $(wc -l <"$scratch/gpu") == 4 ]] && within "$(distance <(head -4 "$scratch/hosts") "$scratch/gpu")" 1e-3
    check "codes between a GPU and a $second: the losses of hosts within 1e-3" $?
done

# --- between nodes only ---

row='  - {microbatches: 8, stages: [{layers: [0, 1], device: a.0}, {layers: [2, 3], device: a.1}, {layers: [4, 5], device: b.0}, {layers: [6, 7], device: b.1}]}'
plan code 'compression: {pipeline: {kind: int8, between: nodes}}' "$row"
n=$((8 * 4 * 2 * (768 + 195 + 768)))
[[ $(traced code send) == "$n $n" ]]
check "$n bytes a step: of three messages the one between nodes is int8" $?

four() { for d in a.0 a.1 b.0 b.1; do echo "  - {microbatches: 2, stages: [{layers: [0, 7], device: $d, hybrid_shard: true, zero: $1}]}"; done; }
for zero in 1 2 3; do
    plan whole '' "$(four $zero)"
    plan all 'compression: {gradients: {kind: top-k, fraction: 1, feedback: none, between: nodes}}' "$(four $zero)"
    losses whole >"$scratch/whole" && losses all >"$scratch/all" && within "$(distance "$scratch/whole" "$scratch/all")" 1e-6
    check "all elements between nodes are the sum: hybrid_shard, zero: $zero" $?
    for kind in int8 fp8-e4m3; do
        plan code "compression: {gradients: {kind: $kind, between: nodes}}" "$(four $zero)"
        losses code >"$scratch/code" && ! cmp -s "$scratch/whole" "$scratch/code" && within "$(distance "$scratch/whole" "$scratch/code")" 1e-3
        check "$kind between nodes: losses within 1e-3, zero: $zero" $?
    done
    read -r plain _ < <(traced whole reduce)
    read -r sim run < <(traced code reduce)
    # each of two nodes' two shards: a quarter and a scale for 256 in place of a whole number
    ((sim == run && sim < plain))
    check "bytes of sums, simulated and run: $run of $plain, zero: $zero" $?
done
plan code 'compression: {gradients: {kind: int8, between: nodes}}' "$(four 2)"
losses code 6 >"$scratch/six" && losses code 2 --save "$scratch/saved2" >"$scratch/two" && losses code 4 --resume "$scratch/saved2" >"$scratch/four"
cmp -s "$scratch/six" <(cat "$scratch/two" "$scratch/four")
check "and resumed" $?
plan code 'compression: {gradients: {kind: int8, between: nodes}}' "$(four 1)" fp16
plan whole '' "$(four 1)" fp16
losses whole >"$scratch/half" && losses code >"$scratch/code" && within "$(distance "$scratch/half" "$scratch/code")" 5e-3
check "and with a loss scale" $?
plan whole '' "$(four 1)"
plan half 'compression: {gradients: {kind: bf16, between: nodes}}' "$(four 1)"
plan full 'compression: {gradients: bf16}' "$(four 1)"
read -r plain _ < <(traced whole reduce)
read -r some run < <(traced half reduce)
read -r less _ < <(traced full reduce)
((some == run && less < some && some < plain))
check "bf16 between nodes: $less, $some, $plain bytes" $?

# --- no effect ---

# idle PATTERN HEAD REPLICAS [PRECISION]
idle() {
    plan idle "$2" "$3" "${4:-fp32}"
    "$MUSHER" show "$scratch/idle.yaml" 2>"$scratch/err" | grep -q "no effect, because $1" && "$MUSHER" show "$scratch/idle.yaml" --json | tr -d ' \n' | grep -q '"compression":{[^}]*"equivalent":true}'
    check "no effect: $1" $?
}
idle 'messages of these sums have this type' 'compression: {gradients: bf16}' "$(four 1)" bf16
idle 'these messages have 16 bits' 'compression: {pipeline: bf16}' "$one" fp16
idle 'no two devices add gradients' 'compression: {gradients: int8}' "$one"
idle 'no two devices add gradients' $'local_sgd: {every: 2}\ncompression: {gradients: int8}' "${shapes[pipelines]}"
idle 'no message between stages crosses devices' 'compression: {pipeline: int8}' "$(for d in a.0 b.1; do echo "  - {microbatches: 4, stages: [{layers: [0, 7], device: $d}]}"; done)"
idle 'no message between stages crosses nodes' 'compression: {pipeline: {kind: int8, between: nodes}}' '  - {microbatches: 8, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: a.1}]}'
plan code 'compression: {pipeline: {forward: int8, backward: {kind: bf16, between: nodes}}}' "$one"
"$MUSHER" show "$scratch/code.yaml" >"$scratch/out" 2>"$scratch/err" && grep -q 'compression  activations sent as int8 with a scale for 256: other training' "$scratch/out" &&
    grep -q 'compression  gradients of activations sent as bf16 between nodes: other training' "$scratch/out"
check "show states both directions" $?

# refused PATTERN HEAD REPLICAS [PRECISION]
refused() {
    plan bad "$2" "$3" "${4:-fp32}"
    "$MUSHER" simulate -q "$scratch/bad.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused "unknown key 'forwards'.*did you mean 'forward'" 'compression: {pipeline: {forwards: int8}}' "$one"
refused 'messages of pipelines have none' 'compression: {pipeline: {kind: int8, feedback: ef}}' "$one"
refused 'power-sgd is for gradients' 'compression: {pipeline: power-sgd}' "$one"
refused 'messages of fp64 are fp64' 'compression: {pipeline: bf16}' "$one" fp64
refused 'keep every bit' $'deterministic: true\ncompression: {pipeline: int8}' "$one"
refused "between: must be one of devices, nodes" 'compression: {pipeline: {kind: int8, between: node}}' "$one"
refused 'needs hybrid_shard: true' 'compression: {gradients: {kind: int8, between: nodes}}' "${shapes[pipelines]}"
refused 'which have no feedback' 'compression: {gradients: {kind: sign, between: nodes}}' "$(four 1)"
refused 'leave between out' $'local_sgd: {every: 2}\ncompression: {outer: {kind: int8, between: nodes}}' "${shapes[pipelines]}"
exit $bad

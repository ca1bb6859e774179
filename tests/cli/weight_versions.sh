#!/bin/bash
# tests/cli/weight_versions.sh - pipelines without a flush (weight_versions: 2, PipeDream-2BW), really run. Every pipeline trains as one device
# does with gradients delayed by one step, which tests/exec/test_delayed_training.c compares with the formula; two versions are in a
# checkpoint; emulated devices confirm the predicted time.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
sgd='sgd, lr: 0.1' adamw='adamw, lr: 1e-2'

# plan NAME VERSIONS OPTIMIZER REPLICAS...: each replica the text of a flow map
plan() {
    local name=$1 versions=$2 optimizer=$3
    shift 3
    {
        printf 'version: 1\nname: %s\nmicrobatch: 1\nweight_versions: %s\nreplicas:\n' "$name" "$versions"
        printf '  - %s\n' "$@"
        four_hosts fp64 "$optimizer"
    } >"$scratch/$name.yaml"
}
one='{microbatches: 8, stages: [{layers: [0, 7], device: n.0}]}'
two='{microbatches: 8, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}'
three='{microbatches: 8, stages: [{layers: [0, 1], device: n.2, recompute: true}, {layers: [2, 4], device: n.0}, {layers: [5, 7], device: n.1}]}'
four='{microbatches: 8, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.2}, {layers: [6, 7], device: n.3}]}'
eager='{microbatches: 8, stages: [{layers: [0, 1], device: n.0, warmup: 7}, {layers: [2, 3], device: n.1, warmup: 5}, {layers: [4, 5], device: n.2, warmup: 3}, {layers: [6, 7], device: n.3}]}'
last='{microbatches: 8, stages: [{layers: [0, 3], device: n.0, warmup: 3}, {layers: [4, 7], device: n.1, warmup: 2}]}'
half_a='{microbatches: 5, stages: [{layers: [0, 3], device: n.0, bucket: 16 KiB}, {layers: [4, 7], device: n.1, bucket: 16 KiB}]}'
half_b='{microbatches: 3, stages: [{layers: [0, 2], device: n.2, bucket: 16 KiB}, {layers: [3, 7], device: n.3, bucket: 16 KiB}]}'

for optimizer in "$sgd" "$adamw"; do
    plan flushed 1 "$optimizer" "$one"
    plan delayed 2 "$optimizer" "$one"
    losses flushed 6 >"$scratch/flushed"
    losses delayed 6 >"$scratch/delayed"
    # The first two steps have the same parameters.
    awk 'NR == FNR { x[NR] = $1; next } FNR == 1 && $1 != x[1] { bad = 1 } FNR > 2 && $1 == x[FNR] { bad = 1 } END { exit bad || FNR != 6 }' "$scratch/flushed" "$scratch/delayed"
    check "gradients are delayed: ${optimizer%,*}" $?
    for pipeline in two three four eager last; do
        plan "$pipeline" 2 "$optimizer" "${!pipeline}"
        losses "$pipeline" 6 >"$scratch/piped"
        [[ $(wc -l <"$scratch/piped") == 6 ]] && within "$(distance "$scratch/delayed" "$scratch/piped")" 1e-9
        check "and a pipeline without a flush trains as one device: ${optimizer%,*}, $pipeline" $?
    done
    plan replicas 2 "$optimizer" "$half_a" "$half_b"
    losses replicas 6 >"$scratch/piped"
    [[ $(wc -l <"$scratch/piped") == 6 ]] && within "$(distance "$scratch/delayed" "$scratch/piped")" 1e-9
    check "and two unequal ones: ${optimizer%,*}" $?
done
plan one_version 1 "$adamw" "$four"
losses one_version 6 >"$scratch/piped"
within "$(distance "$scratch/flushed" "$scratch/piped")" 1e-9 && ! cmp -s "$scratch/delayed" "$scratch/piped"
check "weight_versions: 1 is the synchronous training" $?
sed 's/^microbatch:/deterministic: true\n&/' "$scratch/eager.yaml" >"$scratch/certain.yaml"
sed 's/^microbatch:/deterministic: true\n&/' "$scratch/replicas.yaml" >"$scratch/certain2.yaml"
losses certain 6 >"$scratch/first"
losses certain2 6 >"$scratch/again"
[[ $(wc -l <"$scratch/first") == 6 ]] && cmp -s "$scratch/first" "$scratch/again"
check "and deterministic plans have the same bits" $?

# On emulated devices messages of the next step are under way in the pause of a checkpoint.
sed "s/device: host,/device: host, slowdown: 10,/" "$scratch/certain.yaml" >"$scratch/emulated.yaml"
losses emulated 12 >"$scratch/first"
for mode in async sync; do
    MUSHER_TIMEOUT=$((20 * ${SLOWDOWN:-1})) losses emulated 12 --save "$scratch/emulated.$mode" --save-every 2 --save-mode $mode >"$scratch/again"
    [[ $(wc -l <"$scratch/again") == 12 ]] && cmp -s "$scratch/first" "$scratch/again"
    check "checkpoints between steps of emulated devices change nothing: $mode" $?
done

# Checkpoints in a full pipeline, resumed by it and by another one.
losses four 9 --save "$scratch/whole" --save-every 2 >"$scratch/first"
losses four 9 >"$scratch/again"
[[ $(wc -l <"$scratch/first") == 9 ]] && cmp -s "$scratch/first" "$scratch/again"
check "a checkpoint between steps changes nothing" $?
losses four 5 --save "$scratch/part" >"$scratch/again"
losses four 4 --resume "$scratch/part" >>"$scratch/again"
cmp -s "$scratch/first" "$scratch/again"
check "a resumed pipeline continues with the same bits" $?
head -5 "$scratch/first" >"$scratch/again"
losses replicas 4 --resume "$scratch/part" >>"$scratch/again"
[[ $(wc -l <"$scratch/again") == 9 ]] && within "$(distance "$scratch/first" "$scratch/again")" 1e-9
check "and another one, to rounding" $?
grep -o '"name": "[^"]*"' "$scratch"/part/step-*/manifest.json | awk '/#previous"/ { previous++ } !/#/ { latest++ } END { exit !(latest > 10 && previous == latest) }'
check "the checkpoint has both versions" $?
"$MUSHER" run "$scratch/one_version.yaml" --data "$text" --steps 1 --resume "$scratch/part" >"$scratch/out" 2>"$scratch/err"
has "a synchronous plan continues from the latest, and a warning states it" err 'has two weight versions, the program one: training continues from the latest'

# Half precision, whose previous version is saved in fp32; GPUs of the stand-in.
for name in one four eager last; do
    plan "$name" 2 "$adamw" "${!name}"
    sed -i 's/precision: fp64/precision: bf16/' "$scratch/$name.yaml"
    losses "$name" 6 >"$scratch/$name.bf16"
done
for name in four eager last; do
    [[ $(wc -l <"$scratch/$name.bf16") == 6 ]] && within "$(distance "$scratch/one.bf16" "$scratch/$name.bf16")" 0.02
    check "a pipeline in bf16 trains as one device: $name" $?
done
losses four 2 --save "$scratch/bf16" >"$scratch/again"
losses four 4 --resume "$scratch/bf16" >>"$scratch/again"
cmp -s "$scratch/four.bf16" "$scratch/again"
check "and resumes with the same bits" $?
export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=80000000000 MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
for name in four eager last; do
    plan "$name" 2 "$adamw" "${!name}"
    sed -i 's/precision: fp64/precision: fp32/' "$scratch/$name.yaml"
    losses "$name" 6 >"$scratch/host"
    sed 's/{name: cpu, device: host, memory: 1 GiB}/{name: cpu, device: H100-SXM5, memory: 30 GiB}/' "$scratch/$name.yaml" >"$scratch/gpu.yaml"
    losses gpu 6 --trace "$scratch/gpu.trace" >"$scratch/gpu" || cat "$scratch/err"
    [[ $(wc -l <"$scratch/gpu") == 6 ]] && within "$(distance "$scratch/host" "$scratch/gpu")" 1e-5
    check "GPUs train as hosts do: $name" $?
done
losses gpu 3 --save "$scratch/gpu.saved" --save-every 1 >"$scratch/again"
losses gpu 3 --resume "$scratch/gpu.saved" >>"$scratch/again"
[[ $(wc -l <"$scratch/again") == 6 ]] && within "$(distance "$scratch/gpu" "$scratch/again")" 1e-7
check "and resume" $?
unset STANDIN_DEVICES STANDIN_NAME STANDIN_MEMORY MUSHER_CUDA_PLUGIN MUSHER_NCCL

# The simulated and the measured time of emulated devices. Without tied embeddings, whose sum over the first and the last stage ends a step.
for versions in 1 2; do
    cat >"$scratch/slow$versions.yaml" <<END
version: 1
name: slow
microbatch: 1
weight_versions: $versions
replicas:
  - {microbatches: 8, stages: [{layers: [0, 2], device: n.0}, {layers: [3, 5], device: n.1}, {layers: [6, 8], device: n.2}, {layers: [9, 11], device: n.3}]}
job:
  version: 1
  model: {model_type: llama, hidden_act: silu, hidden_size: 64, intermediate_size: 128, max_position_embeddings: 64, num_attention_heads: 4, num_hidden_layers: 4, num_key_value_heads: 2, rms_norm_eps: 1e-5, tie_word_embeddings: false, vocab_size: 256}
  sequence_length: 32
  global_batch: 8
  precision: fp32
  optimizer: {kind: adamw, lr: 1e-3}
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, slowdown: 20, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n], bandwidth: 1 GB/s, latency: 10 us}]
END
done
number() { sed -n "s/^ *\"$1\": *\([^,]*\),*\$/\1/p" "$scratch/out" | head -n 1; }
iteration() { "$MUSHER" simulate "$scratch/$1.yaml" --json >"$scratch/out" 2>"$scratch/err" && number iteration_ns; }
flushed=$(iteration slow1) piped=$(iteration slow2)
awk -v a="$flushed" -v b="$piped" 'BEGIN { exit !(b > 0 && b < a) }'
check "without a flush a step is shorter: $piped of $flushed ns" $?
"$MUSHER" simulate "$scratch/slow2.yaml" --json >"$scratch/out" 2>"$scratch/err"
grep -q '"idle_ns": 0,' "$scratch/out"
check "because the slowest stage never waits" $?
losses slow2 6 --trace "$scratch/measured.json" >"$scratch/out"
[[ $(wc -l <"$scratch/out") == 6 ]]
check "emulated devices run it" $?
"$MUSHER" simulate "$scratch/slow2.yaml" --steps 6 --trace "$scratch/predicted.json" >/dev/null 2>"$scratch/err"
# Spans of all streams in the order of each, without times.
spans() { sed 1d "$scratch/$1.json" | grep '"stream"' | grep -v '"stream":"step"' | sed 's/"begin_ns":[0-9]*,"end_ns":[0-9]*,*//'; }
for stream in compute send receive; do
    for name in predicted measured; do spans $name | grep "\"stream\":\"$stream\"" | sort >"$scratch/$name.$stream"; done
    cmp -s "$scratch/predicted.$stream" "$scratch/measured.$stream"
    check "simulator and executor do the same in every step: $stream, $(wc -l <"$scratch/measured.$stream")" $?
done
for device in 0 1 2 3; do
    for name in predicted measured; do spans $name | grep "\"stream\":\"compute\"" | grep "\"device\":$device[,}]" >"$scratch/$name.$device"; done
    [[ -s $scratch/measured.$device ]] && cmp -s "$scratch/predicted.$device" "$scratch/measured.$device"
    check "and in the same order: device $device" $?
done

# Outputs.
"$MUSHER" simulate "$scratch/slow2.yaml" >"$scratch/out" 2>"$scratch/err"
has "simulate states it" out 'no flush, 2 weight versions (PipeDream-2BW): other training than with a flush in every step, gradients are delayed by one step'
"$MUSHER" simulate "$scratch/slow2.yaml" --json >"$scratch/out" 2>"$scratch/err"
has "and so does its JSON" out '"delay": 1'
"$MUSHER" show "$scratch/slow2.yaml" >"$scratch/out" 2>"$scratch/err"
has "and show" out 'no flush, 2 weight versions (PipeDream-2BW)'
says "it is explained" 0 'critical' "$MUSHER" simulate "$scratch/slow2.yaml" --explain
says "memory too" 0 'parameters' "$MUSHER" memory "$scratch/slow2.yaml"

# Errors.
refused() { says "$1" 3 "$2" "$MUSHER" check "$scratch/bad.yaml"; }
sed 's/weight_versions: 2/weight_versions: 3/' "$scratch/two.yaml" >"$scratch/bad.yaml"
refused "three versions" 'bad.yaml:4:18: weight_versions'
sed 's/weight_versions/weight_version/' "$scratch/two.yaml" >"$scratch/bad.yaml"
refused "a misspelt key" "did you mean 'weight_versions'?"
sed 's/device: n.1}/device: n.1, zero: 1}/' "$scratch/two.yaml" >"$scratch/bad.yaml"
refused "ZeRO" 'it needs zero: 0'
sed 's/{microbatches: 8,/{microbatches: 8, schedule: gpipe,/' "$scratch/two.yaml" >"$scratch/bad.yaml"
refused "a schedule by name" 'schedule: weight_versions: 2 has the order of 1F1B without a flush'
sed 's/fp64/fp16/' "$scratch/two.yaml" >"$scratch/bad.yaml"
refused "fp16" 'whose loss scale may skip an update'
exit $bad

#!/bin/bash
# tests/cli/models.sh - families of decoders, really trained in fp64: a pipeline with unequal shares, recomputation, and a stage sharded by
# heads and features give the losses of one device. (Their kernels are compared one by one in the suites; parameter totals in suite model.)
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME FAMILY STAGES...
plan() {
    local name=$1 family=$2
    shift 2
    cat >"$scratch/$name.yaml" <<Y
version: 1
name: $name
microbatch: 2
replicas:
$(printf '  - {microbatches: %s}\n' "$@")
job:
  version: 1
  model: $PWD/tests/data/models/tiny-$family.json
  sequence_length: 32
  global_batch: 8
  precision: fp64
  optimizer: {kind: adamw, lr: 3e-3}
  seed: 3
cluster:
  version: 1
  name: one
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: a, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [a]}]
Y
}

sharded='sharding: {ratios: [[2, 1]], operators: [{match: "*.q_proj", shard: features}, {match: "*.k_proj", shard: features}, {match: "*.v_proj", shard: features},
      {match: "*_rotary", shard: heads}, {match: "*.attention", shard: heads}, {match: "*.o_proj", shard: inputs}, {match: "*.gate_proj", shard: features},
      {match: "*.up_proj", shard: features}, {match: "*.down_proj", shard: inputs}, {match: "lm_head*", shard: features}, {match: "loss", shard: vocabulary}, {match: "*", shard: positions}]}'
for family in gemma2 gemma3 phi3 olmo2 glm4; do
    plan one-$family $family '4, stages: [{layers: [0, 11], device: a.0}]'
    plan pipeline-$family $family '3, stages: [{layers: [0, 4], device: a.0, recompute: blocks}, {layers: [5, 11], device: a.1}]' '1, stages: [{layers: [0, 11], device: a.2}]'
    plan sharded-$family $family "4, stages: [{layers: [0, 8], devices: [a.0, a.1], $sharded}, {layers: [9, 11], device: a.2}]"
    for kind in one pipeline sharded; do run $kind-$family --steps 5; done
    for kind in pipeline sharded; do
        far=$(distance "$scratch/one-$family.losses" "$scratch/$kind-$family.losses")
        within "$far" 1e-12 && ok "$family: $kind ($far)" || not_ok "$family: $kind" "its losses are $far off those of one device"
    done
done
# Phi-3's q, k, v and gate, up are parameters of their own here, and one tensor in files: saved by a sharded plan, read by another plan.
cp "$scratch/sharded-phi3.yaml" "$scratch/saved.yaml"
"$MUSHER" run -q "$scratch/saved.yaml" --data "$text" --steps 2 --save "$scratch/ck" >/dev/null 2>"$scratch/err"
check "a checkpoint of phi3" $?
folder=$scratch/ck/step-00000002
says "it is complete" 0 "" "$MUSHER" checkpoint verify "$folder"
head -c 9000 "$folder/model.safetensors" | tr ',' '\n' | grep -q '"model.layers.3.self_attn.qkv_proj.weight":{"dtype":"F64"' && ok "qkv_proj is one tensor" ||
    not_ok "qkv_proj is one tensor" "$(head -c 600 "$folder/model.safetensors")"
"$MUSHER" run -q "$scratch/one-phi3.yaml" --data "$text" --steps 1 --resume "$scratch/ck" --json 2>"$scratch/err" | grep -o '"losses": *[^]]*' >"$scratch/resumed"
"$MUSHER" run -q "$scratch/one-phi3.yaml" --data "$text" --steps 1 --init "$folder" --json 2>"$scratch/err" | grep -o '"losses": *[^]]*' >"$scratch/began"
[[ -s $scratch/resumed ]] && ok "resumed by another plan" || not_ok "resumed by another plan" "$(cat "$scratch/err")"
[[ -s $scratch/began ]] && ok "weights to start from" || not_ok "weights to start from" "$(cat "$scratch/err")"
says "a misspelt action" 2 "did you mean 'verify'" "$MUSHER" checkpoint verfiy "$folder"
# A job's init is relative to the job, wherever its plan is.
mkdir -p "$scratch/a job" "$scratch/plans" && cp -r "$folder" "$scratch/a job/weights"
sed -n '/^job:/,/^cluster:/p' "$scratch/one-phi3.yaml" | sed '1d; $d; s/^  //' >"$scratch/a job/job.yaml"
echo "init: weights" >>"$scratch/a job/job.yaml"
sed -n '/^cluster:/,$p' "$scratch/one-phi3.yaml" | sed '1d; s/^  //; s/between: .a./&, bandwidth: 1 GB\/s, latency: 10 us/' >"$scratch/team.yaml"
(cd "$scratch" && "$MUSHER" plan -q "a job/job.yaml" team.yaml --baseline even-pipeline -o plans/begun.yaml >/dev/null 2>err)
check "a plan of a job with weights" $?
says "the plan's weights are found" 0 "" "$MUSHER" run -q "$scratch/plans/begun.yaml" --data "$text" --steps 1
exit $bad

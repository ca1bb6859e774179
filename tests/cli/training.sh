#!/bin/bash
# tests/cli/training.sh - training gives the same losses under every plan.
# 50 steps of a small GPT on a real text: the losses of one device and of every other plan agree to 1e-5 (fp32) and
# 1e-9 (fp64); with --deterministic the weights are the same bits; a resumed run equals an uninterrupted one.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE > "$text"
steps=${TRAINING_STEPS:-50}

# plan NAME PRECISION OPTIMIZER REPLICAS: four real host devices on this machine.
plan() {
    cat > "$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: $microbatch
steps: 1
replicas:
$4
job:
  version: 1
  model: {model_type: ${5:-gpt2}, $model}
  sequence_length: 24
  global_batch: 6
  precision: $2${6:+
  layers: $6}
  optimizer: {kind: $3, lr: 1e-3}
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n]}]
END
}

microbatch=1
# 10 layers: embedding, 2 x (attention, MLP), final norm, head, loss are 0 ... 7 for two blocks.
gpt='n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256'
llama='hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, rms_norm_eps: 1e-5, tie_word_embeddings: false, hidden_act: silu'

single='  - {microbatches: 6, stages: [{layers: [0, 7], device: n.0}]}'
declare -A plans
plans[uneven-pipeline]='  - {microbatches: 6, stages: [{layers: [0, 0], device: n.0}, {layers: [1, 4], device: n.1, warmup: 2}, {layers: [5, 7], device: n.2}]}'
plans[uneven-data]='  - {microbatches: 1, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 5, stages: [{layers: [0, 7], device: n.1}]}'
plans[both]='  - {microbatches: 2, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 4, stages: [{layers: [0, 3], device: n.2, bucket: 4 KiB}, {layers: [4, 7], device: n.3, bucket: 4 KiB}]}'
plans[unequal-replicas]='  - {microbatches: 4, stages: [{layers: [0, 1], device: n.3}, {layers: [2, 5], device: n.1, recompute: true}, {layers: [6, 7], device: n.2}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.0, recompute: true}]}'
plans[explicit-order]='  - {microbatches: 6, stages: [{layers: [0, 2], device: n.0, order: "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5"}, {layers: [3, 7], device: n.1, order: "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 F5 I5 W5 W3 W4"}]}'
plans[interleaved]='  - {microbatches: 6, schedule: interleaved, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.0, recompute: true}, {layers: [6, 7], device: n.1}]}'
plans[zb-v]='  - {microbatches: 6, schedule: zb-v, stages: [{layers: [0, 0], device: n.0}, {layers: [1, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}'
plans[chunks-and-data]='  - {microbatches: 3, schedule: zb-v, stages: [{layers: [0, 1], device: n.0, bucket: 4 KiB}, {layers: [2, 2], device: n.3}, {layers: [3, 5], device: n.3}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 3, orders: {n.1: "0F0 0F1 1F0 1B0 0F2 1F1 1B1 0B0 1F2 1B2 0B1 0B2", n.2: "F0 F1 I0 F2 I1 W0 W1 I2 W2"}, stages: [{layers: [0, 2], device: n.1}, {layers: [3, 3], device: n.2}, {layers: [4, 7], device: n.1}]}'

# The same at cuts inside the halves of a block, where several activations cross: 1 + 2 x 3 + 1 layers.
fine='  - {microbatches: 2, stages: [{layers: [0, 1], device: n.0, bucket: 4 KiB}, {layers: [2, 2], device: n.1, bucket: 4 KiB}, {layers: [3, 7], device: n.0, recompute: true, bucket: 4 KiB}], orders: {n.0: "0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1", n.1: "F0 F1 B0 B1"}}
  - {microbatches: 4, stages: [{layers: [0, 4], device: n.2, warmup: 2}, {layers: [5, 7], device: n.3}]}'

# The weights and the optimizer state of a checkpoint, independent of the plan's files.
weights() { sed -n 's/.*"name": *"\([^"]*\)".*"crc32": *\([0-9]*\).*/\1 \2/p' "$1"/step-*/manifest.json | sort; }

equal_losses() { # FAMILY PRECISION TOLERANCE
    plan single "$2" adamw "$single" "$1"
    run single --steps "$steps" || return
    local first last
    first=$(head -n 1 "$scratch/single.losses") last=$(tail -n 1 "$scratch/single.losses")
    within "$last" "$(awk -v f="$first" 'BEGIN { print 0.9 * f }')" && ok "$1 $2: the loss falls ($first -> $last)" ||
        not_ok "$1 $2: the loss falls" "$first -> $last"
    plan fine "$2" adamw "$fine" "$1" 8
    for name in fine "${!plans[@]}"; do
        [[ $name == fine ]] || plan "$name" "$2" adamw "${plans[$name]}" "$1"
        run "$name" --steps "$steps" || continue
        local d
        d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
        within "$d" "$3" && ok "$1 $2: $name trains like one device ($d)" ||
            not_ok "$1 $2: $name trains like one device" "losses differ by $d, more than $3"
    done
}

same_bits() { # FAMILY
    plan single fp32 adamw "$single" "$1"
    run single --steps "$steps" --deterministic --save "$scratch/save.single" || return
    weights "$scratch/save.single" > "$scratch/single.weights"
    [[ $(wc -l < "$scratch/single.weights") -gt 20 ]] && ok "$1: the checkpoint lists its tensors" ||
        not_ok "$1: the checkpoint lists its tensors" "$(wc -l < "$scratch/single.weights") of them"
    plan fine fp32 adamw "$fine" "$1" 8
    for name in fine "${!plans[@]}"; do
        [[ $name == fine ]] || plan "$name" fp32 adamw "${plans[$name]}" "$1"
        rm -rf "$scratch/save"
        run "$name" --steps "$steps" --deterministic --save "$scratch/save" || continue
        weights "$scratch/save" > "$scratch/$name.weights"
        cmp -s "$scratch/single.weights" "$scratch/$name.weights" && ok "$1: $name ends with the same bits" ||
            not_ok "$1: $name ends with the same bits" "$(diff "$scratch/single.weights" "$scratch/$name.weights" | grep -c '^<') tensors differ"
    done
}

resumes() {
    plan single fp32 adamw "$single" gpt2
    plan both fp32 adamw "${plans[both]}" gpt2
    run single --steps 20 --deterministic --save "$scratch/whole" || return
    cp "$scratch/single.losses" "$scratch/whole.losses"
    run single --steps 12 --deterministic --save "$scratch/half" || return
    cp "$scratch/single.losses" "$scratch/joined.losses"
    run both --steps 8 --deterministic --resume "$scratch/half" --save "$scratch/rest" || return
    cat "$scratch/both.losses" >> "$scratch/joined.losses"
    cmp -s "$scratch/whole.losses" "$scratch/joined.losses" && ok "another plan resumes a stopped run" ||
        not_ok "another plan resumes a stopped run" "$(distance "$scratch/whole.losses" "$scratch/joined.losses")"
    cmp -s <(weights "$scratch/whole") <(weights "$scratch/rest") && ok "and ends with the same bits" ||
        not_ok "and ends with the same bits" "weights differ"
    plan chunks-and-data fp32 adamw "${plans[chunks-and-data]}" gpt2
    run chunks-and-data --steps 12 --deterministic --save "$scratch/pieces" || return
    cp "$scratch/chunks-and-data.losses" "$scratch/joined.losses"
    run single --steps 8 --deterministic --resume "$scratch/pieces" --save "$scratch/one" || return
    cat "$scratch/single.losses" >> "$scratch/joined.losses"
    cmp -s "$scratch/whole.losses" "$scratch/joined.losses" && cmp -s <(weights "$scratch/whole") <(weights "$scratch/one") &&
        ok "one stage resumes a run of devices with several" ||
        not_ok "one stage resumes a run of devices with several" "$(distance "$scratch/whole.losses" "$scratch/joined.losses")"
    run single --steps 12 --deterministic --save "$scratch/first" || return
    rm -rf "$scratch/pieces"
    run chunks-and-data --steps 8 --deterministic --resume "$scratch/first" --save "$scratch/pieces" || return
    cmp -s <(weights "$scratch/whole") <(weights "$scratch/pieces") && ok "and in the other direction" ||
        not_ok "and in the other direction" "weights differ"
}

# Stages on several devices: each computes some sequences of every microbatch, here two microbatches of three.
declare -A shared
shared[group-then-one]='  - {microbatches: 2, stages: [{layers: [0, 3], devices: [n.0, n.1], sequences: [2, 1]}, {layers: [4, 7], device: n.2, recompute: true}]}'
shared[one-then-group]='  - {microbatches: 2, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 7], devices: [n.1, n.2, n.3], sequences: [1, 1, 1], recompute: true, bucket: 4 KiB}]}'
shared[other-splits]='  - {microbatches: 2, stages: [{layers: [0, 3], devices: [n.0, n.1], sequences: [2, 1], recompute: blocks, recompute_blocks: 1}, {layers: [4, 7], devices: [n.2, n.3], sequences: [1, 2]}]}'
shared[same-splits]='  - {microbatches: 2, stages: [{layers: [0, 3], devices: [n.3, n.1], sequences: [1, 2], warmup: 1}, {layers: [4, 7], devices: [n.2, n.0], sequences: [1, 2]}]}'
shared[one-group]='  - {microbatches: 2, stages: [{layers: [0, 7], devices: [n.0, n.1, n.2], sequences: [1, 1, 1]}]}'
shared[group-and-replica]='  - {microbatches: 1, stages: [{layers: [0, 2], devices: [n.0, n.1], sequences: [1, 2]}, {layers: [3, 7], device: n.2}]}
  - {microbatches: 1, stages: [{layers: [0, 7], device: n.3}]}'
shared[groups-interleaved]='  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 1], devices: [n.0, n.1], sequences: [2, 1]}, {layers: [2, 3], devices: [n.2, n.3], sequences: [2, 1]}, {layers: [4, 5], devices: [n.0, n.1], sequences: [1, 2]}, {layers: [6, 7], devices: [n.2, n.3], sequences: [1, 2]}]}'
shared[groups-zb-v]='  - {microbatches: 2, schedule: zb-v, stages: [{layers: [0, 1], devices: [n.0, n.1], sequences: [1, 2]}, {layers: [2, 3], device: n.2}, {layers: [4, 5], device: n.2}, {layers: [6, 7], devices: [n.0, n.1], sequences: [2, 1]}]}'

shared_losses() { # FAMILY PRECISION TOLERANCE
    local d name
    plan single "$2" adamw "$single" "$1"
    run single --steps "$steps" || return
    cp "$scratch/single.losses" "$scratch/whole.losses"
    microbatch=3
    plan other-splits "$2" adamw "${shared[other-splits]}" "$1"
    rm -rf "$scratch/shares"
    run other-splits --steps 12 --save "$scratch/shares" || return
    cp "$scratch/other-splits.losses" "$scratch/joined.losses"
    run single --steps $((steps - 12)) --resume "$scratch/shares" || return
    cat "$scratch/single.losses" >> "$scratch/joined.losses"
    cp "$scratch/whole.losses" "$scratch/single.losses"
    d=$(distance "$scratch/whole.losses" "$scratch/joined.losses")
    within "$d" "$3" && ok "$1 $2: one device resumes a run of groups ($d)" ||
        not_ok "$1 $2: one device resumes a run of groups" "losses differ by $d, more than $3"
    for name in "${!shared[@]}"; do
        plan "$name" "$2" adamw "${shared[$name]}" "$1"
        run "$name" --steps "$steps" || continue
        d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
        within "$d" "$3" && ok "$1 $2: $name trains like one device ($d)" ||
            not_ok "$1 $2: $name trains like one device" "losses differ by $d, more than $3"
    done
    microbatch=1
}

# Optimizer state, gradients, parameters sharded over replicas, and over the devices of one stage (two microbatches of three).
declare -A divided
divided[level-1-uneven]='  - {microbatches: 1, stages: [{layers: [0, 7], device: n.0, zero: 1}]}
  - {microbatches: 5, stages: [{layers: [0, 7], device: n.1, zero: 1, bucket: 4 KiB}]}'
divided[level-1-shapes]='  - {microbatches: 4, stages: [{layers: [0, 1], device: n.3, zero: 1}, {layers: [2, 7], device: n.1, recompute: true, zero: 1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.0, zero: 1}]}'
divided[level-2]='  - {microbatches: 2, stages: [{layers: [0, 7], device: n.0, zero: 2}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.1, zero: 2, recompute: blocks}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2, zero: 2}]}'
divided[level-2-split]='  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0, zero: 2, bucket: 8 KiB, order: "F0 I0 F1 I1 W0 W1 F2 I2 W2"}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1, zero: 2, bucket: 8 KiB, order: "F0 I0 F1 I1 W0 W1 F2 I2 W2"}]}'
divided[level-3]='  - {microbatches: 2, stages: [{layers: [0, 7], device: n.0, zero: 3}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.1, zero: 3}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2, zero: 3}]}'
divided[level-3-pipelines]='  - {microbatches: 3, stages: [{layers: [0, 3], device: n.0, zero: 3, recompute: true}, {layers: [4, 7], device: n.1, zero: 1}]}
  - {microbatches: 3, stages: [{layers: [0, 3], device: n.2, zero: 3, recompute: true}, {layers: [4, 7], device: n.3, zero: 1}]}'
divided[level-3-chunks]='  - {microbatches: 3, schedule: zb-v, stages: [{layers: [0, 1], device: n.0, zero: 3}, {layers: [2, 2], device: n.1, zero: 3}, {layers: [3, 5], device: n.1, zero: 3}, {layers: [6, 7], device: n.0, zero: 3}]}
  - {microbatches: 3, schedule: zb-v, stages: [{layers: [0, 1], device: n.2, zero: 3}, {layers: [2, 2], device: n.3, zero: 3}, {layers: [3, 5], device: n.3, zero: 3}, {layers: [6, 7], device: n.2, zero: 3}]}'
declare -A divided_group
divided_group[level-3-group]='  - {microbatches: 2, stages: [{layers: [0, 7], devices: [n.0, n.1, n.2], sequences: [1, 1, 1], zero: 3}]}'
divided_group[level-2-groups]='  - {microbatches: 2, stages: [{layers: [0, 3], devices: [n.0, n.1], sequences: [2, 1], zero: 2}, {layers: [4, 7], devices: [n.2, n.3], sequences: [1, 2], zero: 1}]}'

divided_losses() { # FAMILY PRECISION TOLERANCE
    local d name
    plan single "$2" adamw "$single" "$1"
    run single --steps "$steps" || return
    for name in "${!divided[@]}" "${!divided_group[@]}"; do
        [[ -v divided[$name] ]] && plan "$name" "$2" adamw "${divided[$name]}" "$1"
        [[ -v divided_group[$name] ]] && microbatch=3 plan "$name" "$2" adamw "${divided_group[$name]}" "$1"
        run "$name" --steps "$steps" || continue
        d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
        within "$d" "$3" && ok "$1 $2: $name trains like one device ($d)" ||
            not_ok "$1 $2: $name trains like one device" "losses differ by $d, more than $3"
    done
}

# joins FROM TO TOLERANCE: TO resumes the run of FROM, with the losses of an uninterrupted single device.
joins() {
    local d
    rm -rf "$scratch/divided"
    run "$1" --steps 12 --save "$scratch/divided" || return
    cp "$scratch/$1.losses" "$scratch/joined.losses"
    # Every tensor is saved once, unsharded: the same names and sizes as from one device.
    cmp -s <(tensors "$scratch/undivided") <(tensors "$scratch/divided") && ok "$1 saves unsharded tensors" ||
        not_ok "$1 saves unsharded tensors" "$(diff <(tensors "$scratch/undivided") <(tensors "$scratch/divided") | head -n 3)"
    run "$2" --steps $((steps - 12)) --resume "$scratch/divided" || return
    cat "$scratch/$2.losses" >> "$scratch/joined.losses"
    d=$(distance "$scratch/whole.losses" "$scratch/joined.losses")
    within "$d" "$3" && [[ $(wc -l < "$scratch/joined.losses") == "$steps" ]] && ok "$2 resumes the run of $1 ($d)" ||
        not_ok "$2 resumes the run of $1" "losses differ by $d, more than $3"
}
tensors() { sed -n 's/.*"name": *"\([^"]*\)".*"bytes": *\([0-9]*\).*/\1 \2/p' "$1"/step-*/manifest.json | sort; }

divided_resume() { # PRECISION TOLERANCE
    local name
    plan single "$1" adamw "$single" gpt2
    for name in "${!divided[@]}"; do plan "$name" "$1" adamw "${divided[$name]}" gpt2; done
    for name in "${!divided_group[@]}"; do microbatch=3 plan "$name" "$1" adamw "${divided_group[$name]}" gpt2; done
    plan both "$1" adamw "${plans[both]}" gpt2
    run single --steps "$steps" || return
    cp "$scratch/single.losses" "$scratch/whole.losses"
    rm -rf "$scratch/undivided"
    run single --steps 12 --save "$scratch/undivided" || return
    joins level-3 both "$2"
    joins both level-3 "$2"
    joins level-3-pipelines level-1-uneven "$2"
    joins level-1-shapes level-3-chunks "$2"
    joins level-3-chunks level-2-split "$2"
    joins level-2 level-3-group "$2"
    joins level-2-groups level-3-pipelines "$2"
    joins level-3-group single "$2"
    # Bit for bit: a plan with ZeRO loads and saves again its own checkpoint.
    rm -rf "$scratch/divided" "$scratch/again"
    run level-3 --steps 12 --save "$scratch/divided" && cp "$scratch/level-3.losses" "$scratch/joined.losses" &&
        run level-3 --steps $((steps - 12)) --resume "$scratch/divided" --save "$scratch/again" &&
        cat "$scratch/level-3.losses" >> "$scratch/joined.losses"
    rm -rf "$scratch/divided"
    run level-3 --steps "$steps" --save "$scratch/divided"
    cmp -s "$scratch/level-3.losses" "$scratch/joined.losses" && cmp -s <(weights "$scratch/divided") <(weights "$scratch/again") &&
        ok "$1: a divided plan that was stopped ends with the bits of one that was not" ||
        not_ok "$1: a divided plan that was stopped ends with the bits of one that was not" "they differ"
}

model=$gpt
equal_losses gpt2 fp32 1e-5
equal_losses gpt2 fp64 1e-9
shared_losses gpt2 fp32 1e-5
shared_losses gpt2 fp64 1e-9
divided_losses gpt2 fp32 1e-5
divided_losses gpt2 fp64 1e-9
[[ -z ${MUSHER_LONG:-} ]] || divided_resume fp32 1e-5 # in fp64 the 1e-9 of resumes is stricter
divided_resume fp64 1e-9
same_bits gpt2
resumes
model=$llama
equal_losses llama fp64 1e-9
shared_losses llama fp64 1e-9
divided_losses llama fp64 1e-9
exit $bad

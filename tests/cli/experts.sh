#!/bin/bash
# tests/cli/experts.sh - models with experts and BERT train alike on one device and on several, with dropout and without.
# Which experts a token is sent to is decided by the largest logits: sums that differ in their last bits may send a token
# elsewhere where two are equal to rounding. So fp32 runs compare losses to 1e-5 over few steps from equal weights, in which
# no such tie occurs with these seeds, and fp64 runs, where one would have to be equal to 1e-15, to 1e-9.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE > "$text"
steps=${TRAINING_STEPS:-12}

# plan NAME MICROBATCH PRECISION REPLICAS: real host devices on this machine; $model and $extra are the job's.
plan() {
    cat > "$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: $2
steps: 1
replicas:
$4
job:
  version: 1
  model: {$model}
  sequence_length: 24
  global_batch: 6
  precision: $3
  optimizer: {kind: adamw, lr: 1e-3}
$extra
  seed: 7
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n]}]
END
}

mixtral='model_type: mixtral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, num_local_experts: 4, num_experts_per_tok: 2'
qwen='model_type: qwen3_moe, hidden_size: 32, head_dim: 8, intermediate_size: 48, moe_intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, num_experts: 6, num_experts_per_tok: 3, decoder_sparse_step: 2, capacity_factor: 1.1'
bert='model_type: bert, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 260, max_position_embeddings: 32'
bert_moe="$bert, num_experts: 4"

# The job of $model and $extra, to job.yaml; its last layer's number.
last_layer() {
    printf 'version: 1\nmodel: {%s}\nsequence_length: 24\nglobal_batch: 6\nmicrobatch: 1\n%s\n' "$model" "$extra" |
        sed 's/^  //' > "$scratch/job.yaml"
    echo $(($("$MUSHER" show "$scratch/job.yaml" --json | sed -n 's/.*"layers": *\([0-9]*\),.*/\1/p' | head -n 1) - 1))
}

# alike NAME PRECISION TOLERANCE CUT: CUT is the last layer of a first stage.
alike() {
    local name last cut=$4 d first end
    last=$(last_layer)
    declare -A plans
    plan single 1 "$2" "  - {microbatches: 6, stages: [{layers: [0, $last], device: n.0}]}"
    run single --steps "$steps" || return
    first=$(head -n 1 "$scratch/single.losses") end=$(tail -n 1 "$scratch/single.losses")
    within "$end" "$(awk -v f="$first" 'BEGIN { print 0.97 * f }')" && ok "$1 $2: the loss falls ($first -> $end)" ||
        not_ok "$1 $2: the loss falls" "$first -> $end"
    plans[pipeline]="  - {microbatches: 6, stages: [{layers: [0, $cut], device: n.0, warmup: 2}, {layers: [$((cut + 1)), $last], device: n.1, recompute: true}]}"
    plans[data]="  - {microbatches: 1, stages: [{layers: [0, $last], device: n.0}]}
  - {microbatches: 5, stages: [{layers: [0, $cut], device: n.1}, {layers: [$((cut + 1)), $last], device: n.2}]}"
    plans[group]="  - {microbatches: 2, stages: [{layers: [0, $cut], device: n.0}, {layers: [$((cut + 1)), $last], devices: [n.1, n.2], sequences: [2, 1], recompute: blocks}]}"
    for name in pipeline data group; do
        plan "$name" "$([[ $name == group ]] && echo 3 || echo 1)" "$2" "${plans[$name]}"
        run "$name" --steps "$steps" || continue
        d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
        within "$d" "$3" && ok "$1 $2: $name trains like one device ($d)" ||
            not_ok "$1 $2: $name trains like one device" "losses differ by $d, more than $3"
    done
}

# A resumed run draws the same dropout masks as an uninterrupted one, also on another plan.
resumes() {
    local last
    last=$(last_layer)
    plan whole 1 fp64 "  - {microbatches: 6, stages: [{layers: [0, $last], device: n.0}]}"
    plan group 3 fp64 "  - {microbatches: 2, stages: [{layers: [0, 5], device: n.0}, {layers: [6, $last], devices: [n.1, n.2], sequences: [2, 1]}]}"
    run whole --steps 8 || return
    run group --steps 4 --save "$scratch/half" || return
    cp "$scratch/whole.losses" "$scratch/one.losses"
    run whole --steps 4 --resume "$scratch/half" || return
    cat "$scratch/group.losses" "$scratch/whole.losses" > "$scratch/joined.losses"
    local d
    d=$(distance "$scratch/one.losses" "$scratch/joined.losses")
    within "$d" 1e-9 && ok "a resumed run draws the same masks ($d)" || not_ok "a resumed run draws the same masks" "$d"
}

# Cuts between experts' projections, in the first block: gates and dispatched rows cross from stage to stage.
between_experts() {
    local cut d last plain=$extra
    plan single 1 fp64 "  - {microbatches: 6, stages: [{layers: [0, $(last_layer)], device: n.0}]}"
    run single --steps "$steps" || return
    extra="$plain
  layers: fine"
    last=$(last_layer)
    for cut in 4 5 6; do
        plan fine 1 fp64 "  - {microbatches: 6, stages: [{layers: [0, $cut], device: n.0, recompute: true}, {layers: [$((cut + 1)), $last], device: n.1}]}"
        run fine --steps "$steps" || continue
        d=$(distance "$scratch/single.losses" "$scratch/fine.losses")
        within "$d" 1e-9 && ok "mixtral cut behind fine layer $cut trains like one device ($d)" ||
            not_ok "mixtral cut behind fine layer $cut trains like one device" "$d"
    done
    extra=$plain
}

# --deterministic: the weights are the same bits, so every row went to the same expert in both.
same_bits() { # NAME CUT
    local name last
    last=$(last_layer)
    plan single 1 fp32 "  - {microbatches: 6, stages: [{layers: [0, $last], device: n.0}]}"
    plan both 1 fp32 "  - {microbatches: 2, stages: [{layers: [0, $2], device: n.0}, {layers: [$(($2 + 1)), $last], device: n.1}]}
  - {microbatches: 4, stages: [{layers: [0, $last], device: n.2, recompute: true}]}"
    for name in single both; do
        rm -rf "$scratch/save.$name"
        run $name --steps 8 --deterministic --save "$scratch/save.$name" || return
        sed -n 's/.*"name": *"\([^"]*\)".*"crc32": *\([0-9]*\).*/\1 \2/p' "$scratch/save.$name"/step-*/manifest.json |
            sort > "$scratch/$name.weights"
    done
    [[ $(wc -l < "$scratch/single.weights") -gt 20 ]] && cmp -s "$scratch/single.weights" "$scratch/both.weights" &&
        ok "$1: two plans end with the same bits" ||
        not_ok "$1: two plans end with the same bits" "$(diff "$scratch/single.weights" "$scratch/both.weights" | grep -c '^<') tensors differ"
}

extra=
model=$mixtral
alike mixtral fp32 1e-5 2
alike mixtral fp64 1e-9 3
model=$qwen
alike qwen3_moe fp64 1e-9 1
model=$bert
alike bert fp32 1e-5 4
alike bert fp64 1e-9 6
model=$bert_moe
alike bert-moe fp32 1e-5 9
alike bert-moe fp64 1e-9 8
cp "$scratch/single.losses" "$scratch/plain.losses"
extra='  dropout: config'
alike bert-moe-dropout fp32 1e-5 6
alike bert-moe-dropout fp64 1e-9 9
cmp -s "$scratch/plain.losses" "$scratch/single.losses" && not_ok "dropout changes losses" "they are the same" ||
    ok "dropout changes losses"
resumes
same_bits bert-moe-dropout 6
extra='  dropout: 0.2'
model=$mixtral
same_bits mixtral-dropout 3
between_experts
alike mixtral-dropout fp64 1e-9 4

# Shown, measured, planned, run and simulated like any model.
planned() { # NAME WHAT_SHOW_SAYS
    {
        echo "version: 1"
        echo "model: {$model}"
        printf 'sequence_length: 24\nglobal_batch: 6\nmicrobatch: 1\ndropout: config\n'
    } > "$scratch/job.yaml"
    small_team > "$scratch/team.yaml"
    says "$1: shown" 0 "$2" "$MUSHER" show "$scratch/job.yaml"
    says "$1: measured" 0 link "$MUSHER" profile "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/$1.db" --repeats 5
    says "$1: planned" 0 found "$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/$1.db" -o "$scratch/found.yaml"
    says "$1: what is assumed of its experts is stated" 0 "experts: memory for" "$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" --db "$scratch/$1.db" -o "$scratch/found.yaml"
    says "$1: also of a simulation" 0 "experts: memory for" "$MUSHER" simulate "$scratch/found.yaml" --db "$scratch/$1.db"
    says "$1: and of memory" 0 "experts: memory for" "$MUSHER" memory "$scratch/found.yaml"
    says "$1: the plan runs" 0 loss "$MUSHER" run "$scratch/found.yaml" --data "$text" --steps 3 --trace "$scratch/run.trace"
    says "$1: how uneven its experts are is learned" 0 "rows per expert vary" "$MUSHER" calibrate --force --db "$scratch/$1.db" "$scratch/run.trace"
    says "$1: the plan is simulated" 0 iteration "$MUSHER" simulate "$scratch/found.yaml" --db "$scratch/$1.db"
}
model=$mixtral
planned mixtral '2 of 4 experts a layer'
model=$bert_moe
planned bert-moe '2 of 4 experts a layer'
exit $bad

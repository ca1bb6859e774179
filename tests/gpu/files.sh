#!/bin/bash
# tests/gpu/files.sh FOLDER - what gpu-check and gpu-bench read: programs for a GPU, and the losses that the host finds.
# GPU=name of the catalogue (musher devices) of the GPU they will run on; MUSHER=program; SMALL=1: the same checks with little
# work in each, and a tiny model for the bench, for a GPU that is emulated (tests/standin).
set -eu
folder=${1:?usage: files.sh FOLDER}
: "${MUSHER:=build/musher}" "${GPU:=H200-SXM}" "${SMALL:=}"
"$MUSHER" devices | grep -q "^$GPU " || {
    echo "files.sh: GPU=$GPU: no such device: '$MUSHER devices' lists all" >&2
    exit 3
}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
: >"$folder/cases"
cp README.md "$folder/text.txt"
steps=30 long=100 batch=12 gpt_blocks=3 blocks=2
[[ -n $SMALL ]] && steps=2 long=2 batch=6 gpt_blocks=2 blocks=1
all=$((batch / 2)) # microbatches
more=$((all * 2 / 3)) less=$((all - all * 2 / 3))

# Heads of 64, which the tensor cores' attention is for; the others have heads of 32 and 16.
cat >"$work/gpt.json" <<J
{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 128, "n_head": 2, "n_layer": $gpt_blocks, "n_positions": 128, "vocab_size": 509}
J
cat >"$work/llama.json" <<J
{"model_type": "llama", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128,
 "num_attention_heads": 4, "num_hidden_layers": $blocks, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "vocab_size": 512}
J
cat >"$work/mixtral.json" <<J
{"model_type": "mixtral", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128,
 "num_attention_heads": 2, "num_hidden_layers": $blocks, "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "vocab_size": 512}
J

# Soft caps, windows in every second layer, norms whose factor is 1 + w; half of each head rotates, neighbours together.
cat >"$work/gemma2.json" <<J
{"model_type": "gemma2", "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128, "num_attention_heads": 4, "head_dim": 32,
 "num_hidden_layers": 2, "num_key_value_heads": 2, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0,
 "sliding_window": 24, "vocab_size": 512}
J
cat >"$work/glm4.json" <<J
{"model_type": "glm4", "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128, "num_attention_heads": 4, "head_dim": 32,
 "num_hidden_layers": $blocks, "num_key_value_heads": 2, "tie_word_embeddings": false, "vocab_size": 512}
J

# job MODEL PRECISION: the job's lines, as a file has them; with $scale, where it is set, as the first scale of fp16's loss
scale=
adamw='{kind: adamw, lr: 3e-4, weight_decay: 0.01}'
optimizer=$adamw
job() {
    printf 'version: 1\nmodel: %s\nsequence_length: 64\nglobal_batch: %s\nprecision: %s\nseed: 1\n' "$work/$1.json" $batch "$2"
    [[ -z $scale || $2 != fp16 ]] || printf 'loss_scale: {initial: %s}\n' "$scale"
    printf 'optimizer: %s\n' "$optimizer"
}

# cluster DEVICE N: N devices that are all GPU 0 of this machine, each in a node of its own: a.0, b.0, …; $type: other keys of their type
type=
cluster() {
    local names=(a b c d)
    printf 'version: 1\nname: gpus\ndevice_types:\n  - {name: gpu, device: %s, memory: 30 GiB%s}\nnodes:\n' "$1" "$type"
    for ((i = 0; i < $2; i++)); do
        printf '  - {name: %s, host: localhost, devices: [{type: gpu, index: 0}]}\n' "${names[i]}"
    done
    (($2 < 2)) || echo links:
    for ((i = 0; i < $2; i++)); do
        for ((k = i + 1; k < $2; k++)); do
            printf '  - {name: %s, between: [%s, %s], bandwidth: 10 GB/s, latency: 10 us}\n' "${names[i]}${names[k]}" "${names[i]}" "${names[k]}"
        done
    done
}

# trained NAME STEPS: NAME.losses, of the plan host.yaml; $skipped: how many steps were
trained() {
    "$MUSHER" run -q "$work/host.yaml" --data "$folder/text.txt" --steps "$2" --json >"$work/run.json"
    sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$work/run.json" | tr ',' '\n' | tr -d ' ' >"$folder/$1.losses"
    skipped=$(sed -n 's/.*"skipped": *\[\([^]]*\)\].*/\1/p' "$work/run.json" | tr ',' '\n' | grep -c '[0-9]') || true
    (($(wc -l <"$folder/$1.losses") >= $2)) || { echo "files.sh: no losses of $1" >&2; exit 1; }
}

# reference NAME MODEL STEPS: NAME.losses, of one host device in fp32. The same steps in fp64 must be within a tenth of the limit of fp32
# (1e-4): else the training amplifies rounding errors, and its losses compare nothing (with a rate of 1e-3 instead of 3e-4, 100 steps of
# GPT in fp64 are 1e-3 off those in fp32).
reference() {
    local precision
    cluster host 1 >"$work/cluster.yaml"
    for precision in fp64 fp32; do
        job "$2" $precision >"$work/job.yaml"
        "$MUSHER" plan -q "$work/job.yaml" "$work/cluster.yaml" -o "$work/host.yaml" >/dev/null
        trained "$1" "$3"
        [[ $precision == fp32 ]] || mv "$folder/$1.losses" "$work/$1.fp64"
    done
    paste "$folder/$1.losses" "$work/$1.fp64" | awk -v name="$1" '
        { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (!(worst < 1e-5)) { print "files.sh: losses of " name " in fp32 and fp64 differ by " worst ": too much for a reference" > "/dev/stderr"; exit 1 } }'
}

# plan DEVICE NAME MODEL PRECISION RANKS REPLICAS: the text of a plan with these replicas, and with $head before them
head=
plan() {
    job "$3" "$4" >"$work/job.yaml"
    cluster "$1" "$5" >"$work/cluster.yaml"
    printf 'version: 1\nname: %s\nmicrobatch: 2\n%sreplicas:\n%s\njob:\n' "$2" "$head" "$6"
    sed 's/^/  /' "$work/job.yaml"
    printf 'cluster:\n'
    sed 's/^/  /' "$work/cluster.yaml"
}

# program NAME MODEL PRECISION RANKS REPLICAS: such a plan, lowered
program() {
    plan "$GPU" "$@" >"$work/$1.yaml"
    "$MUSHER" lower -q "$work/$1.yaml" -o "$folder/$1.program" >/dev/null
}

# check NAME MODEL PRECISION RANKS LIMIT STEPS REPLICAS [REFERENCE SKIPPED]: a line of cases as well
check() {
    program "$1" "$2" "$3" "$4" "$7"
    echo "$1 $4 $6 $5 ${8:-$2}${9:+ $9}" >>"$folder/cases"
}

one() { printf '  - {microbatches: %s, stages: [{layers: [0, %s], device: a.0}]}' $all "$1"; }
last() { # of a model's layers
    job "$1" fp32 >"$work/job.yaml"
    cluster host 1 >"$work/cluster.yaml"
    "$MUSHER" plan -q "$work/job.yaml" "$work/cluster.yaml" -o "$work/last.yaml" >/dev/null
    sed -n 's/.*layers: \[0, \([0-9]*\)\].*/\1/p' "$work/last.yaml" | head -1
}

for model in gpt llama mixtral gemma2 glm4; do
    n=$long
    [[ $model != gpt ]] && n=$steps
    reference $model $model "$n"
    end=$(last $model)
    check "$model-fp32" $model fp32 1 1e-4 "$n" "$(one "$end")"
    check "$model-bf16" $model bf16 1 2e-2 "$n" "$(one "$end")"
done
# Ranks of one GPU take turns on it, and what they tell each other may take milliseconds each: fewer steps.
steps=$((steps < 12 ? steps : 12))
end=$(last gpt)
stages4="  - {microbatches: $all, stages: [{layers: [0, 1], device: a.0}, {layers: [2, 2], device: b.0}, {layers: [3, $((end - 2))], device: c.0}, {layers: [$((end - 1)), $end], device: d.0}]}"
uneven2="  - {microbatches: $more, stages: [{layers: [0, $end], device: a.0}]}
  - {microbatches: $less, stages: [{layers: [0, $end], device: b.0}]}"
# One part of gradients, or of the optimizer's state alone, each. Who divides gradients must meet in every microbatch.
zero1=${uneven2//, device:/, zero: 1, device:}
zero2=
for name in a b c; do zero2+="  - {microbatches: $((all / 3)), stages: [{layers: [0, $end], device: $name.0, zero: 2}]}"$'\n'; done
pipe2="  - {microbatches: $all, stages: [{layers: [0, 3], device: a.0}, {layers: [4, $end], device: b.0}]}"
check stages4 gpt fp32 4 1e-4 "$steps" "$stages4"
check stages4-bf16 gpt bf16 4 2e-2 "$steps" "$stages4"
check uneven2 gpt fp32 2 1e-4 "$steps" "$uneven2"
check uneven2-zero1 gpt fp32 2 1e-4 "$steps" "$zero1"
check zero2 gpt fp32 3 1e-4 "$steps" "$zero2"
echo "collectives zero2 3" >>"$folder/cases"
program dead gpt fp32 2 "$pipe2"
echo "dead dead 2" >>"$folder/cases"
# fp16 with its loss scale.
check stages4-fp16 gpt fp16 4 2e-2 "$steps" "$stages4"
check uneven2-fp16 gpt fp16 2 2e-2 "$steps" "$uneven2"
check zero2-fp16 gpt fp16 3 2e-2 "$steps" "$zero2"
# A scale that is too large at first. The wire is fp16, so what overflows hangs on the plan: the reference is the same plan on hosts, and
# everybody skips the steps that they skip. The scale is so that halved twice or three times it is as far from what overflows as it can be.
scale=600000 more_steps=$((steps > 6 ? steps : 6))
plan host overflow gpt fp16 3 "$zero2" >"$work/host.yaml"
trained overflow $more_steps
((skipped > 0 && skipped < more_steps)) || { echo "files.sh: $skipped of $more_steps steps are skipped with a scale of $scale: another should be chosen" >&2; exit 1; }
check overflow gpt fp16 3 2e-2 $more_steps "$zero2" overflow $skipped
scale=
# Islands that add gradients in bf16 and exchange the largest changes every second step: the same plan on hosts is the reference.
head=$'compression: {gradients: bf16, outer: {kind: top-k, fraction: 0.25}}\nlocal_sgd: {every: 2, outer: nesterov}\n'
plan host local gpt fp32 2 "$uneven2" >"$work/host.yaml"
trained local "$steps"
check local gpt fp32 2 2e-2 "$steps" "$uneven2" local
# The other codes, and fragments that are exchanged one step late.
coded() { # NAME HEAD
    head=$2
    plan host "$1" gpt fp32 2 "$uneven2" >"$work/host.yaml"
    trained "$1" "$steps"
    check "$1" gpt fp32 2 2e-2 "$steps" "$uneven2" "$1"
    head=
}
coded int8 $'compression: {gradients: int8}\n'
coded power-sgd $'compression: {gradients: {kind: power-sgd, rank: 2}}\n'
coded streaming $'compression: {outer: bf16}\nlocal_sgd: {every: 2, outer: nesterov, fragments: 2, delay: 1}\n'
# Gradients clipped by their global norm, over shards of two ranks. Lion's changes are signs, so that rounding moves a few elements by twice
# the rate; the reference is one host.
optimizer='{kind: lion, lr: 1e-4, weight_decay: 0.1, max_grad_norm: 0.5}'
plan host clip-lion gpt fp32 1 "$(one "$end")" >"$work/host.yaml"
trained clip-lion "$steps"
check clip-lion gpt fp32 2 1e-3 "$steps" "$zero1" clip-lion
optimizer=$adamw
# Gradient all-reduces that are messages.
check double-tree gpt fp32 3 1e-4 "$steps" "${zero2//zero: 2/all_reduce: double-tree}"
# The optimizer's state in host memory; and activations, of parts that are blocks (two stages) and of one part (all of a model).
type=', offload: optimizer'
check offload-optimizer gpt bf16 1 2e-2 "$steps" "$(one "$end")"
type=
check offload-blocks gpt fp32 2 1e-4 "$steps" "${pipe2//, device:/, offload: activations, device:}"
check offload-bf16 gpt bf16 2 2e-2 "$steps" "${pipe2//, device:/, offload: activations, device:}"
# Checkpoints behind every second step, written while training goes on: of a pipeline, and of gradients in flight.
for name in saved saved-streaming; do
    from=offload-blocks
    [[ $name == saved ]] || from=streaming
    cp "$folder/$from.program" "$folder/$name.program"
    rm -rf "$folder/$name.saved"
    echo "save $(grep "^$from " "$folder/cases" | sed "s/^$from /$name /")" >>"$folder/cases"
done
# Two heads and two sequences over three devices: somebody has nothing of some operators. Some 40 collectives a microbatch:
# fewer steps yet.
shares3="  - microbatches: $all
    stages:
      - layers: [0, $end]
        devices: [a.0, b.0, c.0]
        sharding:
          ratios: [[3, 2, 1]]
          operators:
            - {match: \"h.*.attn.*\", shard: heads}
            - {match: \"h.*.mlp.*\", shard: features}
            - {match: \"*\", shard: batch}"
check shares3 gpt fp32 3 1e-4 $((steps < 5 ? steps : 5)) "$shares3"
# Gradients of parts in half precision, summed in single.
check shares3-bf16 gpt bf16 3 2e-2 $((steps < 3 ? steps : 3)) "$shares3"

# What the bench trains, and how often: beside PyTorch's models of these names, or a tiny one.
: >"$folder/trained"
if [[ -n $SMALL ]]; then
    program gpt2-tiny gpt bf16 1 "$(one "$end")"
    echo "gpt2-tiny 2" >>"$folder/trained"
else
    cluster "$GPU" 1 | sed '/device:/s/30 GiB/60 GiB/' >"$work/gpu.yaml"
    for size in 124m 350m; do
        "$MUSHER" plan -q "$here/gpt2-$size.yaml" "$work/gpu.yaml" -o "$work/bench.yaml" >/dev/null
        "$MUSHER" lower -q "$work/bench.yaml" -o "$folder/gpt2-$size.program" >/dev/null
    done
    printf 'gpt2-124m 3\ngpt2-350m 1\n' >>"$folder/trained"
fi
GPU=$GPU SMALL=$SMALL MUSHER=$MUSHER "$here/predict.sh" files "$folder"
echo "programs and losses for $GPU are in $folder: $(($(wc -l <"$folder/cases") + 1)) checks"

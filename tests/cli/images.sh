#!/bin/bash
# tests/cli/images.sh - image models are shown, planned, measured and trained, with equal losses on every plan:
# a small VGG (convolutions, group norms, both poolings) and a small ViT on one device and on several, losses to 1e-5 (fp32) and
# 1e-9 (fp64).
set -u
. tests/cli/common.inc
text=$scratch/text.txt
head -c 600 LICENSE > "$text" # few images, so that thirty steps reduce the loss
steps=${TRAINING_STEPS:-30}
dropout=
vit='{model_type: vit, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 3, intermediate_size: 40, image_size: 12, patch_size: 4, num_channels: 3, num_labels: 5}'
vgg='{model_type: vgg, image_size: 12, num_channels: 2, features: [6, 6, M, 8, 8, A], classifier: [24], norm_groups: 2, num_labels: 5}'

job() { # MODEL PRECISION
    cat <<END
  version: 1
  model: $1
  global_batch: 6
  precision: $2
  optimizer: {kind: adamw, lr: 3e-3}
  seed: 7${dropout:+
  dropout: $dropout}
END
}
machine() {
    cat <<END
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}, {type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n]}]
END
}
plan() { # NAME MODEL PRECISION MICROBATCH REPLICAS: four real host devices on this machine.
    cat > "$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: $4
steps: 1
replicas:
$5
job:
$(job "$2" "$3")
cluster:
$(machine)
END
}

# Layers: vit has the patches, 2 x (attention, MLP), norm and class token, classifier, loss: 0 ... 7. vgg has 4 convolutions,
# 2 poolings, 2 matmuls of the classifier, loss: 0 ... 8.
same_losses() { # NAME MODEL LAST PRECISION TOLERANCE
    local name d first last
    declare -A plans
    plans[pipeline]="1:  - {microbatches: 6, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 5], device: n.1, warmup: 2}, {layers: [6, $3], device: n.2, recompute: true}]}"
    plans[data]="1:  - {microbatches: 1, stages: [{layers: [0, $3], device: n.0}]}
  - {microbatches: 5, stages: [{layers: [0, $3], device: n.1, bucket: 1 KiB}]}"
    plans[shared]="3:  - {microbatches: 2, stages: [{layers: [0, 3], devices: [n.0, n.1], sequences: [2, 1]}, {layers: [4, $3], devices: [n.2, n.3], sequences: [1, 2]}]}"
    plans[split]="1:  - {microbatches: 6, stages: [{layers: [0, 2], device: n.0, order: \"F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5\"}, {layers: [3, $3], device: n.1, order: \"F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 F5 I5 W5 W3 W4\"}]}"
    plans[divided]="1:  - {microbatches: 3, stages: [{layers: [0, $3], device: n.0, zero: 3}]}
  - {microbatches: 3, stages: [{layers: [0, $3], device: n.1, zero: 3}]}"
    plan single "$2" "$4" 1 "  - {microbatches: 6, stages: [{layers: [0, $3], device: n.0}]}"
    run single --steps "$steps" || return
    if [[ -z $dropout ]]; then # with dropout the noise exceeds the improvement of few steps
        first=$(head -n 3 "$scratch/single.losses" | awk '{ s += $1 } END { print s / NR }')
        last=$(tail -n 3 "$scratch/single.losses" | awk '{ s += $1 } END { print s / NR }')
        within "$last" "$(awk -v f="$first" 'BEGIN { print 0.95 * f }')" && ok "$1 $4: the loss falls ($first -> $last)" ||
            not_ok "$1 $4: the loss falls" "$first -> $last"
    fi
    for name in "${!plans[@]}"; do
        plan "$name" "$2" "$4" "${plans[$name]%%:*}" "${plans[$name]#*:}"
        run "$name" --steps "$steps" || continue
        d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
        within "$d" "$5" && ok "$1 $4: $name trains like one device ($d)" ||
            not_ok "$1 $4: $name trains like one device" "losses differ by $d, more than $5"
    done
}

# 12 steps here and the rest there are the same run: a checkpoint counts images.
resumes() { # NAME MODEL LAST
    plan single "$2" fp64 1 "  - {microbatches: 6, stages: [{layers: [0, $3], device: n.0}]}"
    plan other "$2" fp64 3 "  - {microbatches: 2, stages: [{layers: [0, 1], device: n.0}, {layers: [2, $3], devices: [n.1, n.2], sequences: [1, 2]}]}"
    run single --steps 20 || return
    cp "$scratch/single.losses" "$scratch/whole.losses"
    rm -rf "$scratch/saved"
    run other --steps 12 --save "$scratch/saved" || return
    cp "$scratch/other.losses" "$scratch/joined.losses"
    run single --steps 8 --resume "$scratch/saved" || return
    cat "$scratch/single.losses" >> "$scratch/joined.losses"
    local d
    d=$(distance "$scratch/whole.losses" "$scratch/joined.losses")
    within "$d" 1e-9 && ok "$1: one device resumes a run of several ($d)" ||
        not_ok "$1: one device resumes a run of several" "losses differ by $d"
}

# A job and a cluster: shown, planned with and without layers found inside blocks, checked, simulated, run without a file.
planned() { # NAME MODEL
    local layers
    small_team > "$scratch/team.yaml"
    job "$2" fp32 | sed 's/^  //' > "$scratch/$1.yaml"
    says "$1: is measured" 0 '' "$MUSHER" profile "$scratch/$1.yaml" "$scratch/team.yaml" --db "$scratch/$1.db"
    says "$1: show" 0 'FLOPs per image' "$MUSHER" show "$scratch/$1.yaml"
    for layers in coarse fine; do
        { job "$2" fp32 | sed 's/^  //' && echo "layers: $layers"; } > "$scratch/$1.yaml"
        says "$1: planned with $layers layers" 0 '' "$MUSHER" plan "$scratch/$1.yaml" "$scratch/team.yaml" --db "$scratch/$1.db" -o "$scratch/$1-$layers.plan.yaml"
        says "$1: the $layers plan is sound" 0 '' "$MUSHER" check "$scratch/$1-$layers.plan.yaml"
        says "$1: and simulated" 0 '' "$MUSHER" simulate "$scratch/$1-$layers.plan.yaml" --db "$scratch/$1.db"
    done
    says "$1: and run on random images" 0 '' "$MUSHER" run "$scratch/$1-fine.plan.yaml" --steps 2
}

same_losses vit "$vit" 7 fp32 1e-5
same_losses vit "$vit" 7 fp64 1e-9
same_losses vgg "$vgg" 8 fp32 1e-5
same_losses vgg "$vgg" 8 fp64 1e-9
dropout=0.1
same_losses 'vgg with dropout' "$vgg" 8 fp64 1e-9
dropout=
resumes vit "$vit" 7
resumes vgg "$vgg" 8
planned vit "$vit"
planned vgg "$vgg"
{ job "$vit" fp32 | sed 's/^  //' && echo 'sequence_length: 7'; } > "$scratch/long.yaml"
says "a sequence length for images" 3 'an image has 10 positions' "$MUSHER" show "$scratch/long.yaml"
job "${vit/model_type: vit/model_type: vit, hidden_act: mish}" fp32 | sed 's/^  //' > "$scratch/mish.yaml"
says "an unsupported activation" 3 'hidden_act' "$MUSHER" show "$scratch/mish.yaml"
exit $bad

#!/bin/bash
# tests/gpu/predict.sh - are plans for unequal devices predicted right, on the one GPU that is there? Three of its emulated
# likes (slowdown × what the GPU takes, by the devices' virtual clocks) train GPT-2 by three plans: a pipeline cut evenly, one cut
# by speed, and data parallel with unequal shares. Two more plans, in the folder `hosted`, are of the GPU itself: its optimizer's state
# or its activations are in host memory, and the copies are at PCIe's real speed.
# usage: predict.sh files FOLDER       where musher has its libraries: benches, programs and plans; gpu-run runs them on the GPU
#        predict.sh table FOLDER OUT   back there: profile of what gpu-run brought to OUT, predictions beside runs, calibration
# The second writes OUT/predict.txt and OUT/predict.json. MUSHER=program, GPU=name of the catalogue, SMALL=1: a tiny model.
set -eu
part=${1:?usage: predict.sh files|table FOLDER [OUT]} folder=${2:?usage: predict.sh files|table FOLDER [OUT]}
: "${MUSHER:=build/musher}" "${GPU:=H200-SXM}" "${SMALL:=}"
here=$(dirname "$0")
sets=(. hosted)
select_set() { # . or hosted: $names and $plans
    case $1 in
        .) names=(even uneven parallel) ;;
        hosted) names=(state activations) ;;
    esac
    plans=("${names[@]/#/$folder/$1/}")
    plans=("${plans[@]/%/.yaml}")
}
select_set .
number() { sed -n "s/.*\"$2\": *\\([-0-9.e]*\\).*/\\1/p" "$1" | head -n 1; }

if [[ $part == files ]]; then
    steps=8 repeats=15 warm=0.5 sequence=1024 shares=(6 4 2) model=$(tr -d '\n' <"$here/gpt2-124m.json")
    if [[ -n $SMALL ]]; then
        steps=2 repeats=3 warm=0 sequence=16 shares=(3 2 1)
        model='{model_type: gpt2, activation_function: gelu_new, n_embd: 32, n_head: 2, n_layer: 2, n_positions: 32, vocab_size: 256}'
    fi
    batch=$((shares[0] + shares[1] + shares[2]))
    echo "--repeats $repeats --warm $warm" >"$folder/measured" # as it will be asked again
    cat >"$folder/predict-job.yaml" <<J
version: 1
model: $model
sequence_length: $sequence
global_batch: $batch
microbatch: 1
precision: fp32
optimizer: {kind: adamw, lr: 1e-4}
seed: 1
J
    cat >"$folder/predict-cluster.yaml" <<J
version: 1
name: likes
device_types:
  - {name: fast, device: $GPU, slowdown: 3, memory: 40 GiB}
  - {name: middle, device: $GPU, slowdown: 6, memory: 40 GiB}
  - {name: slow, device: $GPU, slowdown: 9, memory: 40 GiB}
nodes:
  - {name: a, host: localhost, devices: [{type: fast, index: 0}]}
  - {name: b, host: localhost, devices: [{type: middle, index: 0}]}
  - {name: c, host: localhost, devices: [{type: slow, index: 0}]}
links:
  - {name: ab, between: [a, b], bandwidth: 10 GB/s, latency: 20 us}
  - {name: ac, between: [a, c], bandwidth: 10 GB/s, latency: 20 us}
  - {name: bc, between: [b, c], bandwidth: 10 GB/s, latency: 20 us}
J
    "$MUSHER" plan -q "$folder/predict-job.yaml" "$folder/predict-cluster.yaml" -o "$folder/even.yaml" --baseline even-pipeline >/dev/null
    end=$(sed -n '/^job:/q; s/.*layers: \[[0-9]*, \([0-9]*\)\].*/\1/p' "$folder/even.yaml" | sort -n | tail -n 1)
    plan() { # NAME REPLICAS
        {
            printf 'version: 1\nname: %s\nmicrobatch: 1\nreplicas:\n%s\n' "$1" "$2"
            sed -n '/^job:/,$p' "$folder/even.yaml"
        } >"$folder/$1.yaml"
    }
    one=$((end * 6 / 11)) two=$((end * 9 / 11))
    plan uneven "  - {microbatches: $batch, stages: [{layers: [0, $one], device: a.0}, {layers: [$((one + 1)), $two], device: b.0}, {layers: [$((two + 1)), $end], device: c.0}]}"
    plan parallel "  - {microbatches: ${shares[0]}, stages: [{layers: [0, $end], device: a.0}]}
  - {microbatches: ${shares[1]}, stages: [{layers: [0, $end], device: b.0}]}
  - {microbatches: ${shares[2]}, stages: [{layers: [0, $end], device: c.0}]}"
    mkdir -p "$folder/hosted"
    sed '/^device_types:/,$d; s/likes/hosting/' "$folder/predict-cluster.yaml" | cat - <(cat <<J
device_types:
  - {name: state, device: $GPU, memory: 40 GiB, offload: optimizer}
  - {name: activations, device: $GPU, memory: 40 GiB}
nodes:
  - {name: s, host: localhost, devices: [{type: state, index: 0}]}
  - {name: a, host: localhost, devices: [{type: activations, index: 0}]}
J
    ) >"$folder/hosted/predict-cluster.yaml"
    cp "$folder/predict-job.yaml" "$folder/hosted"
    hosted() { # NAME STAGE
        printf 'version: 1\nname: %s\nmicrobatch: 1\nreplicas:\n  - {microbatches: %s, stages: [{layers: [0, %s], %s}]}\n' "$1" "$batch" "$end" "$2"
        sed -n '/^job:/,/^cluster:/p' "$folder/even.yaml"
        sed 's/^/  /' "$folder/hosted/predict-cluster.yaml"
    }
    hosted state "device: s.0" >"$folder/hosted/state.yaml"
    hosted activations "device: a.0, offload: activations" >"$folder/hosted/activations.yaml"
    [[ -e $folder/text.txt ]] || cp README.md "$folder/text.txt"
    cp "$folder/text.txt" "$folder/hosted/text.txt"
    for set in "${sets[@]}"; do
        select_set "$set"
        : >"$folder/$set/runs"
        for n in "${names[@]}"; do
            "$MUSHER" lower -q "$folder/$set/$n.yaml" -o "$folder/$set/$n.program" >/dev/null
            echo "$n $steps" >>"$folder/$set/runs"
        done
        "$MUSHER" profile -q "$folder/$set/predict-job.yaml" "$folder/$set/predict-cluster.yaml" "${plans[@]}" $(cat "$folder/measured") --emit "$folder/$set" >/dev/null
    done
    exit
fi

out=$3
predicted() { # SET PROFILE NAME: NAME.PROFILE.json, beside its run
    "$MUSHER" simulate -q "$folder/$1/$3.yaml" --db "$out/$1/predict.db" --profile "$2" --trace "$out/$1/$3.$2.sim" >/dev/null
    "$MUSHER" compare -q "$out/$1/$3.$2.sim" "$out/$1/$3.trace" --json >"$out/$1/$3.$2.json"
}
# predict_set SET: $calibrated, the profile that its runs give (1: a run that is nothing like its profile teaches nothing), and $held_out
predict_set() {
    local db=$out/$1/predict.db traces n
    select_set "$1"
    traces=("${names[@]/#/$out/$1/}")
    rm -f "$db"
    "$MUSHER" profile -q "$folder/$1/predict-job.yaml" "$folder/$1/predict-cluster.yaml" "${plans[@]}" $(cat "$folder/measured") \
        --from "$out/$1" --db "$db" >/dev/null
    for n in "${names[@]}"; do predicted "$1" 1 "$n"; done
    calibrated=2
    "$MUSHER" calibrate -q --db "$db" "${traces[@]/%/.trace}" --json >"$out/$1/calibrate.json" || calibrated=1
    for n in "${names[@]}"; do predicted "$1" $calibrated "$n"; done
    held_out=$(number "$out/$1/calibrate.json" error_held_out)
}
# row SET NAME: plan, measured, profiled and calibrated nanoseconds
row() { echo "$2 $(number "$out/$1/$2.1.json" run_iteration_ns) $(number "$out/$1/$2.1.json" sim_iteration_ns) $(number "$out/$1/$2.$calibrated.json" sim_iteration_ns)"; }

rows=() held_outs=() notes=()
for set in "${sets[@]}"; do
    [[ -e $out/$set/copies ]] || continue # its runs did not end
    predict_set "$set"
    for n in "${names[@]}"; do rows+=("$(row "$set" "$n")"); done
    held_outs+=("${held_out:-null}")
    if ((calibrated == 1)); then
        notes+=("not calibrated: the runs are nothing like the profile")
    else
        notes+=("calibrated on these runs; each plan predicted from the others' runs alone: $(awk -v e="$held_out" 'BEGIN { printf "%.1f %%", 100 * e }') off")
    fi
done
{
    printf '%-12s %12s %12s %8s %12s %8s\n' plan measured profiled error calibrated error
    printf '%s\n' "${rows[@]}" |
        awk '{ printf "%-12s %9.2f ms %9.2f ms %+6.1f %% %9.2f ms %+6.1f %%\n", $1, $2 / 1e6, $3 / 1e6, 100 * ($3 / $2 - 1), $4 / 1e6, 100 * ($4 / $2 - 1) }'
    printf '%s\n' "${notes[@]}"
} >"$out/predict.txt"
{
    printf '{\n  "schema": 1,\n  "error_held_out": [%s],\n  "plans": [' "$(IFS=,; echo "${held_outs[*]}")"
    comma=
    for row in "${rows[@]}"; do
        read -r -a r <<<"$row"
        printf '%s\n    {"plan": "%s", "measured_ns": %s, "profiled_ns": %s, "calibrated_ns": %s}' "$comma" "${r[@]}"
        comma=,
    done
    printf '\n  ]\n}\n'
} >"$out/predict.json"
cat "$out/predict.txt"

#!/bin/bash
# tests/cli/expert_placement.sh - experts placed by popularity: counted by a run, used by a plan, the same training on any placement.
# Losses of fp64 runs are equal to 1e-9, as in tests/cli/experts.sh.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE > "$text"
cat > "$scratch/job.yaml" <<'END'
version: 1
model: {model_type: mixtral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 32, num_local_experts: 8, num_experts_per_tok: 2}
sequence_length: 24
global_batch: 4
microbatch: 2
precision: fp64
optimizer: {kind: adamw, lr: 3e-3}
seed: 7
END
cat > "$scratch/team.yaml" <<'END'
version: 1
name: team
device_types: [{name: fast, device: host, slowdown: 2, memory: 64 MiB}, {name: slow, device: host, slowdown: 5, memory: 64 MiB}]
nodes: [{name: n, host: localhost, devices: [{type: fast}, {type: slow}, {type: slow}]}]
links: [{name: bus, between: [n], bandwidth: 2 GB/s, latency: 20 us}]
END
last=$(($("$MUSHER" show "$scratch/job.yaml" --json | sed -n 's/.*"layers": *\([0-9]*\),.*/\1/p' | head -n 1) - 1))

# plan NAME EXPERTS STAGE: a replica of one stage.
plan() {
    printf 'version: 1\nname: %s\nmicrobatch: 2\n%sreplicas:\n  - microbatches: 2\n    stages:\n%s\njob:\n' "$1" "$2" "$3"
    sed '/^microbatch/d; s/^/  /' "$scratch/job.yaml"
    echo cluster:
    sed 's/^/  /' "$scratch/team.yaml"
} > "$scratch/$1.yaml"
# stage RATIOS: of the experts on all devices.
stage() {
    cat <<END
      - layers: [0, $last]
        devices: [n.0, n.1, n.2]
        sharding:
          ratios: [$1, [2, 1, 1]]
          operators:
            - {match: "*block_sparse_moe*", shard: experts}
            - {match: "*", shard: batch, ratio: 1}
END
}
plan single "" "      - {layers: [0, $last], device: n.0}"
plan even "" "$(stage '[4, 2, 2]')"
plan ordered $'experts:\n  - {block: 0, order: [7, 0, 3, 1, 2, 6, 5, 4]}\n  - {block: 1, order: [1, 0, 7, 2, 3, 4, 6, 5]}\n' "$(stage '[5, 1, 2]')"
plan pipeline $'experts:\n  - {block: 1, order: [4, 0, 7, 2, 3, 1, 6, 5]}\n' "      - {layers: [0, 3], device: n.1}
      - {layers: [4, $last], device: n.0}"

plan zero $'experts:\n  - {block: 0, order: [3, 2, 1, 0, 7, 6, 5, 4]}\n' "      - {layers: [0, $last], device: n.0, zero: 2}
  - microbatches: 1
    stages:
      - {layers: [0, $last], device: n.1, zero: 2}"
sed -i '0,/microbatches: 2/s//microbatches: 1/' "$scratch/zero.yaml"

# routing NAME: the counts of its trace.
routing() { head -n 1 "$scratch/$1.trace" | grep -o '"routing":\[[^}]*},[^}]*}\]'; }

for name in single even ordered pipeline zero; do
    run $name --steps 8 --trace "$scratch/$name.trace" || continue
    [[ $name == single ]] && continue
    d=$(distance "$scratch/single.losses" "$scratch/$name.losses")
    within "$d" 1e-9 && ok "$name trains like one device ($d)" || not_ok "$name trains like one device" "$d"
    [[ -n $(routing $name) && $(routing $name) == "$(routing single)" ]] && ok "$name: every expert has as many tokens" ||
        not_ok "$name: every expert has as many tokens" "$(routing $name), not $(routing single)"
done
sum=$(routing single | grep -o '\[[0-9,]*\]' | head -n 1 | tr -d '[]' | tr ',' '+')
(($((sum)) == 8 * 4 * 24 * 2)) && ok "every token has two experts in every step" || not_ok "every token has two experts in every step" "$sum"
says "show lists the hottest experts" 0 "block 1   hottest experts" "$MUSHER" show "$scratch/single.trace"
says "and as numbers" 0 '"routing": [' "$MUSHER" show --json "$scratch/single.trace"

cp "$scratch/single.losses" "$scratch/all.losses"

# GPUs, of the stand-in, count the gates that they copy to the host.
sed 's/device: host, slowdown: [25], memory: 64 MiB/device: H100-SXM5, memory: 30 GiB/g' "$scratch/ordered.yaml" > "$scratch/gpus.yaml"
run single --steps 2 --trace "$scratch/two.trace"
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=3 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    run gpus --steps 2 --trace "$scratch/gpus.trace"
)
d=$(distance "$scratch/single.losses" "$scratch/gpus.losses")
within "$d" 1e-9 && [[ -n $(routing gpus) && $(routing gpus) == "$(routing two)" ]] && ok "GPUs count the same tokens" ||
    not_ok "GPUs count the same tokens" "$(routing gpus), not $(routing two); losses $d"

# A checkpoint has the model's order: a run continues it on another placement.
run ordered --steps 4 --save "$scratch/half" && cp "$scratch/ordered.losses" "$scratch/first.losses"
for name in single even ordered pipeline zero; do
    run $name --steps 4 --resume "$scratch/half" || continue
    cat "$scratch/first.losses" "$scratch/$name.losses" > "$scratch/joined.losses"
    d=$(distance "$scratch/all.losses" "$scratch/joined.losses")
    within "$d" 1e-9 && ok "$name continues another placement ($d)" || not_ok "$name continues another placement" "$d"
done

# HAP's preset shards many small experts: without counts by equal shares, with the counts of its own run placed by them. natural.yaml is
# the former, priced by the counts.
cd "$scratch" || exit 1
musher=$MUSHER
[[ $musher == /* ]] || musher=$root/$MUSHER
sed 's/num_local_experts: 8/num_local_experts: 12/; s/intermediate_size: 48/intermediate_size: 16/' job.yaml > wide.yaml
nanoseconds() { "$musher" simulate "$1" --json | sed -n 's/.*"iteration_ns": *\([0-9]*\).*/\1/p' | head -n 1; }
says "a plan by equal shares" 0 "time of evenly routed tokens" "$musher" plan wide.yaml team.yaml --baseline hap -o hap.yaml
MUSHER=$musher
run hap --steps 8 --trace "$scratch/hap.trace"
says "a plan by popularity" 0 "time of a run's routed tokens" "$musher" plan wide.yaml team.yaml --baseline hap --routing hap.trace -o placed.yaml
[[ $(sed '/^replicas/Q' placed.yaml | grep -c 'block: .*order: \[.*tokens: \[') == 2 ]] && ok "experts have places" ||
    not_ok "experts have places" "$(sed '/^job/Q' placed.yaml)"
{
    sed '/^replicas/Q' hap.yaml
    sed '/^replicas/Q' placed.yaml | sed -n '/^experts/,$p' | sed 's/ order: \[[^]]*\],//'
    sed -n '/^replicas/,$p' hap.yaml
} > natural.yaml
even=$(nanoseconds hap.yaml) natural=$(nanoseconds natural.yaml) placed=$(nanoseconds placed.yaml)
((even < natural && placed < natural)) && ok "places by popularity are faster ($natural -> $placed ns; with equal shares $even)" ||
    not_ok "places by popularity are faster" "$natural -> $placed; with equal shares $even"
mv hap.losses wide.losses
run placed --steps 8
d=$(distance wide.losses placed.losses)
within "$d" 1e-9 && ok "and train alike ($d)" || not_ok "and train alike" "$d"
says "the same on two threads" 0 "" "$musher" plan wide.yaml team.yaml --baseline hap --routing hap.trace --threads 2 -o again.yaml
cmp -s placed.yaml again.yaml && ok "the same bytes" || not_ok "the same bytes" "$(diff placed.yaml again.yaml | head -n 3)"
says "a search by popularity" 0 "found" "$musher" plan wide.yaml team.yaml --routing hap.trace -o found.yaml
ns=$(nanoseconds found.yaml)
((ns <= placed)) && ok "is no slower than the preset" || not_ok "is no slower than the preset" "$ns, $placed"

# Wrong traces.
sed 's/num_local_experts: 8/num_local_experts: 4/' job.yaml > four.yaml
says "counts of another model" 3 "counts of 8 experts in block 0, of which model" "$musher" plan four.yaml team.yaml --routing single.trace -o no.yaml
sed 's/num_hidden_layers: 2/num_hidden_layers: 1/' job.yaml > one.yaml
says "counts of other blocks" 3 "counts of experts of block 1, which has none" "$musher" plan one.yaml team.yaml --routing single.trace -o no.yaml
"$musher" simulate even.yaml --trace predicted.trace > /dev/null 2>&1
says "a trace without counts" 3 "no tokens of experts are counted" "$musher" plan job.yaml team.yaml --routing predicted.trace -o no.yaml
small_job > dense.yaml
says "a model without experts" 2 "--routing is for models with experts" "$musher" plan dense.yaml team.yaml --routing single.trace -o no.yaml
exit $bad

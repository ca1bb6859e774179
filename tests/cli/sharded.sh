#!/bin/bash
# tests/cli/sharded.sh - random plans with sharded operators have the losses of one device; checkpoints do not depend on the placement.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks="$BUILD/tests/programs/shard_ranks"
# all NAME FIRST COUNT RANKS: the plans of these seeds run without an error.
all() {
    "$ranks" alone $2 $3 > "$scratch/alone" 2> "$scratch/err" &&
        mpirun --oversubscribe --bind-to none -n $4 "$ranks" $2 $3 "$scratch/alone" > "$scratch/out" 2> "$scratch/err"
    local n
    n=$(sed -n 's/^ok \([0-9]*\) plans$/\1/p' "$scratch/out")
    ((${n:-0} == $3)) && ok "$1" || not_ok "$1" "${n:-no} plans: $(head -c 300 "$scratch/err")"
}
each=3
[[ ${MUSHER_LONG:-} ]] && each=60
for n in 2 3 4 5 6; do all "$each plans with sharded stages on $n ranks" $((100 * n)) $each $n; done
all "a parameter outside of all blocks is gathered again where blocks are run again" 222 1 2
all "the same in pipelines" 655 1 6
all "sums of replicas that gather other parameters, beside collectives" 6012 1 6

job() {
    cat <<'END'
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 8
  precision: fp64
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB, slowdown: 2}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n], bandwidth: 200 MB/s, latency: 50 us}]
END
}
begin() { printf 'version: 1\nname: %s\nmicrobatch: 4\nreplicas:\n  - microbatches: 2\n    stages:\n' "$1"; }
{
    begin alone
    echo "      - {layers: [0, 7], device: n.0}"
    job
} > "$scratch/alone.yaml"
{
    begin shared
    cat <<'END'
      - layers: [0, 7]
        devices: [n.0, n.1]
        sharding:
          ratios: [[3, 1], [1, 1]]
          operators:
            - {match: "h.*.attn.*", shard: heads}
            - {match: "h.*.mlp.c_fc*", shard: features, ratio: 1}
            - {match: "h.*.mlp.gelu*", shard: features, ratio: 1}
            - {match: "h.*.mlp.c_proj", shard: inputs, ratio: 1}
            - {match: "lm_head", shard: vocabulary}
            - {match: "*", shard: batch}
END
    job
} > "$scratch/shared.yaml"
# The same with the state sharded over the devices of equal shards (zero: 1); with gradients too, on a mesh.
sed 's/^        sharding:/        zero: 1\n        sharding:/; s/^name: .*/name: divided/' "$scratch/shared.yaml" > "$scratch/divided.yaml"
{
    begin mesh
    cat <<'END'
      - layers: [0, 7]
        devices: [n.0, n.1, n.2, n.3]
        zero: 2
        sharding:
          mesh: [2, 2]
          ratios: [[3, 1, 2, 2]]
          operators:
            - {match: "h.*.attn.*", shard: [batch, heads]}
            - {match: "h.*.mlp.c_fc*", shard: [batch, features]}
            - {match: "h.*.mlp.gelu*", shard: [batch, features]}
            - {match: "h.*.mlp.c_proj", shard: [batch, inputs]}
            - {match: "*", shard: [batch, none]}
END
    job | sed 's/devices: \[{type: cpu}, /&{type: cpu}, {type: cpu}, /'
} > "$scratch/mesh.yaml"
# The last loss of a run, to nine digits.
last() { "$MUSHER" run "$scratch/$1.yaml" --data LICENSE --json "${@:2}" 2> "$scratch/err" | grep '"losses"' | grep -o '[0-9.]*]' | cut -c1-10; }
wanted=$(last alone --steps 6)
last alone --steps 3 --save "$scratch/a" > /dev/null
last shared --steps 3 --save "$scratch/s" > /dev/null
last divided --steps 3 --save "$scratch/d" > /dev/null
last mesh --steps 3 --save "$scratch/m" > /dev/null
for from in a s d m; do
    for to in alone shared divided mesh; do
        got=$(last $to --steps 3 --resume "$scratch/$from")
        [[ $got && $got == "$wanted" ]] && ok "a checkpoint ($from) resumes $to" || not_ok "a checkpoint ($from) resumes $to" "$got, not $wanted: $(cat "$scratch/err")"
    done
done
# In half precision partials are rounded: the losses are close to those of one device, with every algorithm.
for precision in bf16 fp16; do
    for name in shared divided mesh; do
        sed "s/precision: fp64/precision: $precision/" "$scratch/$name.yaml" > "$scratch/half.yaml"
        grep -q "precision: $precision" "$scratch/half.yaml" || not_ok "a plan in $precision" "$(cat "$scratch/half.yaml")"
        got=$(last half --steps 6)
        within "$(awk -v a="${got:-0}" -v b="$wanted" 'BEGIN { d = a / b - 1; print d < 0 ? -d : d }')" 2e-2 &&
            ok "$name in $precision" || not_ok "$name in $precision" "$got, not about $wanted: $(head -c 300 "$scratch/err")"
    done
done
# All parameters sharded: all-gathered for the forward and the backward, with recomputed blocks, all or one; and with gradients sharded over two
# replicas.
gathered() { # DEVICES RESHARD HOW
    printf '      - {layers: [0, 7], devices: [%s], %s, sharding: {parameters: [{match: "*", reshard_after_forward: %s}]}}\n' "$1" "$3" "$2"
}
for reshard in false true; do
    some=
    [[ $reshard == false ]] || some=", recompute_blocks: 1"
    { begin gathered && gathered "n.0, n.1" $reshard "recompute: blocks$some" && job; } > "$scratch/gathered.yaml"
    {
        begin parts && gathered "n.0, n.1" $reshard "zero: 2"
        printf '  - microbatches: 2\n    stages:\n' && gathered "n.2, n.3" $reshard "zero: 2"
        job | sed 's/devices: \[{type: cpu}, /&{type: cpu}, {type: cpu}, /'
    } | sed 's/^microbatch: 4/microbatch: 2/' > "$scratch/parts.yaml"
    for name in gathered parts; do
        got=$(last $name --steps 6)
        [[ $got && $got == "$wanted" ]] && ok "$name (reshard_after_forward: $reshard)" || not_ok "$name (reshard_after_forward: $reshard)" "$got, not $wanted: $(cat "$scratch/err")"
    done
done
# A cut with several live activations, some of which the next stage reads as shards: inside an attention of fine layers.
inside() {
    begin inside
    cat <<END
      - {layers: [0, $1], device: n.0}
      - layers: [$(($1 + 1)), 8]
        devices: [n.1, n.2]
        sharding:
          ratios: [[3, 1]]
          operators:
            - {match: "*norm*", shard: batch}
            - {match: "*.mlp.down*", shard: inputs}
            - {match: "*", shard: features}
END
    job | sed 's/model: .*/model: {model_type: llama, hidden_act: silu, hidden_size: 32, intermediate_size: 40, num_hidden_layers: 1, num_attention_heads: 4, max_position_embeddings: 32, num_key_value_heads: 2, rms_norm_eps: 1e-5, tie_word_embeddings: true, vocab_size: 256}\n  layers: fine/; s/devices: \[{type: cpu}, /&{type: cpu}, /'
}
inside 7 | sed '/- layers:/,/shard: features/d; s/\[0, 7\]/[0, 8]/' > "$scratch/inside.yaml"
fine=$(last inside --steps 6)
for k in 1 2 5; do
    inside $k > "$scratch/inside.yaml"
    got=$(last inside --steps 6)
    [[ $got && $got == "$fine" ]] && ok "a stage ends behind fine layer $k" || not_ok "a stage ends behind fine layer $k" "$got, not $fine: $(cat "$scratch/err")"
done
says "a plan that shards operators is lowered" 0 "" "$MUSHER" lower "$scratch/shared.yaml" -o "$scratch/shared.program"
says "a program file with collectives runs" 0 '"losses"' "$MUSHER" run "$scratch/shared.program" --steps 2 --data LICENSE --json
says "collectives are simulated" 0 "peak memory" "$MUSHER" simulate "$scratch/shared.yaml" --trace "$scratch/sim.trace"
says "collectives are explained" 0 "collective" "$MUSHER" simulate "$scratch/shared.yaml" --explain
says "the memory of a device is printed" 0 "collective buffers" "$MUSHER" memory "$scratch/shared.yaml"
has "and the collective of its buffers" out "data in flight of all_to_all lm_head.group_all_to_all"
says "show lists sharded stages" 0 "(mixed: " "$MUSHER" show "$scratch/shared.yaml"
has "with the ratios" out "n.0 75 %, n.1 25 %"
has "with the sharded index" out "heads                  h.*.attn.*"
has "with the other ratios" out "features (ratios 1)    h.*.mlp.c_fc*, h.*.mlp.gelu*"
grep -q 'parameters *n.0 [0-9.]* %, n.1 [0-9.]* % of [0-9]* KiB' "$scratch/out" && ok "and each device's share of the parameters" || not_ok "and each device's share of the parameters" "$(cat "$scratch/out")"
says "the same as JSON" 0 '{"match": "h.*.attn.*", "shard": ["heads"], "ratio": [0], "sufficient_factors": false}' "$MUSHER" show "$scratch/shared.yaml" --json
says "runs leave traces of collectives" 0 "measured" "$MUSHER" run "$scratch/shared.yaml" --steps 4 --data LICENSE --trace "$scratch/run.trace"
says "predicted and measured collectives are compared" 0 "reduce_scatter" "$MUSHER" compare "$scratch/sim.trace" "$scratch/run.trace"
has "each kind by itself" out "all_to_all"
"$MUSHER" plot "$scratch/sim.trace" -o "$scratch/p.gp"
grep -q "title 'all_gather'.*title 'reduce_scatter'.*title 'all_to_all'" "$scratch/p.gp" && ok "an image has a colour for each kind" || not_ok "an image has a colour for each kind" "$(grep ^plot "$scratch/p.gp")"
sed 's/shard: heads/shard: experts/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "an unknown index is refused with its place" 3 "bad.yaml:" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
[[ $(grep -o 'bad.yaml:' "$scratch/err" | wc -l) == 1 ]] && ok "and one place alone" || not_ok "and one place alone" "$(cat "$scratch/err")"
sed 's/^microbatch: 4/microbatch: 4\ndeterministic: true/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "sharded stages exclude --deterministic" 3 "cannot be deterministic" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
sed 's/shard: heads/shard: [heads, none]/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "more values than axes are refused" 3 "shard: 2 values, the mesh has 1 axis" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
sed 's/^  - microbatches: 2/  - microbatches: 2\n    orders: {n.0: "F0 B0 F1 B1", n.1: "F0 B0 F1 B1"}/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "an order for a device that is not the first of its stage is refused" 3 "'n.1' has the order of 'n.0', the first device" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
says "a search starts from a sharded plan" 0 "found" "$MUSHER" plan --from "$scratch/shared.yaml" -o "$scratch/x.yaml"
says "also without one of its devices" 0 "found" "$MUSHER" plan --from "$scratch/shared.yaml" --without n.1 -o "$scratch/x.yaml"
says "whatif of a sharded plan" 0 "old plan cannot run (without n.1): it uses n.1" "$MUSHER" whatif "$scratch/shared.yaml" --without n.1
says "goodput of a sharded plan" 0 "goodput" "$MUSHER" goodput "$scratch/shared.yaml" --replan-speeds --mtbf 12h --repair 2h

# The preset with every operator sharded over all devices, as the search returned it.
{ job | sed -n '/^job:/,/^cluster:/s/^  //p'; } > "$scratch/job.yaml"
{ job | sed -n '/^cluster:/,$s/^  //p' | sed 's|device_types:.*|device_types: [{name: cpu, device: host, memory: 1 GiB, slowdown: 2}, {name: slow, device: host, memory: 1 GiB, slowdown: 3}]|; s|{type: cpu}]|{type: slow}]|; s|200 MB/s|20 GB/s|; s|50 us|1 us|'; } > "$scratch/team.yaml"
says "hap is planned" 0 "(mixed: " "$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" --baseline hap -o "$scratch/hap.yaml"
says "a search starts from it" 0 "(mixed: " "$MUSHER" plan --from "$scratch/hap.yaml" --evaluations 20 -o "$scratch/x.yaml"
"$MUSHER" simulate "$scratch/hap.yaml" --json > "$scratch/old.json"
"$MUSHER" simulate "$scratch/x.yaml" --json > "$scratch/new.json"
ns() { grep -o '"iteration_ns": [0-9]*' "$scratch/$1" | head -1 | tr -dc 0-9; }
(($(ns new.json) <= $(ns old.json))) && ok "and is not slower" || not_ok "and is not slower" "$(ns new.json) and $(ns old.json)"
got=$(last hap --steps 6)
[[ $got && $got == "$wanted" ]] && ok "hap's plan trains like one device" || not_ok "hap's plan trains like one device" "$got, not $wanted: $(cat "$scratch/err")"
# The search's prediction of a plan equals the simulator's, for the model families whose gradients differ most.
families='{model_type: llama, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 48, vocab_size: 256, max_position_embeddings: 32}
{model_type: qwen3, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 48, vocab_size: 256, max_position_embeddings: 32}
{model_type: bert, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 64, vocab_size: 256, max_position_embeddings: 32}
{model_type: vit, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 64, image_size: 16, patch_size: 4, num_channels: 3, num_labels: 10}'
while read -r model; do
    family=$(sed 's/{model_type: \([a-z0-9]*\).*/\1/' <<< "$model")
    {
        printf 'version: 1\nmodel: %s\nglobal_batch: 8\nmicrobatch: 4\nprecision: fp32\n' "$model"
        [[ $family == vit ]] || echo "sequence_length: 24"
    } > "$scratch/family.yaml"
    "$MUSHER" plan "$scratch/family.yaml" "$scratch/team.yaml" --baseline hap -o "$scratch/x.yaml" > /dev/null 2> "$scratch/err"
    "$MUSHER" simulate "$scratch/x.yaml" --json > "$scratch/new.json"
    said=$(grep -o "predicted_ns: [0-9]*" "$scratch/x.yaml" | tr -dc 0-9)
    [[ $said && $said == "$(ns new.json)" ]] && ok "$family: hap's plan has its predicted time" || not_ok "$family: hap's plan has its predicted time" "$said and $(ns new.json): $(cat "$scratch/err")"
done <<< "$families"
exit $bad

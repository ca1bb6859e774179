#!/bin/bash
# tests/cli/metrics.sh - the figures of plan, simulate, whatif and show: the same block and keys everywhere, by hand, unknown where a number is missing.
set -u
. tests/cli/common.inc
cd "$scratch" || exit 6
small_job > job.yaml
small_team | sed 's/name: fast,/name: fast, price: 3.6\/h,/; s/name: slow,/name: slow, price: 0.9\/h,/' > team.yaml
"$MUSHER" plan job.yaml team.yaml --baseline even-pipeline --tokens 1M -o plan.yaml > plan.out 2> err || not_ok "a plan" "$(cat err)"
# block FILE: the lines from the rate to the last device type.
block() { sed -n '/^  rate /,$p' "$1" | sed -n '1,/^  slow  /p'; }
block plan.out > plan.block
[[ $(wc -l < plan.block) = 7 ]] && ok "rate, MFU, cost, run and a line for each device type" || not_ok "rate, MFU, cost, run and a line for each device type" "$(cat plan.out)"
"$MUSHER" simulate plan.yaml --tokens 1M > simulate.out 2> err && block simulate.out > simulate.block || not_ok "simulate" "$(cat err)"
"$MUSHER" show plan.yaml --tokens 1M > show.out 2> err && block show.out > show.block || not_ok "show" "$(cat err)"
"$MUSHER" whatif plan.yaml --link a:b=1GB/s --tokens 1M --evaluations 1 > whatif.out 2> err || not_ok "whatif" "$(cat err)"
grep -q '^  microbatches of 1 sequence, ' show.out && ok "one sequence" || not_ok "one sequence" "$(grep microbatches show.out)"
for verb in simulate show; do
    cmp -s plan.block $verb.block && ok "$verb prints what plan prints" || not_ok "$verb prints what plan prints" "$(diff plan.block $verb.block)"
done
(($(grep -c '^  rate ' whatif.out) == 2)) && ok "whatif prints a block a variant" || not_ok "whatif prints a block a variant" "$(cat whatif.out)"

# JSON: the same keys, and the values of the text.
"$MUSHER" simulate plan.yaml --tokens 1M --json > simulate.json 2> err
"$MUSHER" show plan.yaml --tokens 1M --json > show.json 2> err
"$MUSHER" plan job.yaml team.yaml --baseline even-pipeline --tokens 1M -o plan.yaml --json > plan.json 2> err
"$MUSHER" whatif plan.yaml --link a:b=1GB/s --tokens 1M --evaluations 1 --json > whatif.json 2> err
# metrics FILE: the first object `metrics`, without the indentation.
metrics() { sed -n '/"metrics": {/,/"unknown"/p' "$1" | sed '/"unknown"/q' | sed 's/^ *//'; }
metrics simulate.json > one
[[ $(wc -l < one) -gt 15 ]] || not_ok "metrics in JSON" "$(cat simulate.json)"
for verb in show plan; do
    metrics $verb.json > other
    cmp -s one other && ok "the JSON of $verb is that of simulate" || not_ok "the JSON of $verb is that of simulate" "$(diff one other)"
done
metrics whatif.json | grep -o '^"[a-z_]*"' > other
grep -o '^"[a-z_]*"' one | cmp -s - other && ok "whatif has the same keys" || not_ok "whatif has the same keys" "$(cat other)"
# number KEY: its value in the JSON of simulate. same NAME VALUE TEXT: equal to half a per cent; TEXT may end in k or M.
number() { grep -o "\"$1\": [0-9.e+-]*" one | head -n 1 | sed 's/.*: //'; }
same() {
    awk -v x="$2" -v t="$3" 'BEGIN { f = t ~ /k$/ ? 1e3 : t ~ /M$/ ? 1e6 : 1; y = t * f; d = x > y ? x - y : y - x; exit !(y > 0 && d <= 0.005 * y) }' &&
        ok "$1" || not_ok "$1" "$2 in JSON, $3 in text"
}
same "tokens/s of text and JSON" "$(number tokens_per_s)" "$(sed -n 's/^  rate *\([0-9.]*[kM]*\) tokens.*/\1/p' show.out)"
same "samples/s of text and JSON" "$(number samples_per_s)" "$(sed -n 's/.*tokens\/s, \([0-9.]*[kM]*\) samples.*/\1/p' show.out)"
same "MFU of text and JSON" "$(awk -v x="$(number mfu)" 'BEGIN { print 100 * x }')" "$(sed -n 's/^  MFU *\([0-9.]*\) %.*/\1/p' show.out)"
same "cost of text and JSON" "$(number cost)" "$(sed -n 's/^  cost *\([0-9.e-]*\) per.*/\1/p' show.out)"
same "days of text and JSON" "$(awk -v d="$(number days)" 'BEGIN { print d < 0.095 ? 24 * d : d }')" "$(sed -n 's/^  run.*iterations: \([0-9.]*\) .*/\1/p' show.out)"
ns=$(grep -o '"iteration_ns": [0-9]*' simulate.json | head -n 1 | sed 's/.*: //')
same "tokens/s are the tokens of a batch over the iteration" "$(number tokens_per_s)" "$(awk -v n="$ns" 'BEGIN { printf "%.9g", 6 * 24 / (n * 1e-9) }')"
same "the price is that of the used devices" "$(number price_per_h)" 5.4
same "the cost of an iteration" "$(number cost)" "$(awk -v n="$ns" 'BEGIN { printf "%.9g", 5.4 * n / 3.6e12 }')"
same "iterations of a run" "$(number steps)" "$(awk 'BEGIN { print int((1000000 + 143) / 144) }')"
awk '/"type"/ { n = split($0, f, /[:,]/); s = 0; for (i = 1; i < n; i++) if (f[i] ~ /"(busy|messages|collectives|bubble|imbalance)"/) s += f[i + 1]; if (s < 0.999999 || s > 1.000001) bad = 1; rows++ } END { exit !(rows == 2 && !bad) }' one &&
    ok "the shares of a device type add up to 1" || not_ok "the shares of a device type add up to 1" "$(grep type one)"

# What is missing is said, and the rest is there.
small_team | sed 's/name: fast,/name: fast, price: 3.6\/h,/' > part.yaml
says "a type without a price" 0 "cost       unknown: no price of slow" "$MUSHER" plan job.yaml part.yaml --baseline even-pipeline -o part.plan.yaml
says "in a run too" 0 "cost unknown (no price of slow), energy unknown (no power of fast)" "$MUSHER" show part.plan.yaml --tokens 1M
says "null in JSON" 0 '"unknown": ["no price of slow", "no power of fast"]' "$MUSHER" show part.plan.yaml --tokens 1M --json
has "with the price" out '"price_per_h": null'

# A cluster without prices: the catalogue's, where it lists every used type.
small_team | sed 's/device: host, slowdown: 2/device: H100-SXM5/; s/device: host, slowdown: 5/device: L40S/; s/64 MiB/4 GiB/g' > listed.yaml
says "the catalogue's prices" 0 "5.67 per hour, in USD at the catalogue's on-demand prices" "$MUSHER" plan job.yaml listed.yaml --baseline even-pipeline --tokens 1T -o listed.plan.yaml
grep -q "cost [0-9.]* USD" out && ok "a run in USD" || not_ok "a run in USD" "$(cat out)"
says "in JSON too" 0 '"price_source": "catalogue"' "$MUSHER" show listed.plan.yaml --json
sed 's/device: H100-SXM5,/device: H100-SXM5, price: 3\/h,/' listed.yaml > mixed.yaml
says "are not added to other prices" 0 "cost       unknown: no price of slow" "$MUSHER" plan job.yaml mixed.yaml --baseline even-pipeline -o mixed.plan.yaml

# With the objective cost every baseline has its cost beside the plan's. A type needs a price, which may be zero.
says "the cost of a baseline" 0 " times the cost, " "$MUSHER" plan job.yaml team.yaml --objective cost --evaluations 20 -o cheap.yaml
says "a type without a price" 3 "device type 'slow' of cluster" "$MUSHER" plan job.yaml part.yaml --objective cost --evaluations 20 -o cheap.yaml
has "what is to be written" err "write price: 3.2/h, or price: 0/h if it is free"
sed 's/name: slow,/name: slow, price: 0\/h,/' part.yaml > free.yaml
says "free types" 0 "no lower bound of cost, because device types are free: slow" "$MUSHER" plan job.yaml free.yaml --objective cost --evaluations 20 -o cheap.yaml
says "free types are written" 0 "price: 0/h" cat cheap.yaml
sed 's/price: 3.6/price: 0/' free.yaml > all-free.yaml
says "all free" 3 "so that every plan costs the same" "$MUSHER" plan job.yaml all-free.yaml --objective cost -o cheap.yaml

"$MUSHER" plan job.yaml part.yaml --evaluations 20 -o cheap.yaml > out 2> err && ! grep -q "costs " out && ok "no cost where a type has no price" || not_ok "no cost where a type has no price" "$(cat out err)"

# GPUs that cost more than they bring stay idle, in small clusters too.
sed 's/{name: h100,/{name: h100, price: 3\/h,/; s/{name: v100,/{name: v100, price: 10\/h,/' "$OLDPWD/examples/rack.yaml" > dear.yaml
"$MUSHER" plan "$OLDPWD/examples/llama-8b.yaml" dear.yaml --objective cost --evaluations 500 -o cheap.yaml --json > out 2> err || not_ok "the cheapest plan" "$(cat err)"
grep -q '"device": *old\|device: old\|devices: \[old' cheap.yaml && not_ok "dear GPUs stay idle" "$(grep -c old cheap.yaml) lines name them" || ok "dear GPUs stay idle"
awk '/"cost":/ { gsub(/[^0-9.e-]/, "", $2); exit !($2 > 0 && $2 < 0.021) }' out && ok "at the cost of the others alone" || not_ok "at the cost of the others alone" "$(grep -m1 cost out)"

# The length of a run, from the job or the command line.
(small_job; echo "tokens: 2 T") > long.yaml
"$MUSHER" plan long.yaml team.yaml --baseline even-pipeline -o long.plan.yaml > out 2> err || not_ok "tokens in a job" "$(cat err)"
has "tokens of the job" out "run        2T tokens in 13888888889 iterations: "
has "are written with it" long.plan.yaml "tokens: 2000000000000"
says "and read again" 0 "run        2T tokens" "$MUSHER" show long.plan.yaml
says "the command line goes before" 0 "run        144 tokens in 1 iterations" "$MUSHER" show long.plan.yaml --tokens 144
says "no count" 2 "--tokens: '1X' is not a count from 1 to 1e18, such as 300B, 1T or 1.5e12" "$MUSHER" show plan.yaml --tokens 1X
says "images of a text model" 2 "is trained on tokens: give --tokens" "$MUSHER" simulate plan.yaml --images 1M
says "tokens of a cluster" 2 "are for plans; team.yaml is a cluster" "$MUSHER" show team.yaml --tokens 1M
(small_job; echo "tokens: many") > bad.yaml
says "a job without a count" 3 "bad.yaml:6:9: tokens: 'many' is not a count" "$MUSHER" show bad.yaml
(small_job; echo "images: 1M") > bad.yaml
says "images of a text job" 3 'write `tokens:`' "$MUSHER" show bad.yaml

# A plan of a profile is not simulated without it.
sed 's/^made_by: {.*/made_by: {musher: 0.1, profile: 7, seed: 1, predicted_ns: 2000000}/' plan.yaml > profiled.yaml
says "a plan of a profile keeps its predicted time" 0 "rate       72k tokens/s" "$MUSHER" show profiled.yaml
has "without the use of the devices" out "(--db of profile 7 gives the use of the devices)"
sed 's/^made_by: {.*/made_by: {musher: 0.1, profile: 0, seed: 1, predicted_ns: 2000000}/' plan.yaml > edited.yaml
says "an edited plan is simulated" 0 "  simulated " "$MUSHER" show edited.yaml

# Experts: what memory is sized for is said, and the job states another load.
{
    echo 'version: 1'
    echo 'model: {model_type: mixtral, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 64, num_local_experts: 8}'
    printf 'sequence_length: 64\nglobal_batch: 6\nmicrobatch: 1\n'
} > experts.yaml
peak() { grep -o '"peak_bytes": [0-9]*' "$1" | head -n 1 | sed 's/.*: //'; }
says "experts without a capacity" 0 '64 tokens of a sequence in each, 4 × the even share (no token is dropped; `expert_imbalance: 2` in the job' "$MUSHER" plan experts.yaml team.yaml --baseline even-pipeline -o experts.plan.yaml
"$MUSHER" show experts.plan.yaml --json > loose.json 2> err
(cat experts.yaml; echo 'expert_imbalance: 2') > stated.yaml
says "a stated imbalance" 0 "32 tokens of a sequence in each, 2 × the even share (expert_imbalance 2; a run would skip further tokens)" "$MUSHER" plan stated.yaml team.yaml --baseline even-pipeline -o stated.plan.yaml
says "is in the plan" 0 "2 × the even share" "$MUSHER" show stated.plan.yaml
"$MUSHER" show stated.plan.yaml --json > tight.json 2> err
(($(peak tight.json) < $(peak loose.json))) && ok "and takes less memory" || not_ok "and takes less memory" "$(peak tight.json), $(peak loose.json)"

# Parameters of a sharded stage, on devices that are not the first of the cluster.
two_stages | sed 's/{layers: \[0, 3\].*/{layers: [0, 3], device: n.1}, {layers: [4, 7], devices: [n.2, n.3], sharding: {operators: [{match: "*", shard: batch}]}}]}/; s/microbatch: 1/microbatch: 2/; s/microbatches: 2/microbatches: 1/; s/devices: \[{type: cpu}, {type: cpu}\]/devices: {type: cpu, count: 4}/; s/between: \[n\]/&, bandwidth: 1 GB\/s, latency: 10 us/' > late.yaml
says "parameters of a stage on later devices" 0 "parameters             100 % each of" "$MUSHER" show late.yaml
has "are not 0" out " KiB"
rules='operators: [{match: "h.*.mlp.gelu", shard: batch}, {match: "h.*.mlp.c_fc", shard: batch}, {match: "h.*.attn.*", shard: batch}, {match: "wte", shard: batch}, {match: "*", shard: batch}]'
sed "s/device: n.1}/devices: [n.0, n.1], sharding: {$rules}}/; s/operators: \[{match: \"\*\", shard: batch}\]/$rules/" late.yaml > twice.yaml
says "devices of a stage in few words" 0 "replica 0, stage 1: layers 4-7 on n.2-3" "$MUSHER" show twice.yaml
has "equal rules on one line, with their number" out "h.*.mlp.gelu, h.*.mlp.c_fc, h.*.attn.* and 2 more"
has "of several stages once" out "ratios, operators as   replica 0, stage 0"
says "all rules" 0 "h.*.mlp.gelu, h.*.mlp.c_fc, h.*.attn.*, wte, *" "$MUSHER" show twice.yaml --all

# Devices that no link reaches.
small_team | sed 's/^  - {name: lan.*//' > apart.yaml
says "devices that no link reaches" 0 "unused: b.0: no link joins it to the devices of the plan" "$MUSHER" plan job.yaml apart.yaml --evaluations 20 -o apart.plan.yaml
has "which presets need" out "uses all devices, but no link joins b.0 to the others"
says "in JSON too" 0 '"idle_without_link": [' "$MUSHER" plan job.yaml apart.yaml --evaluations 20 -o apart.plan.yaml --json

# 10,240 GPUs of four types, 1,280 replicas: 30 lines at most.
layers=(0,1 2,3 4,5 6,7 8,9 10,11 12,13 14,19)
{
    printf 'version: 1\nname: fleet\nmicrobatch: 4\nmade_by: {predicted_ns: 20000000000}\nreplicas:\n'
    for type in h:40 a:24 b:20 v:12; do
        awk -v n="${type%:*}" -v m="${type#*:}" -v layers="${layers[*]}" 'BEGIN {
            split(layers, l, " ")
            for (r = 0; r < 320; r++) {
                printf "  - {microbatches: %d, stages: [", m
                for (s = 0; s < 8; s++) printf "%s{layers: [%s], device: %s%d.%d}", s ? ", " : "", l[s + 1], n, r, s
                print "]}"
            } }'
    done
    echo "job:"
    grep -v '^#' "$root/examples/fleet-job.yaml" | sed 's/global_batch: .*/global_batch: 122880/; s/n_embd: [0-9]*, n_layer: [0-9]*, n_head: [0-9]*/n_embd: 1024, n_layer: 8, n_head: 16/; s/^/  /'
    echo "cluster:"
    grep -v '^#' "$root/examples/fleet-10240.yaml" | sed 's/^/  /'
} > fleet.yaml
says "a plan of 10,240 GPUs" 0 "the fp16 peak of 10240 devices" "$MUSHER" show fleet.yaml --tokens 1T
(($(wc -l < out) <= 30)) && ok "prints in 30 lines" || not_ok "prints in 30 lines" "$(wc -l < out)"
has "a class of replicas takes one" out "320 replicas of 12 microbatches: layers 0-13 in 7 stages, 14-19 on 1 v100 each"
has "a device type too" out "  v100            2560 "
exit $bad

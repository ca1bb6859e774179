#!/bin/bash
# tests/cli/local_zero.sh - ZeRO inside islands (core/lower/zero.c, outer.c), really run: shards of state are exchanged between islands. Every level gives the
# losses of level 0 with the same islands; checkpoints hold whole tensors, so that a plan of another level continues them.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME OPTIMIZER LOCAL ZERO REPLICAS [PRECISION]: four host devices; with this level in the place of ZERO
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: local
microbatch: 1
${3:+local_sgd: $3}
replicas:
${5//ZERO/$4}
$(four_hosts "${6:-fp64}" "$2")
END
}
near() { [[ $(wc -l <"$1") -gt 0 && $(wc -l <"$1") == $(wc -l <"$2") ]] && within "$(distance "$1" "$2")" "$3"; }

replicas='  - {microbatches: 1, stages: [{layers: [0, 7], zero: ZERO, device: n.0, bucket: 8 KiB}]}
  - {microbatches: 3, stages: [{layers: [0, 7], zero: ZERO, device: n.1, bucket: 8 KiB}]}
  - {microbatches: 1, stages: [{layers: [0, 7], zero: ZERO, device: n.2, bucket: 8 KiB}]}
  - {microbatches: 3, stages: [{layers: [0, 7], zero: ZERO, device: n.3, bucket: 8 KiB}]}'
folded='  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 3], zero: ZERO, device: n.0}, {layers: [4, 7], zero: ZERO, device: n.0}]}
  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 3], zero: ZERO, device: n.1}, {layers: [4, 7], zero: ZERO, device: n.1}]}
  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 3], zero: ZERO, device: n.2}, {layers: [4, 7], zero: ZERO, device: n.2}]}
  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 3], zero: ZERO, device: n.3}, {layers: [4, 7], zero: ZERO, device: n.3}]}'
sharded='  - microbatches: 5
    stages:
      - layers: [0, 7]
        zero: ZERO
        devices: [n.0, n.1]
        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}
  - microbatches: 3
    stages:
      - layers: [0, 7]
        zero: ZERO
        devices: [n.2, n.3]
        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}'
adamw='adamw, lr: 1e-2' sgd='sgd, lr: 0.1'
islands='[[0, 2], [1, 3]]'

# --- the losses of level 0 ---

for local in "{every: 3, islands: $islands, outer: nesterov}" "{every: 4, islands: $islands, outer: nesterov, fragments: 2, delay: 2}" "{every: [4, 2], islands: $islands}" \
    "{every: [4, 8], islands: $islands, outer: nesterov, fragments: 2, delay: 2}"; do
    plan plan "$adamw" "$local" 0 "$replicas"
    losses plan 9 >"$scratch/zero0"
    for zero in 1 2 3; do
        plan plan "$adamw" "$local" $zero "$replicas"
        losses plan 9 >"$scratch/losses" && near "$scratch/zero0" "$scratch/losses" 1e-12
        check "zero $zero trains as zero 0: $local" $?
    done
done
plan plan "$sgd" '' 0 "$replicas"
losses plan 6 >"$scratch/sync"
for zero in 1 2 3; do
    plan plan "$sgd" "{every: 1, islands: $islands}" $zero "$replicas"
    losses plan 6 >"$scratch/losses" && near "$scratch/sync" "$scratch/losses" 1e-12
    check "zero $zero, every: 1, SGD and the average: synchronous training" $?
done
# The devices of a sharded stage that keep the same parameters divide their state; tied embeddings of two chunks are not divided.
for turn in "sharded [[0], [1]]" "folded $islands"; do
    case=${turn%% *}
    local="{every: [4, 2], islands: ${turn#* }, outer: nesterov}"
    plan plan "$adamw" "$local" 0 "${!case}"
    losses plan 7 >"$scratch/zero0"
    for zero in 1 2; do
        plan plan "$adamw" "$local" $zero "${!case}"
        losses plan 7 >"$scratch/losses" && near "$scratch/zero0" "$scratch/losses" 1e-12
        check "zero $zero trains as zero 0: $case" $?
    done
done
plan plan "$adamw" "{every: 3, islands: $islands, outer: nesterov}" 0 "$replicas" bf16
losses plan 7 >"$scratch/zero0"
for zero in 1 2 3; do
    plan plan "$adamw" "{every: 3, islands: $islands, outer: nesterov}" $zero "$replicas" bf16
    losses plan 7 >"$scratch/losses" && near "$scratch/zero0" "$scratch/losses" 1e-2
    check "zero $zero in bf16" $?
done
plan plan "$adamw" "{every: 3, islands: $islands, outer: nesterov}" 2 "$replicas" fp32
sed -i 's/^local_sgd:/compression: {outer: bf16}\n&/' "$scratch/plan.yaml"
losses plan 7 >"$scratch/losses" && near "$scratch/zero0" "$scratch/losses" 1e-2
check "exchanges of shards in bf16" $?

# --- checkpoints ---

for zero in 1 2 3; do
    for local in "{every: 4, islands: $islands, outer: nesterov}" "{every: [4, 2], islands: $islands, outer: nesterov}" "{every: 4, islands: $islands, outer: nesterov, delay: 3}"; do
        plan plan "$adamw" "$local" $zero "$replicas"
        losses plan 9 >"$scratch/all"
        rm -rf "$scratch/saved"
        losses plan 5 --save "$scratch/saved" >"$scratch/parts" && losses plan 4 --resume "$scratch/saved" >>"$scratch/parts"
        [[ $(wc -l <"$scratch/parts") == 9 ]] && cmp -s "$scratch/all" "$scratch/parts"
        check "zero $zero resumed within a local phase: the same bits: $local" $?
    done
done
local="{every: 4, islands: $islands, outer: nesterov, delay: 3}"
plan plan "$adamw" "$local" 3 "$replicas"
rm -rf "$scratch/saved" "$scratch/whole"
losses plan 9 --save "$scratch/saved" >/dev/null && losses plan 4 --resume "$scratch/saved" >"$scratch/losses"
plan plan "$adamw" "$local" 0 "$replicas"
losses plan 9 --save "$scratch/whole" >/dev/null && losses plan 4 --resume "$scratch/saved" >"$scratch/zero0" && near "$scratch/zero0" "$scratch/losses" 1e-12
check "a checkpoint of zero 3 is resumed by zero 0" $?
names() { sed -n 's/.*"name": *"\([^"]*\)".*"shape": *\(\[[^]]*\]\).*/\1 \2/p' "$scratch/$1"/step-*/manifest.json | sort; }
cmp -s <(names saved) <(names whole) && [[ $(names saved | grep -c '#sum') -gt 0 && $(names saved | grep -c '#m@1') -gt 0 && $(names saved | grep -c '#anchor@') == 0 ]]
check "and has the same tensors, those of islands under their names" $?
weight=transformer.h.1.mlp.c_proj.weight
for tensor in $weight $weight@1 "$weight#m@1" "$weight#anchor" "$weight#velocity" "$weight#sum"; do
    paste <(checkpoint_values "$scratch/saved" "$tensor") <(checkpoint_values "$scratch/whole" "$tensor") | awk '{ d = $1 - $2; if (!(d < 1e-12 && d > -1e-12) || NF != 2) bad = 1; some += $1 != 0 } END { exit bad || !some }'
    check "with the same values: $tensor" $?
done

# --- memory, simulation ---

bytes() {
    plan plan "$adamw" "{every: 16, islands: $islands, outer: nesterov}" $1 "$replicas" fp32
    "$MUSHER" memory -q "$scratch/plan.yaml" --json 2>"$scratch/err" | awk -F '[:,]' '/"name": "(optimizer state|gradients|parameters)"/ { n += $4 } /"id"/ && devices++ { exit } END { print n }'
}
plain=$(bytes 0) one=$(bytes 1) second=$(bytes 2) third=$(bytes 3)
# Of 4 (parameter) + 4 (gradient) + 16 (m, v, anchor, velocity) bytes two devices divide 16, 20 or 24; the embedding's second gradient, 32 KiB, is whole until it is
# added to the shard of the first.
awk -v p="$plain" -v a="$one" -v b="$second" -v c="$third" 'function near(x, y) { return x > y && x < 1.005 * y + 1 } BEGIN { n = (p - 32768) / 24; exit !(n > 0 && near(a + 1, 16 * n + 32768) && near(b + 1, 14 * n) && near(c + 1, 12 * n)) }'
check "state, gradients and parameters of an island are divided ($plain, $one, $second, $third bytes)" $?
for zero in 1 2 3; do
    plan plan "$adamw" "{every: [16, 8], islands: $islands, outer: nesterov}" $zero "$replicas" fp32
    "$MUSHER" simulate "$scratch/plan.yaml" --explain >"$scratch/out" 2>"$scratch/err" && grep -q "every 16 steps between 2 islands" "$scratch/out" && "$MUSHER" report -q "$scratch/plan.yaml" -o "$scratch/page.html"
    check "simulated, explained and reported: zero $zero" $?
done

# refused PATTERN LOCAL ZERO REPLICAS: exit 3 with this message
refused() {
    plan bad "$adamw" "$2" "$3" "$4"
    "$MUSHER" simulate -q "$scratch/bad.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused 'zero: 1 shards over the devices of an island, and there is only one' '{every: 2}' 1 "$replicas"
refused 'needs islands of equally many devices, .* on 3 devices of island 0 and 1 of island 1' '{every: 2, islands: [[0, 1, 2], [3]]}' 1 "$replicas"
refused 'needs replicas with equal numbers of microbatches' '{every: 2, islands: [[0, 1], [2, 3]]}' 2 "$replicas"
refused 'hybrid_shard: with local_sgd zero shards over the replicas of an island' "{every: 2, islands: $islands}" '1, hybrid_shard: true' "$replicas"
exit $bad

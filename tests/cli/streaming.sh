#!/bin/bash
# tests/cli/streaming.sh - islands that exchange fragments of the parameters in turns, with a delay (Streaming DiLoCo; core/lower/outer.c), really run.
# Every step is resumed from the checkpoint of the one before it, and what it saves is computed again here from that checkpoint and from the
# same step without an exchange; so sums in flight pass through files. Two rounds of each fragment.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME LOCAL REPLICAS [PRECISION]
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
local_sgd: $2
replicas:
$3
$(four_hosts "${4:-fp64}" 'adamw, lr: 1e-2')
END
}

# follows TENSOR STATE: whether the checkpoint after a step is what the formulas make of the one before it (old) and of the same step without an
# exchange (alone). start: the sum is 3/8 (a - p0) + 5/8 (a - p1); wait: it stays; apply: v = 0.9 v + sum, a -= 0.7 (sum + 0.9 v), p = alpha p
# + (1 - alpha) a; quiet: nothing happens.
follows() {
    paste <(checkpoint_values "$scratch/alone" "$1") <(checkpoint_values "$scratch/alone" "$1@1") <(checkpoint_values "$scratch/old" "$1#anchor") \
        <(checkpoint_values "$scratch/old" "$1#velocity") <(checkpoint_values "$scratch/new" "$1") <(checkpoint_values "$scratch/new" "$1@1") \
        <(checkpoint_values "$scratch/new" "$1#anchor") <(checkpoint_values "$scratch/new" "$1#velocity") \
        <(checkpoint_values "$scratch/old" "$1#sum" | grep . || checkpoint_values "$scratch/new" "$1" | sed 's/.*/none/') \
        <(checkpoint_values "$scratch/new" "$1#sum" | grep . || checkpoint_values "$scratch/new" "$1" | sed 's/.*/none/') |
        awk -v state="$2" -v alpha="$alpha" '
            function near(x, y, d) { d = x - y; if (d < 0) d = -d; if (!(d <= 1e-12)) bad = 1 }
            NF != 10 { bad = 1 }
            {
                p0 = $1; p1 = $2; a = $3; v = $4; sum = $9
                if (state == "apply") {
                    v = 0.9 * v + sum; a -= 0.7 * (sum + 0.9 * v)
                    p0 = alpha * p0 + (1 - alpha) * a; p1 = alpha * p1 + (1 - alpha) * a
                }
                near(p0, $5); near(p1, $6); near(a, $7); near(v, $8)
                if (state == "start") near(0.375 * (a - p0) + 0.625 * (a - p1), $10)
                if (state == "wait") near($9, $10)
                if ((state == "quiet" || state == "apply") != ($10 == "none")) bad = 1
                if (state == "start" && $10 == 0) zero++
            }
            END { exit bad || !NR || zero == NR }'
}

replicas='  - {microbatches: 1, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.3}]}'
pipelines='  - {microbatches: 3, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 5, stages: [{layers: [0, 5], device: n.2, recompute: true}, {layers: [6, 7], device: n.3}]}'
chunks='  - {microbatches: 3, schedule: zb-v, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 5, stages: [{layers: [0, 2], device: n.2}, {layers: [3, 7], device: n.3}]}'
sharded='  - microbatches: 3
    stages: [{layers: [0, 7], devices: [n.0, n.1], sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}}]
  - microbatches: 5
    stages: [{layers: [0, 7], devices: [n.2, n.3], sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}}]'

# Every 4 steps in 2 fragments, 2 steps late: fragment 0 (embedding and first attention) starts in steps 2 and 6, fragment 1 in steps 4 and 8. The embedding is
# tied to the head, of fragment 1. One fragment starts all parameters in steps 4 and 8.
one=(quiet start wait apply quiet start wait apply quiet start)
second=(quiet quiet quiet start wait apply quiet start wait apply)
alpha=0.25
turns=("replicas 2" "chunks 2" "sharded 2" "chunks 1") # one replica of chunks is a pipeline
[[ ${MUSHER_LONG:-} ]] && turns+=("pipelines 2")
for turn in "${turns[@]}"; do
    case=${turn% *} fragments=${turn#* }
    first=("${one[@]}")
    ((fragments > 1)) || first=("${second[@]}")
    islands='[[0], [1]]'
    [[ $case == replicas ]] && islands='[[0, 2], [1, 3]]'
    plan streaming "{every: 4, islands: $islands, outer: nesterov, fragments: $fragments, delay: 2, alpha: $alpha}" "${!case}"
    plan alone "{every: 1000, islands: $islands, outer: nesterov}" "${!case}"
    losses streaming 10 >"$scratch/whole"
    losses streaming 1 --save "$scratch/old" >"$scratch/parts"
    wrong=
    for step in 2 3 4 5 6 7 8 9 10; do
        losses streaming 1 --resume "$scratch/old" --save "$scratch/new" >>"$scratch/parts"
        losses alone 1 --resume "$scratch/old" --save "$scratch/alone" >/dev/null
        for tensor in transformer.wte.weight transformer.h.0.attn.c_attn.bias; do
            follows $tensor "${first[step - 1]}" || wrong+=" $step:$tensor:${first[step - 1]}"
        done
        for tensor in transformer.h.1.mlp.c_proj.weight transformer.ln_f.weight; do
            follows $tensor "${second[step - 1]}" || wrong+=" $step:$tensor:${second[step - 1]}"
        done
        rm -rf "$scratch/old" "$scratch/alone"
        mv "$scratch/new" "$scratch/old"
    done
    [[ -z $wrong ]]
    check "two rounds of each fragment follow the formulas: $turn$wrong" $?
    cmp -s "$scratch/whole" "$scratch/parts" && [[ $(wc -l <"$scratch/whole") == 10 ]]
    check "resumed in every step, with sums in flight: the same bits: $turn" $?
    rm -rf "$scratch/old"
    ((fragments > 1)) || continue
    # Without a delay a fragment is the same on all islands behind its turn, the other one is not.
    plan turns "{every: 4, islands: $islands, fragments: 2}" "${!case}"
    for steps in 2 4; do
        rm -rf "$scratch/new"
        losses turns $steps --save "$scratch/new" >/dev/null
        for tensor in transformer.wte.weight transformer.ln_f.weight; do
            cmp -s <(checkpoint_values "$scratch/new" $tensor) <(checkpoint_values "$scratch/new" $tensor@1)
            echo -n "$? "
        done
    done >"$scratch/turns"
    [[ $(cat "$scratch/turns") == "0 1 1 0 " ]]
    check "fragments are exchanged in their turns: $case" $?
    rm -rf "$scratch/new"
done

# On a slow emulated link a sum takes longer than a step: a checkpoint waits for it, in the middle of a run and at its end.
plan streaming '{every: 4, outer: nesterov, fragments: 2, delay: 3}' "$replicas"
sed -i 's/memory: 1 GiB/&, slowdown: 2/; s/bandwidth: 1 GB/bandwidth: 0.001 GB/' "$scratch/streaming.yaml"
losses streaming 8 >"$scratch/whole"
losses streaming 5 --save "$scratch/old" --save-every 2 >"$scratch/parts" && losses streaming 3 --resume "$scratch/old" >>"$scratch/parts"
[[ $(wc -l <"$scratch/whole") == 8 ]] && cmp -s "$scratch/whole" "$scratch/parts"
check "a checkpoint waits for sums in flight" $?

plan streaming '{every: 16, outer: nesterov, fragments: 3, delay: 3}' "$replicas"
"$MUSHER" simulate "$scratch/streaming.yaml" --explain >"$scratch/out" 2>"$scratch/err" && grep -q "in 3 fragments in turns, applied 3 steps later with 0.5 of the local" "$scratch/out" && "$MUSHER" report -q "$scratch/streaming.yaml" -o "$scratch/page.html"
check "simulated, explained and reported" $?
# Bits of the trajectory do not depend on the written defaults.
plan short '{every: 4, outer: nesterov}' "$replicas"
plan long '{every: 4, outer: nesterov, fragments: 1, delay: 0}' "$replicas"
sed -i 's/^name: .*/name: same/' "$scratch/short.yaml" "$scratch/long.yaml"
"$MUSHER" lower -q "$scratch/short.yaml" -o "$scratch/short.program" >/dev/null && "$MUSHER" lower -q "$scratch/long.yaml" -o "$scratch/long.program" >/dev/null && cmp -s "$scratch/short.program" "$scratch/long.program"
check "one fragment without a delay: the same program" $?
for precision in fp32 bf16; do
    plan streaming '{every: 4, outer: nesterov, fragments: 2, delay: 1}' "$replicas" $precision
    losses streaming 9 >"$scratch/parts" && [[ $(wc -l <"$scratch/parts") == 9 ]]
    check "it runs in $precision" $?
done
# Checkpoints of other plans.
plan other '{every: 4, islands: [[0, 2], [1, 3]], outer: nesterov}' "$replicas"
plan streaming '{every: 4, islands: [[0, 2], [1, 3]], outer: nesterov, fragments: 2, delay: 2}' "$replicas"
losses streaming 3 --save "$scratch/saved" >/dev/null && losses other 1 --resume "$scratch/saved" >/dev/null
grep -q "has sums of changes that this program does not await" <("$MUSHER" run "$scratch/other.yaml" --data "$text" --steps 1 --resume "$scratch/saved" 2>&1)
check "sums in flight that another plan does not await: said" $?
rm -rf "$scratch/saved"
losses other 3 --save "$scratch/saved" >/dev/null
grep -q "awaits sums of changes after step 3" <("$MUSHER" run "$scratch/streaming.yaml" --data "$text" --steps 1 --resume "$scratch/saved" 2>&1)
check "and sums that a checkpoint does not have" $?

# refused PATTERN LOCAL: exit 3 with this message
refused() {
    plan bad "$2" "$replicas"
    "$MUSHER" simulate -q "$scratch/bad.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused "unknown key 'fragment'.*fragments" '{every: 4, fragment: 2}'
refused 'fragments.*from 1 to 4' '{every: 4, fragments: 5}'
refused 'delay.*from 0 to 3' '{every: 4, delay: 4}'
refused 'alpha.*without a delay' '{every: 4, alpha: 0.5}'
refused 'fragments: must be at most 6' '{every: 100, fragments: 40}'
exit $bad

#!/bin/bash
# tests/cli/local_steps.sh - islands with unequal numbers of updates between two exchanges (core/lower/outer.c), really run. An island of fewer updates
# accumulates the gradients of several steps. Its updates are computed again here, by the formulas of SGD and AdamW, from gradients that other
# runs give; a checkpoint between two updates continues with the same bits.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME OPTIMIZER LOCAL REPLICAS [PRECISION]: four host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: local
microbatch: ${microbatch:-1}
${3:+local_sgd: $3}
replicas:
$4
$(four_hosts "${5:-fp64}" "$2")
END
}
near() { [[ $(wc -l <"$1") -gt 0 && $(wc -l <"$1") == $(wc -l <"$2") ]] && within "$(distance "$1" "$2")" "$3"; }
# saved NAME STEPS [OPTIONS]: a run whose last checkpoint is in the folder NAME of $scratch; its losses
saved() {
    local name=$1 steps=$2
    shift 2
    rm -rf "$scratch/$name"
    losses plan "$steps" --save "$scratch/$name" "$@"
}
# of FOLDER TENSOR: its values
of() { checkpoint_values "$scratch/$1" "$2"; }

two='  - {microbatches: 5, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}'
three='  - {microbatches: 5, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 1, stages: [{layers: [0, 7], device: n.1, bucket: 4 KiB}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2, bucket: 4 KiB}]}'
split='        sharding:
          operators:
            - {match: "h.*.attn.*", shard: heads}
            - {match: "h.*.mlp.*", shard: features}
            - {match: "*", shard: none}'
sharded="  - microbatches: 5
    stages:
      - layers: [0, 7]
        devices: [n.0, n.1]
$split
  - microbatches: 3
    stages:
      - layers: [0, 7]
        devices: [n.2, n.3]
$split"
chunks='  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: n.2}, {layers: [2, 3], device: n.3}, {layers: [4, 5], device: n.3}, {layers: [6, 7], device: n.2}]}'
folded='  - {microbatches: 5, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 1, schedule: interleaved, stages: [{layers: [0, 3], device: n.1, bucket: 4 KiB}, {layers: [4, 7], device: n.1, bucket: 4 KiB}]}
  - {microbatches: 2, schedule: interleaved, stages: [{layers: [0, 3], device: n.2, bucket: 4 KiB}, {layers: [4, 7], device: n.2, bucket: 4 KiB}]}'
sgd='sgd, lr: 0.1' adamw='adamw, lr: 1e-2'
tensors='transformer.wte.weight transformer.h.1.mlp.c_proj.weight transformer.h.0.attn.c_attn.bias'

# --- equal numbers are one number, to the bit ---

plan plan "$adamw" '{every: 4, outer: nesterov}' "$two"
losses plan 9 >"$scratch/one"
plan plan "$adamw" '{every: [4, 4], outer: nesterov}' "$two"
losses plan 9 >"$scratch/list" && cmp -s "$scratch/one" "$scratch/list"
check "a list of equal numbers is that number, to the bit" $?
plan plan "$sgd" '' "$two"
losses plan 6 >"$scratch/sync"
plan plan "$sgd" '{every: [1, 1]}' "$two"
losses plan 6 >"$scratch/local" && near "$scratch/sync" "$scratch/local" 1e-12
check "with 1, SGD and the average it is synchronous training" $?

# --- SGD by hand: island 1 updates in step 2 with the mean of its gradients of steps 1 and 2, both at its first parameters ---

# The gradient of step 2 at the first parameters comes from a run that continues the checkpoint of step 1 and updates in every step: island 1
# has not updated before it.
slow='{every: [8, 4]}'
plan plan "$sgd" '{every: 8}' "$two"
saved first 1 >/dev/null
plan plan "$sgd" "$slow" "$two"
saved start 1 >/dev/null && saved after 2 >/dev/null
plan plan "$sgd" '{every: 8}' "$two"
saved second 1 --resume "$scratch/start" >/dev/null
wrong=
for t in $tensors; do
    paste <(of start $t@1) <(of first $t@1) <(of second $t@1) <(of after $t@1) | awk '
        NF != 4 { bad = 1 }
        { p = $1 - ($1 - $2 + $1 - $3) / 2; d = p - $4; if (!(d < 1e-13 && d > -1e-13)) bad = 1; moved += $1 != $4 }
        END { exit bad || !moved }' || wrong+=" $t"
    cmp -s <(of second $t) <(of after $t) || wrong+=" $t of island 0"
done
[[ -z $wrong ]]
check "an update of SGD has the mean gradient of both steps$wrong" $?
grep -q "is from between two updates of an island, and this plan does not continue" <("$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps 1 --resume "$scratch/start" 2>&1)
check "another plan does not continue an accumulated gradient: said" $?

# --- AdamW by hand: g as before, updates 1 and 2 of island 1 in steps 2 and 4, all exchanged in step 8 ---

plan plan "$adamw" "$slow" "$two"
for steps in 1 2 4 7 8; do saved adam$steps $steps >"$scratch/losses$steps"; done
wrong=
for t in $tensors; do
    paste <(of start $t@1) <(of first $t@1) <(of second $t@1) <(of adam1 $t@1) <(of adam2 $t@1) <(of adam2 "$t#m@1") <(of adam2 "$t#v@1") \
        <(of adam4 $t@1) <(of adam4 "$t#m@1") <(of adam4 "$t#v@1") | awk -v decays="$([[ $t == *.bias ]] && echo 0 || echo 0.01)" '
        function near(x, y, d) { d = x - y; if (d < 0) d = -d; if (!(d <= 1e-9)) bad = 1 }
        function update(p, m, v, k) { return p - 0.01 * (m / (1 - 0.9 ^ k) / (sqrt(v / (1 - 0.999 ^ k)) + 1e-8) + decays * p) }
        NF != 10 { bad = 1 }
        {
            g = ($1 - $2 + $1 - $3) / 2 / 0.1
            near($1, $4); near(0.1 * g, $6); near(0.001 * g * g, $7)
            near(update($4, $6, $7, 1), $5); near(update($5, $9, $10, 2), $8)
        }
        END { exit bad || !NR }' || wrong+=" $t"
done
[[ -z $wrong ]]
check "AdamW counts the updates of the island, not steps$wrong" $?
# The exchange: of 5 and 3 samples a step.
plan plan "$adamw" '{every: [1000, 500]}' "$two"
saved alone 8 >/dev/null
wrong=
for t in $tensors; do
    paste <(of alone $t) <(of alone $t@1) <(of adam8 $t) <(of adam8 $t@1) | awk '
        NF != 4 { bad = 1 } { p = 0.625 * $1 + 0.375 * $2; d = p - $3; if (!(d < 1e-13 && d > -1e-13) || $3 != $4) bad = 1; apart += $1 != $2 } END { exit bad || !apart }' || wrong+=" $t"
done
[[ -z $wrong ]]
check "changes are weighted by samples$wrong" $?

# --- an island of several replicas, or with sharded or chunked stages, accumulates what one replica does ---

plan plan "$adamw" '{every: [4, 2], outer: nesterov}' "$two"
losses plan 9 >"$scratch/one"
plan plan "$adamw" '{every: [4, 2], islands: [[0], [1, 2]], outer: nesterov}' "$three"
losses plan 9 >"$scratch/many"
near "$scratch/one" "$scratch/many" 1e-12
check "two replicas that accumulate do what one does" $?
plan plan "$adamw" '{every: [4, 2], outer: nesterov}' "$sharded"
losses plan 9 >"$scratch/many"
near "$scratch/one" "$scratch/many" 1e-12
check "and so does a sharded stage" $?
plan plan "$adamw" '{every: [4, 2], outer: nesterov}' "${two//microbatches: [35]/microbatches: 4}"
losses plan 9 >"$scratch/four"
plan plan "$adamw" '{every: [4, 2], outer: nesterov}' "$chunks"
losses plan 9 >"$scratch/many"
near "$scratch/four" "$scratch/many" 1e-12
check "and so do chunks with tied embeddings" $?
plan plan "$adamw" '{every: [4, 2], islands: [[0], [1, 2]], outer: nesterov}' "$folded"
losses plan 9 >"$scratch/many"
near "$scratch/one" "$scratch/many" 1e-12
check "and two replicas of chunks" $?

# --- resumed in every step ---

for turn in "three [[0], [1, 2]] [4, 2]" "three [[0], [1, 2]] [2, 6]" "sharded [[0], [1]] [6, 2]" "chunks [[0], [1]] [2, 4]"; do
    case=${turn%% *} every=${turn##*]] } islands=${turn#* }
    islands=${islands% "$every"}
    plan plan "$adamw" "{every: $every, islands: $islands, outer: nesterov}" "${!case}"
    losses plan 8 >"$scratch/whole"
    : >"$scratch/parts"
    rm -rf "$scratch/old"
    for step in 1 2 3 4 5 6 7 8; do
        losses plan 1 $( ((step > 1)) && echo --resume "$scratch/old") --save "$scratch/new" >>"$scratch/parts"
        rm -rf "$scratch/old"
        mv "$scratch/new" "$scratch/old"
    done
    [[ $(wc -l <"$scratch/parts") == 8 ]] && cmp -s "$scratch/whole" "$scratch/parts"
    check "resumed in every step, between updates too: the same bits: $turn" $?
done
plan plan "$adamw" '{every: 4, islands: [[0], [1, 2]]}' "$three"
saved none 1 >/dev/null && ! grep -q 'gradients#x' "$scratch"/none/step-*/manifest.json && grep -q 'gradients#x' "$scratch"/start/step-*/manifest.json && ! grep -q 'gradients#x' "$scratch"/after/step-*/manifest.json
check "only a checkpoint between two updates has gradients" $?

# --- other settings that it combines with ---

for with in '' ', fragments: 2' ', fragments: 2, delay: 2'; do
    plan plan "$adamw" "{every: [8, 4], islands: [[0], [1, 2]], outer: nesterov$with}" "$three"
    rm -rf "$scratch/old"
    losses plan 9 >"$scratch/whole" && losses plan 5 --save "$scratch/old" >"$scratch/parts" && losses plan 4 --resume "$scratch/old" >>"$scratch/parts" && cmp -s "$scratch/whole" "$scratch/parts"
    check "runs and resumes${with:-, all at once}" $?
done
for precision in fp32 bf16; do
    plan plan "$adamw" '{every: [4, 2], islands: [[0], [1, 2]], outer: nesterov}' "$three" $precision
    losses plan 9 >"$scratch/parts" && near "$scratch/one" "$scratch/parts" 1
    check "it runs in $precision" $?
done
rm -rf "$scratch/old"
for gradients in int8 '{kind: power-sgd, rank: 2}'; do
    plan plan "$adamw" '{every: [4, 2], islands: [[0], [1, 2]], outer: nesterov}' "$three" fp32
    sed -i "s/^local_sgd:/compression: {gradients: $gradients}\n&/" "$scratch/plan.yaml"
    losses plan 8 >"$scratch/whole" && losses plan 3 --save "$scratch/old" >"$scratch/parts" && losses plan 5 --resume "$scratch/old" >>"$scratch/parts" && cmp -s "$scratch/whole" "$scratch/parts"
    check "compressed sums of accumulated gradients, resumed between updates: $gradients" $?
    rm -rf "$scratch/old"
done

# --- simulated and stated ---

plan plan "$adamw" '{every: [16, 4], islands: [[0], [1, 2]]}' "$three"
"$MUSHER" simulate "$scratch/plan.yaml" --explain >"$scratch/out" 2>"$scratch/err" && grep -q "every 16 steps between 2 islands of replicas after 16 and 4 updates" "$scratch/out" && "$MUSHER" report -q "$scratch/plan.yaml" -o "$scratch/page.html"
check "simulated, explained and reported" $?
"$MUSHER" run -q "$scratch/plan.yaml" --data "$text" --steps 2 >"$scratch/out" 2>"$scratch/err" && grep -q "after 16 and 4 updates" "$scratch/out"
check "a run states the updates of the islands" $?

# refused PATTERN LOCAL: exit 3 with this message
refused() {
    plan bad "$adamw" "$2" "$two"
    "$MUSHER" simulate -q "$scratch/bad.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused 'every\[1\]: must divide the largest number, 8, .*found 3' '{every: [8, 3]}'
refused 'every: has 3; must be one number, or one for each of the 2 islands' '{every: [8, 4, 4]}'
refused 'every: must not be empty' '{every: []}'
refused 'every\[0\].*from 1 to' '{every: [0, 4]}'
refused 'local_sgd.fragments: fragment 0 is exchanged in step 3, but all islands have updated in multiples of 2 steps only' '{every: [6, 3], fragments: 2}'
refused 'local_sgd.delay: fragment 0 is applied in step 5' '{every: [4, 2], delay: 1}'
exit $bad

#!/bin/bash
# tests/cli/local_sgd.sh - islands of replicas that exchange parameters instead of gradients (core/lower/outer.c), really run.
# With every: 1, SGD and the average the training is the synchronous one; a run resumed within a local phase equals an undisturbed one; after
# an exchange all islands have the same parameters; the simulated iteration is that of a period.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME OPTIMIZER LOCAL REPLICAS [PRECISION]: four host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: ${microbatch:-1}
${3:+local_sgd: $3}
replicas:
$4
$(four_hosts "${5:-fp64}" "$2")
END
}

# near FILE FILE LIMIT: as many lines, relative differences below the limit
near() {
    paste "$1" "$2" | awk -v limit="$3" 'NF != 2 { bad = 1 } { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= limit)) bad = 1 } END { exit bad || !NR }'
}

split='        sharding:
          operators:
            - {match: "h.*.attn.*", shard: heads}
            - {match: "h.*.mlp.*", shard: features}
            - {match: "*", shard: none}'
declare -A plans=(
    [replicas]='  - {microbatches: 1, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2, bucket: 4 KiB}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.3, bucket: 4 KiB}]}'
    [pipelines]='  - {microbatches: 5, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 3, stages: [{layers: [0, 5], device: n.2, recompute: true}, {layers: [6, 7], device: n.3}]}'
    [chunks]='  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 4, stages: [{layers: [0, 2], device: n.2}, {layers: [3, 7], device: n.3}]}'
    [sharded]="  - microbatches: 4
    stages:
      - layers: [0, 7]
        devices: [n.0, n.1]
$split
  - microbatches: 4
    stages:
      - layers: [0, 7]
        devices: [n.2, n.3]
$split")
sgd='sgd, lr: 0.1'
for name in replicas pipelines chunks sharded; do
    islands='[[0], [1]]'
    [[ $name == replicas ]] && islands='[[0, 2], [1, 3]]'
    plan sync "$sgd" '' "${plans[$name]}"
    plan local "$sgd" "{every: 1, islands: $islands}" "${plans[$name]}"
    losses sync 6 >"$scratch/sync" && losses local 6 >"$scratch/local"
    near "$scratch/sync" "$scratch/local" 1e-12
    check "every step's exchange is synchronous training: $name" $?
    plan local "$sgd" "{every: 3, islands: $islands}" "${plans[$name]}"
    losses local 6 >"$scratch/local" || true
    head -1 "$scratch/sync" >"$scratch/first" && head -1 "$scratch/local" >"$scratch/local.first"
    near "$scratch/first" "$scratch/local.first" 1e-12 && ! near "$scratch/sync" "$scratch/local" 1e-6 && near "$scratch/sync" "$scratch/local" 0.3
    check "and every third step's is not, but near it: $name" $?
done

adamw='adamw, lr: 1e-3'
for name in replicas sharded; do
    islands='[[0], [1]]'
    [[ $name == replicas ]] && islands='[[0, 2], [1, 3]]'
    plan local "$adamw" "{every: 4, islands: $islands, outer: nesterov}" "${plans[$name]}"
    losses local 9 >"$scratch/whole"
    rm -rf "$scratch/saved"
    losses local 6 --save "$scratch/saved" >"$scratch/parts" && losses local 3 --resume "$scratch/saved" >>"$scratch/parts"
    cmp -s "$scratch/whole" "$scratch/parts"
    check "resumed within a local phase: the same bits: $name" $?
done

# values STEP NAME: the checksum of a tensor in the checkpoint after that many steps
values() {
    rm -rf "$scratch/saved"
    losses local "$1" --save "$scratch/saved" >/dev/null
    sed -n 's/.*"name": "'"$2"'", .*"crc32": *\([0-9]*\).*/\1/p' "$scratch"/saved/step-*/manifest.json
}
plan local "$adamw" '{every: 4, islands: [[0, 2], [1, 3]], outer: nesterov}' "${plans[replicas]}"
weight=$(sed -n 's/.*"name": "\([^"]*mlp.c_fc.weight\)".*/\1/p' "$scratch"/saved/step-*/manifest.json | head -1)
after=$(values 4 $weight) other=$(values 4 $weight@1) anchor=$(values 4 "$weight#anchor")
[[ -n $after && $after == "$other" && $after == "$anchor" ]]
check "all islands have the anchor's values after an exchange" $?
[[ -n $(values 4 "$weight#velocity") && $(values 4 "$weight#m") != $(values 4 "$weight#m@1") ]]
check "and each its own inner state" $?
after=$(values 3 $weight) other=$(values 3 $weight@1)
[[ -n $after && -n $other && $after != "$other" ]]
check "before it they differ" $?
# From a synchronous checkpoint: islands begin at its parameters.
plan sync "$adamw" '' "${plans[replicas]}"
rm -rf "$scratch/saved"
losses sync 3 --save "$scratch/saved" >/dev/null && losses local 1 --resume "$scratch/saved" >"$scratch/local" && losses sync 1 --resume "$scratch/saved" >"$scratch/sync"
near "$scratch/sync" "$scratch/local" 1e-12
check "a synchronous checkpoint is resumed by islands" $?
for precision in fp32 bf16; do
    plan local "$adamw" '{every: 4, islands: [[0, 2], [1, 3]], outer: nesterov}' "${plans[replicas]}" $precision
    losses local 9 >"$scratch/local"
    near "$scratch/whole" "$scratch/local" 1
    check "it runs in $precision" $?
done

# The iteration is (the steps without an exchange + the one with it) / every: differences of whole periods are local steps.
ns() {
    plan local "$adamw" "{every: $1, islands: [[0, 2], [1, 3]], outer: nesterov}" "${plans[replicas]}"
    "$MUSHER" simulate -q "$scratch/local.yaml" --json | sed -n 's/.*"iteration_ns": *\([0-9]*\).*/\1/p' | head -1
}
a=$(ns 4) b=$(ns 8) c=$(ns 20)
awk -v a="$a" -v b="$b" -v c="$c" 'BEGIN { x = (8 * b - 4 * a) / 4; y = (20 * c - 8 * b) / 12; d = x / y - 1; exit !(a > b && b > c && c > x && d < 1e-4 && d > -1e-4) }'
check "the simulated iteration is the mean of a period ($a, $b, $c ns)" $?

# planned again
plan whole "$adamw" '{every: 4}' "${plans[replicas]}"
sed -n '/^job:/,/^cluster:/p' "$scratch/whole.yaml" | sed '1d;$d;s/^  //' >"$scratch/job.yaml"
sed -n '/^cluster:/,$p' "$scratch/whole.yaml" | sed '1d;s/^  //' >"$scratch/cluster.yaml"

for every in 3 16; do
    plan local "$adamw" "{every: $every, islands: [[0, 2], [1, 3]], outer: nesterov}" "${plans[replicas]}"
    "$MUSHER" simulate -q "$scratch/local.yaml" --explain 2>"$scratch/err" | grep -q "the last of which exchanges parameters" && "$MUSHER" report -q "$scratch/local.yaml" -o "$scratch/page.html" 2>"$scratch/err"
    check "explained, every $every steps" $?
done
# What is said.
plan local "$sgd" '{every: 8}' "${plans[replicas]}"
"$MUSHER" simulate "$scratch/local.yaml" --steps 3 >"$scratch/out" 2>"$scratch/err" && grep -q "has exchanged all parameters in step 8, after the 3 counted here" "$scratch/err" && grep -q "other training than" "$scratch/out"
check "simulated steps without an exchange: said" $?
"$MUSHER" run "$scratch/local.yaml" --data "$text" --steps 1 >"$scratch/out" 2>"$scratch/err" && grep -q "after the 1 counted here" "$scratch/err" && grep -q "(measured, 1 step" "$scratch/out"
check "and measured ones" $?
# A trace of some steps states how many each stands for, and compares as the trace of all, but for the edges of the period.
"$MUSHER" simulate -q "$scratch/local.yaml" --trace "$scratch/some.json" >/dev/null && "$MUSHER" simulate -q "$scratch/local.yaml" --steps 16 --trace "$scratch/all.json" >/dev/null
for name in some all; do "$MUSHER" compare "$scratch/$name.json" "$scratch/all.json" --json | sed -n 's/.*"sim": *{\(.*\)}.*/\1/p' | tr -c '0-9.e\n-' ' ' | tr -s ' ' '\n' | grep '[0-9]' >"$scratch/$name"; done
grep -q '"period_times":\[1,1,5,1\]' "$scratch/some.json" && paste "$scratch/some" "$scratch/all" | awk '{ d = $1 - $2; if (!(d < 3e-3 && d > -3e-3) || NF != 2) bad = 1 } END { exit bad || NR < 16 }'
check "steps of a trace that stand for several count as often" $?
sed -i 's/"period_times":.1,1,5,1./"period_times":[1,1,5]/' "$scratch/some.json"
"$MUSHER" compare "$scratch/some.json" "$scratch/all.json" >/dev/null 2>"$scratch/err"
[[ $? == 3 ]] && grep -q "period_times: 3 steps of a period of 4" "$scratch/err"
check "and one for each step of the period" $?
plan local "$sgd" '{every: 1}' "${plans[replicas]}"
"$MUSHER" show "$scratch/local.yaml" | grep -q "the same training as with every gradient added" && "$MUSHER" show "$scratch/local.yaml" --json | grep -q '"equivalent": *true'
check "SGD and the average in every step: the same training" $?
# Another number of islands than a checkpoint has: all begin with the mean, weighted by samples. With a learning rate of 1e-15 a step shows it.
plan local "$adamw" '{every: 4, islands: [[0, 2], [1, 3]], outer: nesterov}' "${plans[replicas]}"
losses local 2 --save "$scratch/saved2" >/dev/null
slow='adamw, lr: 1e-15'
plan sync "$slow" '' "${plans[replicas]}"
plan four "$slow" '{every: 4, outer: nesterov}' "${plans[replicas]}"
plan zero "$slow" '' "${plans[replicas]//device: n.0/device: n.0, zero: 1}"
sed -i 's/device: n.\([123]\)/&, zero: 1/' "$scratch/zero.yaml"
for name in sync four zero; do
    rm -rf "$scratch/saved3"
    "$MUSHER" run "$scratch/$name.yaml" --data "$text" --steps 1 --resume "$scratch/saved2" --save "$scratch/saved3" >/dev/null 2>"$scratch/err"
    grep -q "has the parameters of 2 islands, the program [14]: it continues with their mean" "$scratch/err" &&
        paste <(checkpoint_values "$scratch/saved2" $weight) <(checkpoint_values "$scratch/saved2" $weight@1) <(checkpoint_values "$scratch/saved3" $weight) |
        awk '{ d = 0.375 * $1 + 0.625 * $2 - $3; if (!(d < 1e-12 && d > -1e-12) || NF != 3) bad = 1; if ($1 != $2) n++ } END { exit bad || !n }'
    check "2 islands are resumed as their mean: $name" $?
done

# refused PATTERN LOCAL [REPLICAS]: exit 3 with this message
refused() {
    plan local "$adamw" "$2" "${3:-${plans[replicas]}}" ${4:-}
    "$MUSHER" simulate -q "$scratch/local.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused 'local_sgd.every: is missing\|local_sgd: .*every' '{islands: [[0, 1], [2, 3]]}'
refused 'local_sgd.islands: replica 3 is in no island' '{every: 2, islands: [[0, 1], [2]]}'
refused 'replica 1 is in island 0 already' '{every: 2, islands: [[0, 1], [1, 2, 3]]}'
refused 'one island' '{every: 2, islands: [[0, 1, 2, 3]]}'
refused 'local_sgd.lr: outer: average has none' '{every: 2, lr: 0.5}'
refused 'local_sgd.lr' '{every: 2, outer: nesterov, lr: 0}'
refused 'must be one of average, nesterov' '{every: 2, outer: adam}'
refused "unknown key 'evry'\|evry" '{evry: 2}'
refused 'fp16 has a loss scale' '{every: 2}' "${plans[replicas]}" fp16
refused 'is sharded differently in some replicas' '{every: 2}' "  - microbatches: 4
    stages:
      - layers: [0, 7]
        devices: [n.0, n.1]
$split
  - {microbatches: 4, stages: [{layers: [0, 7], device: n.2}]}"
"$MUSHER" plan "$scratch/job.yaml" "$scratch/cluster.yaml" --from "$scratch/whole.yaml" -o "$scratch/again.yaml" --evaluations 200 >/dev/null 2>"$scratch/err" && grep -q "local_sgd is not planned again" "$scratch/err" && ! grep -q local_sgd "$scratch/again.yaml"
check "planned again without, and said" $?
exit $bad

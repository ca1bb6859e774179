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

# losses NAME STEPS OPTIONS: one a line
losses() {
    local name=$1 steps=$2
    shift 2
    "$MUSHER" run -q "$scratch/$name.yaml" --data "$text" --steps "$steps" --json "$@" >"$scratch/run.json" || return 1
    sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$scratch/run.json" | tr ',' '\n' | tr -d ' '
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
# Fewer islands than a checkpoint has.
losses local 2 --save "$scratch/saved2" >/dev/null
"$MUSHER" run "$scratch/whole.yaml" --data "$text" --steps 1 --resume "$scratch/saved2" >/dev/null 2>"$scratch/err"
grep -q "has the parameters of 2 islands, the program 4" "$scratch/err"
check "more islands than a checkpoint has: said" $?
plan sync "$adamw" '' "${plans[replicas]}"
"$MUSHER" run "$scratch/sync.yaml" --data "$text" --steps 1 --resume "$scratch/saved2" >/dev/null 2>"$scratch/err"
grep -q "since their last exchange is lost" "$scratch/err"
check "and fewer" $?

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
refused 'zero: shards state over all replicas' '{every: 2}' "${plans[replicas]//device: n.0/device: n.0, zero: 1}"
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

#!/bin/bash
# tests/cli/compression.sh - sums between devices in half precision and by codes: losses near those without or equal to them, bytes of
# messages, checkpoints of feedback, what is refused.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME HEAD STAGE-KEYS [PRECISION] [BANDWIDTH]: four host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
$2
replicas:
$(for d in 0 1 2 3; do echo "  - {microbatches: 2, stages: [{layers: [0, 7], device: n.$d$3}]}"; done)
$(four_hosts "${4:-fp32}" 'adamw, lr: 1e-3' "${5:-1}")
END
}
ns() { "$MUSHER" simulate -q "$scratch/$1.yaml" --json | sed -n 's/.*"iteration_ns": *\([0-9]*\).*/\1/p' | head -1; }

for keys in '' ', zero: 1' ', zero: 2' ', bucket: 8 KiB'; do
    plan whole '' "$keys"
    losses whole >"$scratch/whole"
    for by in bf16 fp16; do
        plan half "compression: {gradients: $by}" "$keys"
        losses half >"$scratch/half" && ! cmp -s "$scratch/whole" "$scratch/half" && [[ $(wc -l <"$scratch/half") == 8 ]] && within "$(distance "$scratch/whole" "$scratch/half")" 1e-3
        check "gradients in $by: losses within 1e-3 of those without, and others (${keys:-plain})" $?
    done
    plan fast '' "$keys" fp32 2
    plan half "compression: {gradients: bf16}" "$keys"
    a=$(ns half) b=$(ns whole) c=$(ns fast)
    if [[ $keys == *zero* ]]; then ((a < b && a > c)); else ((a == c && a < b)); fi
    check "messages half as long: ${keys:-plain} ($b, $a; twice the bandwidth $c ns)" $?
done
plan whole 'local_sgd: {every: 2}' ''
plan half $'compression: {outer: bf16}\nlocal_sgd: {every: 2}' ''
losses whole >"$scratch/whole" && losses half >"$scratch/half" && ! cmp -s "$scratch/whole" "$scratch/half" && within "$(distance "$scratch/whole" "$scratch/half")" 1e-3 && (($(ns half) < $(ns whole)))
check "exchanges of islands in bf16" $?

# --- codes: a code of all elements is synchronous training ---

# shaped NAME HEAD REPLICAS: in fp64, by SGD
shaped() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
$2
replicas:
$3
$(four_hosts fp64 'sgd, lr: 0.1')
END
}
split='        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}'
declare -A shapes=(
    [replicas]='  - {microbatches: 1, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2, bucket: 4 KiB}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.3, bucket: 4 KiB}]}'
    [chunks]='  - {microbatches: 4, schedule: interleaved, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.0}, {layers: [6, 7], device: n.1}]}
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
for name in replicas chunks sharded; do
    islands='[[0], [1]]'
    [[ $name == replicas ]] && islands='[[0, 2], [1, 3]]'
    shaped whole '' "${shapes[$name]}"
    losses whole >"$scratch/whole"
    for kind in '{kind: top-k, fraction: 1}' '{kind: random-k, fraction: 1, feedback: ef21, block: 50}' '{kind: power-sgd, rank: 32}'; do
        shaped all "compression: {gradients: $kind}" "${shapes[$name]}"
        losses all >"$scratch/all" && within "$(distance "$scratch/whole" "$scratch/all")" 1e-9
        check "all elements of gradients are the synchronous training: $name, $kind" $?
        [[ $kind == *power* ]] && continue
        shaped all "compression: {outer: $kind}"$'\n'"local_sgd: {every: 1, islands: $islands}" "${shapes[$name]}"
        losses all >"$scratch/all" && within "$(distance "$scratch/whole" "$scratch/all")" 1e-9
        check "and so of the exchanges of islands: $name, $kind" $?
    done
done

# --- losses near those without; the bytes of a code; a resumed run ---

# Words of the codes of all gradients (core/graph/encoding.h): TEXT of awk is the words of a block of m elements.
words() {
    awk -v block="$1" 'function up(a, b) { return int((a + b - 1) / b) }
        function code(n,   m, w) { for (w = 0; n > 0; n -= m) { m = n < block ? n : block; w += '"$2"' } return w }
        BEGIN { split("8192 8192 1024 32 32", all); for (i in all) w += code(all[i])
                split("32 32 3072 96 1024 32 32 32 4096 128 4096 32", all); for (i in all) w += 2 * code(all[i]); print w }'
}
# bytes TRACE: what the first device sends in the collectives of the first step
bytes() { grep '"kind":"reduce"' "$1" | grep '"device":0,' | grep '"step":0,' | sed 's/.*"bytes":\([0-9]*\).*/\1/' | awk '{ n += $1 } END { print n + 0 }'; }

plan whole '' ''
losses whole >"$scratch/whole"
# PowerSGD: all matrices of r · (rows + columns), and the vectors, in all-reduces of four devices
power=$((6 * (4 * (2 * 288 + 64 + 2 * (128 + 64 + 160 + 160)) + 64 + 2 * (128 + 96 + 32 + 128 + 32))))
while IFS='|' read -r kind limit block each; do
    plan code "compression: {gradients: $kind}" ''
    "$MUSHER" simulate -q "$scratch/code.yaml" --trace "$scratch/sim.trace" >/dev/null
    losses code >"$scratch/code" && ! cmp -s "$scratch/whole" "$scratch/code" && within "$(distance "$scratch/whole" "$scratch/code")" "$limit"
    check "losses within $limit of those without: $kind" $?
    "$MUSHER" run -q "$scratch/code.yaml" --data "$text" --steps 1 --trace "$scratch/run.trace" >/dev/null
    n=$power
    [[ $kind == *power* ]] || n=$((3 * 4 * $(words "$block" "$each")))
    [[ $(bytes "$scratch/sim.trace") == "$n" && $(bytes "$scratch/run.trace") == "$n" ]]
    check "$n bytes a step, simulated and run: $kind" $?
    losses code 6 >"$scratch/six" && losses code 2 --save "$scratch/saved" >"$scratch/two" && losses code 4 --resume "$scratch/saved" >"$scratch/four"
    cmp -s "$scratch/six" <(cat "$scratch/two" "$scratch/four")
    check "a resumed run is the undisturbed one to the bit: $kind" $?
    rm -rf "$scratch/saved"
done <<'END'
int8|1e-3|256|1 + up(m, 4)
fp8-e4m3|1e-3|256|1 + up(m, 4)
{kind: fp8-e5m2, block: 64, rounding: nearest, feedback: ef}|2e-3|64|1 + up(m, 4)
{kind: int8, block: 64, rounding: nearest, feedback: ef}|1e-3|64|1 + up(m, 4)
sign|0.02|256|1 + up(m, 32)
{kind: top-k, fraction: 0.05, block: 100}|0.05|100|2 * up(5 * m, 100)
{kind: top-k, fraction: 0.05, block: 512, feedback: ef21}|0.05|512|2 * up(26 * m, 512)
{kind: random-k, fraction: 0.25, block: 1000}|0.05|1000|1 + up(250 * m, 1000)
power-sgd|0.05||
{kind: power-sgd, rank: 4, feedback: none}|0.05||
END
head=$'local_sgd: {every: 2, outer: nesterov}\ncompression: {outer: {kind: top-k, fraction: 0.1}, gradients: int8}'
plan code "$head" ''
losses code 7 >"$scratch/seven" && losses code 3 --save "$scratch/saved" >"$scratch/three" && losses code 4 --resume "$scratch/saved" >"$scratch/four"
cmp -s "$scratch/seven" <(cat "$scratch/three" "$scratch/four")
check "a run resumed within a local phase, its exchanges by top-k" $?
shaped other "$head" "${shapes[chunks]}"
sed -i 's/precision: fp64/precision: fp32/; s/kind: sgd, lr: 0.1/kind: adamw, lr: 1e-3/' "$scratch/other.yaml"
"$MUSHER" run "$scratch/other.yaml" --data "$text" --steps 1 --resume "$scratch/saved" >/dev/null 2>"$scratch/err" && grep -q 'lacks feedback' "$scratch/err"
check "another plan resumes without feedback, and that is said" $?
plan other "${head/top-k, fraction: 0.1/sign}" ''
"$MUSHER" run "$scratch/other.yaml" --data "$text" --steps 1 --resume "$scratch/saved" >/dev/null 2>"$scratch/err" && grep -q 'lacks feedback.*that of another code' "$scratch/err"
check "and one with another code" $?
plan other $'local_sgd: {every: 2, outer: nesterov}\ncompression: {gradients: int8}' ''
"$MUSHER" run "$scratch/other.yaml" --data "$text" --steps 1 --resume "$scratch/saved" >/dev/null 2>"$scratch/err" && grep -q 'has feedback of compression, which this plan does not have' "$scratch/err"
check "and one without feedback" $?
plan code 'compression: {gradients: int8}' '' fp16
losses code >"$scratch/code" && within "$(distance "$scratch/whole" "$scratch/code")" 5e-3
check "int8 beside the loss scale of fp16" $?

plan code 'compression: {gradients: {kind: top-k, fraction: 0.01}}' ''
for verb in show simulate; do
    "$MUSHER" $verb "$scratch/code.yaml" 2>"$scratch/err" | grep -q 'compression  gradients exchanged as top-k of 1 % in blocks of 65536, error feedback: other training' &&
        "$MUSHER" $verb "$scratch/code.yaml" --json 2>"$scratch/err" | tr -d ' \n' | grep -q '"compression":{"gradients":"gradientsexchangedastop-kof1%[^"]*","outer":null,"forward":null,"backward":null,"equivalent":false}'
    check "$verb states the compression" $?
done
plan half 'compression: {outer: bf16}' ''
says "show refuses an invalid plan" 3 "compression.outer: there is no local_sgd" "$MUSHER" show "$scratch/half.yaml"
[[ ! -s $scratch/out ]]
check "and describes nothing" $?
plan half 'compression: {gradients: {kind: top-k, fraction: 0.1, between: nodes}}' ''
says "show refuses top-k between nodes" 3 "compression.gradients" "$MUSHER" show "$scratch/half.yaml" --json
"$MUSHER" memory "$scratch/code.yaml" >"$scratch/out" 2>"$scratch/err" && grep -q 'compression feedback' "$scratch/out"
check "feedback has a line of its own in the memory of a device" $?

four_hosts fp32 'adamw, lr: 1e-3' | sed -n '/^job:/,/^cluster:/s/^  //p' >"$scratch/job.yaml"
four_hosts fp32 'adamw, lr: 1e-3' | sed -n '/^cluster:/,$s/^  //p' >"$scratch/cluster.yaml"
for kind in '{kind: top-k, fraction: 0.05, feedback: ef21}' power-sgd; do
    plan code "compression: {gradients: $kind}" ''
    rm -f "$scratch/profile.db"
    "$MUSHER" profile -q "$scratch/job.yaml" "$scratch/cluster.yaml" "$scratch/code.yaml" --db "$scratch/profile.db" --repeats 3 --largest 64 >"$scratch/out" 2>"$scratch/err"
    n=$(grep -Eo '[0-9]+ of [0-9]+ unique' "$scratch/out" | awk '{ print $1 == $3 }')
    [[ $n == 1 ]] && "$MUSHER" simulate -q "$scratch/code.yaml" --db "$scratch/profile.db" >/dev/null 2>"$scratch/err"
    check "operators of compression are measured: $kind" $?
done

# refused PATTERN HEAD [PRECISION]
refused() {
    plan half "$2" '' ${3:-}
    "$MUSHER" simulate -q "$scratch/half.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused "must be one of none, bf16.*; did you mean 'int8'" 'compression: {gradients: int9}'
refused "the key 'fraction' is missing" 'compression: {gradients: {kind: top-k}}'
refused 'needs a fraction of the elements' 'compression: {gradients: top-k}'
refused 'fraction: must be above 0' 'compression: {gradients: {kind: top-k, fraction: 0}}'
refused 'a number from 0 to 1' 'compression: {gradients: {kind: random-k, fraction: 1.5}}'
refused 'int8 has none; only top-k and random-k' 'compression: {gradients: {kind: int8, fraction: 0.5}}'
refused 'bf16 has none; only int8, fp8-e4m3' 'compression: {gradients: {kind: bf16, feedback: ef}}'
refused 'the loss scale of fp16' 'compression: {gradients: sign}' fp16
refused 'power-sgd has none or ef' 'compression: {gradients: {kind: power-sgd, feedback: ef21}}'
refused 'int8 has none; only power-sgd' 'compression: {gradients: {kind: int8, rank: 4}}'
refused 'power-sgd is for gradients' $'compression: {outer: power-sgd}\nlocal_sgd: {every: 2}'
refused 'sums and messages of fp64 are fp64' 'compression: {gradients: bf16}' fp64
refused 'keep every bit' $'deterministic: true\ncompression: {gradients: bf16}'
refused 'no local_sgd whose exchanges' 'compression: {outer: bf16}'
refused "gradient" 'compression: {gradiens: bf16}'
plan half 'compression: {gradients: int8}' ', zero: 1'
"$MUSHER" simulate -q "$scratch/half.yaml" >/dev/null 2>"$scratch/err"
[[ $? == 3 ]] && grep -q 'zero: its reduce-scatter' "$scratch/err"
check "refused: codes in ZeRO's sums" $?
shaped half 'compression: {gradients: int8}' '  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 4, stages: [{layers: [0, 2], device: n.2}, {layers: [3, 7], device: n.3}]}'
"$MUSHER" simulate -q "$scratch/half.yaml" >/dev/null 2>"$scratch/err"
[[ $? == 3 ]] && grep -q 'two chunks of one device' "$scratch/err"
check "refused: codes of a parameter that two chunks of a device share" $?
exit $bad

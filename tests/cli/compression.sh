#!/bin/bash
# tests/cli/compression.sh - sums between devices in half precision: losses near those without, messages half as long, what is refused.
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
losses() {
    "$MUSHER" run -q "$scratch/$1.yaml" --data "$text" --steps 8 --json 2>"$scratch/err" >"$scratch/run.json" || return 1
    sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$scratch/run.json" | tr ',' '\n' | tr -d ' '
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

# refused PATTERN HEAD [PRECISION]
refused() {
    plan half "$2" '' ${3:-}
    "$MUSHER" simulate -q "$scratch/half.yaml" >/dev/null 2>"$scratch/err"
    [[ $? == 3 ]] && grep -q -- "$1" "$scratch/err"
    check "refused: $1" $?
}
refused 'must be one of none, bf16, fp16' 'compression: {gradients: int8}'
refused 'sums of fp64 gradients are fp64' 'compression: {gradients: bf16}' fp64
refused 'keep every bit' $'deterministic: true\ncompression: {gradients: bf16}'
refused 'no local_sgd whose exchanges' 'compression: {outer: bf16}'
refused "gradient" 'compression: {gradiens: bf16}'
exit $bad

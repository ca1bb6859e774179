#!/bin/bash
# tests/cli/rates.sh - learning rates that follow the batch, and the gradient noise scale of a run.
set -u
. tests/cli/common.inc
cat LICENSE >"$scratch/text.txt"

# plan NAME OPTIMIZER REPLICAS [HEAD] [PRECISION]
plan() { printf 'version: 1\nname: %s\nmicrobatch: 1\n%sreplicas:\n%s\n%s\n' "$1" "${4:-}" "$3" "$(four_hosts "${5:-fp64}" "$2")" >"$scratch/$1.yaml"; }
# train NAME STEPS [OPTION...]: its JSON
train() { "$MUSHER" run -q --json "$scratch/$1.yaml" --steps "$2" --data "$scratch/text.txt" "${@:3}" 2>"$scratch/err" || cat "$scratch/err" >&2; }
# number KEY FILE
number() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$2" | head -1; }
# near A B LIMIT
near() { awk -v a="$1" -v b="$2" -v l="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= l * (b < 0 ? -b : b)) }'; }

one='  - {microbatches: 8, stages: [{layers: [0, 7], device: n.0}]}'
two='  - {microbatches: 5, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}'
pipes='  - {microbatches: 5, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 3, stages: [{layers: [0, 5], device: n.2}, {layers: [6, 7], device: n.3}]}'

# ---- rules: the batch is 8
for rule in linear:4:0.2 sqrt:2:0.2; do
    IFS=: read -r kind batch rate <<<"$rule"
    plan ruled "sgd, lr: 0.1, lr_rule: {kind: $kind, batch: $batch}" "$one"
    plan stated "sgd, lr: $rate" "$one"
    train ruled 4 >"$scratch/ruled" && train stated 4 >"$scratch/stated"
    [[ -n $(number learning_rate "$scratch/ruled") && $(sed '/"plan"\|_ns\|per_s\|blas/d' "$scratch/ruled") == "$(sed '/"plan"\|_ns\|per_s\|blas/d' "$scratch/stated")" ]]
    check "the $kind rule trains as the rate that it gives" $?
    says "show prints it: $kind" 0 "learning rate  0.2: 0.1 for $batch sequences a step, $kind rule, here 8" "$MUSHER" show "$scratch/ruled.yaml"
    says "and simulate: $kind" 0 "learning rate  0.2" "$MUSHER" simulate "$scratch/ruled.yaml" --explain
    says "and run: $kind" 0 "learning rate  0.2" "$MUSHER" run -q "$scratch/ruled.yaml" --steps 1 --data "$scratch/text.txt"
done
for bad_rule in '{kind: cubic, batch: 4}|lr_rule.kind: must be one of linear, sqrt' "{kind: linear}|the key 'batch' is missing" '{kind: linear, batch: 0}|lr_rule.batch: must be' \
    '{kind: linear, bach: 4}|did you mean' 'linear|lr_rule: must be a map'; do
    plan ruled "sgd, lr: 0.1, lr_rule: ${bad_rule%%|*}" "$one"
    says "refused: ${bad_rule%%|*}" 3 "${bad_rule#*|}" "$MUSHER" show "$scratch/ruled.yaml"
    grep -q "ruled.yaml:[0-9]*:[0-9]*: " "$scratch/err"
    check "with its place" $?
done

# ---- the noise scale
measured='gradient_noise_scale: true
'
plan plain 'sgd, lr: 0.1' "$two"
plan noisy 'sgd, lr: 0.1' "$two" "$measured"
plan piped 'sgd, lr: 0.1' "$pipes" "$measured"
train plain 12 >"$scratch/plain" && train noisy 12 >"$scratch/noisy" && train piped 12 >"$scratch/piped"
[[ $(grep '"losses"' "$scratch/plain") == "$(grep '"losses"' "$scratch/noisy")" ]]
check "a measured run trains the same bits" $?
for key in variance square scale standard_error; do
    near "$(number $key "$scratch/noisy")" "$(number $key "$scratch/piped")" 1e-9
    check "pipelines measure the same $key" $?
done
[[ $(sed -n '/gradient_noise/,/}/s/.*"steps": *\([0-9]*\).*/\1/p' "$scratch/noisy") == 12 ]]
check "of all steps" $?
near "$(number recommended_batch "$scratch/noisy")" "$(number scale "$scratch/noisy")" 0.5
check "and recommend a batch" $?
says "run prints the scale" 0 "gradient noise scale" "$MUSHER" run -q "$scratch/noisy.yaml" --steps 12 --data "$scratch/text.txt"
has "the critical batch size" out "the critical batch size (B_simple): at this batch, training needs twice the minimum number of steps and twice the minimum number of samples"
has "and what the batch costs" out "the batch of 8 takes"
says "few steps give none" 0 "gradient noise scale: not known after 2 steps; run 10 or more" "$MUSHER" run -q "$scratch/noisy.yaml" --steps 2 --data "$scratch/text.txt"
"$MUSHER" lower "$scratch/noisy.yaml" -o "$scratch/noisy.program" 2>"$scratch/err"
"$MUSHER" run -q --json "$scratch/noisy.program" --steps 12 --data "$scratch/text.txt" >"$scratch/program" 2>"$scratch/err"
near "$(number variance "$scratch/program")" "$(number variance "$scratch/noisy")" 0
check "a program file measures too" $?
"$MUSHER" simulate -q --json "$scratch/plain.yaml" >"$scratch/plain.simulated" && "$MUSHER" simulate -q --json "$scratch/noisy.yaml" >"$scratch/noisy.simulated"
awk -v a="$(number iteration_ns "$scratch/plain.simulated")" -v b="$(number iteration_ns "$scratch/noisy.simulated")" 'BEGIN { exit !(b > a && b < 1.5 * a) }'
check "the simulated step has its operators" $?

plan refused 'sgd, lr: 0.1' "$one" "$measured"
says "one replica is refused" 3 "this plan has one replica" "$MUSHER" simulate "$scratch/refused.yaml"
plan refused 'sgd, lr: 0.1' "${two/device: n.1/device: n.1, zero: 1}" "$measured"
says "ZeRO is refused" 3 "ZeRO's devices have shards" "$MUSHER" simulate "$scratch/refused.yaml"
grep -q "refused.yaml:7:" "$scratch/err"
check "with its line" $?
plan refused 'sgd, lr: 0.1' "$two" "${measured}deterministic: true
"
says "deterministic plans are refused" 3 "a deterministic plan" "$MUSHER" simulate "$scratch/refused.yaml"
says "and with --deterministic" 3 "a deterministic plan" "$MUSHER" run "$scratch/noisy.yaml" --deterministic --data "$scratch/text.txt"
plan refused 'sgd, lr: 0.1' "$two" 'gradient_noise: true
'
says "a near name is suggested" 3 "gradient_noise_scale" "$MUSHER" simulate "$scratch/refused.yaml"

# ---- trust ratios: norms of whole parameters, so every plan trains alike; ZeRO and sharded stages are refused, by plans and by the search
chunks='  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: n.0}, {layers: [2, 3], device: n.1}, {layers: [4, 5], device: n.1}, {layers: [6, 7], device: n.0}]}
  - {microbatches: 4, stages: [{layers: [0, 2], device: n.2}, {layers: [3, 7], device: n.3}]}'
for optimizer in 'lamb, lr: 1e-2' 'lars, lr: 2, trust: 0.01'; do
    name=${optimizer%%,*}
    plan first "$optimizer" "$one"
    train first 12 >"$scratch/first"
    grep '"losses"' "$scratch/first" | grep -oE '[0-9]+\.[0-9]+' | awk 'NR == 1 { a = $1 } { b = $1 } END { exit !(b < a - 0.1) }'
    check "$name lowers the loss" $?
    for layout in two pipes chunks; do
        plan other "$optimizer" "${!layout}"
        train other 12 >"$scratch/other"
        paste <(grep '"losses"' "$scratch/first" | grep -oE '[0-9]+\.[0-9]+') <(grep '"losses"' "$scratch/other" | grep -oE '[0-9]+\.[0-9]+') |
            awk 'NF != 2 { bad = 1 } { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > 1e-10) bad = 1 } END { exit bad || NR != 12 }'
        check "$name trains alike: $layout" $?
    done
    rm -rf "$scratch/saved"
    train other 5 --save "$scratch/saved" >"$scratch/saved.json" && train other 7 --resume "$scratch/saved" >"$scratch/rest"
    [[ $(grep -o '"losses".*' "$scratch/rest" | grep -oE '[0-9]+\.[0-9]+' | tail -1) == "$(grep -o '"losses".*' "$scratch/other" | grep -oE '[0-9]+\.[0-9]+' | tail -1)" ]]
    check "$name resumes to the same bits" $?
    plan other "$optimizer" "$two" '' bf16
    train other 3 >"$scratch/half" && grep -q '"losses"' "$scratch/half"
    check "$name in bf16" $?
    plan refused "$optimizer" "${two/device: n.1/device: n.1, zero: 2}"
    says "$name with ZeRO is refused" 3 "zero: optimizer $name needs the norm" "$MUSHER" simulate "$scratch/refused.yaml"
    plan other "$optimizer" "$two"
    sed -n '/^job:/,/^cluster:/p' "$scratch/other.yaml" | sed '1d;$d;s/^  //' >"$scratch/job.yaml"
    sed -n '/^cluster:/,$p' "$scratch/other.yaml" | sed '1d;s/^  //' >"$scratch/cluster.yaml"
    says "$name is planned" 0 "found" "$MUSHER" plan "$scratch/job.yaml" "$scratch/cluster.yaml" -o "$scratch/planned.yaml" --evaluations 300
    ! grep -q "zero:\|sharding:" "$scratch/planned.yaml" && "$MUSHER" simulate -q "$scratch/planned.yaml" >/dev/null 2>"$scratch/err"
    check "without ZeRO and sharded stages" $?
done

# ---- gradient clipping by global norm, momentum, Lion: every plan trains alike, ZeRO too, and a checkpoint continues
zeroed='  - {microbatches: 4, stages: [{layers: [0, 7], device: n.0, zero: 2}]}
  - {microbatches: 4, stages: [{layers: [0, 7], device: n.1, zero: 2}]}'
norms() { sed -n 's/.*"gradient_norm": *\[\([^]]*\)\].*/\1/p' "$1" | tr -d ' ' | tr ',' '\n'; }
alike() { # FILE FILE N: as many numbers, within 1e-10
    paste "$1" "$2" | awk -v n="$3" 'NF != 2 { bad = 1 } { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > 1e-10) bad = 1 } END { exit bad || NR != n }'
}
for optimizer in 'lion, lr: 3e-4, weight_decay: 0.1, max_grad_norm: 0.5' 'sgd, lr: 0.02, momentum: 0.9, nesterov: true, max_grad_norm: 0.5'; do
    name=${optimizer%%,*}
    plan first "$optimizer" "$one"
    train first 12 >"$scratch/first"
    grep '"losses"' "$scratch/first" | grep -oE '[0-9]+\.[0-9]+' >"$scratch/first.losses"
    norms "$scratch/first" >"$scratch/first.norms"
    awk 'NR == 1 { a = $1 } { b = $1 } END { exit !(b < a - 0.1) }' "$scratch/first.losses"
    check "$name with max_grad_norm lowers the loss" $?
    awk '$1 > 0.5 { n++ } END { exit !(NR == 12 && n) }' "$scratch/first.norms"
    check "$name: --json has a norm for each step, and some are clipped" $?
    for layout in two pipes chunks zeroed; do
        plan other "$optimizer" "${!layout}"
        train other 12 >"$scratch/other"
        grep '"losses"' "$scratch/other" | grep -oE '[0-9]+\.[0-9]+' >"$scratch/other.losses"
        norms "$scratch/other" >"$scratch/other.norms"
        alike "$scratch/first.losses" "$scratch/other.losses" 12 && alike "$scratch/first.norms" "$scratch/other.norms" 12
        check "$name trains alike, norms too: $layout" $?
    done
    rm -rf "$scratch/saved"
    train other 5 --save "$scratch/saved" >"$scratch/saved.json" && train other 7 --resume "$scratch/saved" >"$scratch/rest"
    [[ $(norms "$scratch/rest" | tail -1) == "$(tail -1 "$scratch/other.norms")" ]]
    check "$name resumes to the same bits" $?
    plan other "$optimizer" "$zeroed" '' bf16
    train other 3 >"$scratch/half" && [[ $(norms "$scratch/half" | wc -l) == 3 ]]
    check "$name in bf16, ZeRO 2" $?
    plan other "$optimizer" "$two"
    sed -n '/^job:/,/^cluster:/p' "$scratch/other.yaml" | sed '1d;$d;s/^  //' >"$scratch/job.yaml"
    sed -n '/^cluster:/,$p' "$scratch/other.yaml" | sed '1d;s/^  //' >"$scratch/cluster.yaml"
    says "$name is planned" 0 "found" "$MUSHER" plan "$scratch/job.yaml" "$scratch/cluster.yaml" -o "$scratch/planned.yaml" --evaluations 300
done
"$MUSHER" run "$scratch/other.yaml" --data "$scratch/text.txt" --steps 3 >"$scratch/out" 2>"$scratch/err"
grep -q "gradient norm .* at step 1, .* at step 3; clipped to 0.5 in" "$scratch/out"
check "run prints the norms" $?
plan refused 'sgd, lr: 0.1, nesterov: true' "$two"
says "nesterov without momentum is refused" 3 "nesterov needs a momentum above 0" "$MUSHER" simulate "$scratch/refused.yaml"
plan refused 'adamw, lr: 0.1, max_grad_norm: 0' "$two"
says "a norm of 0 is refused" 3 "max_grad_norm: must be above 0" "$MUSHER" simulate "$scratch/refused.yaml"
plan refused 'adamw, lr: 0.1, grad_norm: 1' "$two"
says "a near name of it is suggested" 3 "max_grad_norm" "$MUSHER" simulate "$scratch/refused.yaml"
plan refused 'sgd, lr: 0.1, max_grad_norm: 1' "$two" 'parameter_server: {servers: [n.2]}
'
says "parameter servers do not clip" 3 "parameter_server: optimizer.max_grad_norm needs the norm of all gradients" "$MUSHER" simulate "$scratch/refused.yaml"
exit $bad

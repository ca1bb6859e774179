#!/bin/bash
# tests/cli/strategy_scripts.sh - the scripts that compare strategies in real runs (tests/bench/*.sh), in a small form: all their parts work, whatever
# the times.
set -u
. tests/cli/common.inc
ROUNDS=2 STEPS=2 PLANS="sync-2 diloco-4 power-sgd-pipelines" timeout $((600 * ${SLOWDOWN:-1})) tests/bench/strategies.sh "$scratch/strategies" >"$scratch/out" 2>"$scratch/err"
check "plans of three strategies are predicted and run" $?
[[ $(grep -cE '^(sync-2|diloco-4|power-sgd-pipelines) .* ms .* ms .* %' "$scratch/out") == 3 ]] && grep -qE '^3 plans: median error [0-9.]+ %, Spearman -?[0-9.]+$' "$scratch/out"
check "with a row each, the median error and Spearman's correlation" $?
[[ $(wc -l <"$scratch/strategies/measured") == 6 ]]
check "every plan ran in both rounds" $?
awk "$(cat tools/ranks.awk)"'BEGIN {
    n = split("3 1 2 2", x, " "); split("30 10 21 20", y, " "); m = median("5 1 9 3", 4)
    exit !(m == 4 && spread == 2 && rank(x, 3, n) == 2.5 && spearman(x, y, n) > 0.948 && spearman(x, y, n) < 0.949)
}'
check "median, ranks and Spearman's correlation by hand" $?
SECONDS_EACH=0.1 STRATEGIES="synchronous diloco" timeout $((600 * ${SLOWDOWN:-1})) tests/bench/loss_curves.sh "$scratch/loss" >"$scratch/out" 2>"$scratch/err"
check "losses of two strategies over time" $?
[[ $(grep -cE '^(synchronous|diloco) +16 ' "$scratch/out") == 2 ]] && grep -qE '^synchronous .* [0-9.]+ s$' "$scratch/out"
check "with steps, losses and the time at which they reach the synchronous one's" $?
[[ $(head -c 4 "$scratch/loss/loss.png" | tail -c 3) == PNG ]] && awk -F, '$1 <= last { bad = 1 } { last = $1 } END { exit bad || NR != 16 }' "$scratch/loss/diloco.csv"
check "a picture, and a file with ascending times" $?
cp "$scratch/loss/diloco.csv" "$scratch/diloco.csv"
SECONDS_EACH=0.1 STRATEGIES="synchronous diloco" timeout $((600 * ${SLOWDOWN:-1})) tests/bench/loss_curves.sh "$scratch/loss" >"$scratch/again" 2>"$scratch/err"
cmp -s "$scratch/diloco.csv" "$scratch/loss/diloco.csv" && diff <(grep -v load "$scratch/out") <(grep -v load "$scratch/again")
check "a second call with the folder trains nothing again" $?
LR=3e-3 SECONDS_EACH=0.1 STRATEGIES=diloco tests/bench/loss_curves.sh "$scratch/loss" >"$scratch/out" 2>"$scratch/err"
[[ $? == 1 ]] && grep -q "loss has results of another plan of diloco" "$scratch/err" && cmp -s "$scratch/diloco.csv" "$scratch/loss/diloco.csv"
check "nor mixes two plans in one curve" $?
SECONDS_EACH=0.1 STRATEGIES="synchronous synchronous@1e-4" timeout $((600 * ${SLOWDOWN:-1})) tests/bench/loss_curves.sh "$scratch/loss" >"$scratch/out" 2>"$scratch/err" &&
    grep -q 'lr: 1e-4}' "$scratch/loss/synchronous@1e-4.yaml" && ! cmp -s "$scratch/loss/synchronous.csv" "$scratch/loss/synchronous@1e-4.csv" && grep -qE '^synchronous@1e-4 +16 ' "$scratch/out"
check "a strategy beside itself at another rate" $?
STEPS=2 STRATEGIES="synchronous diloco int8" RATES="1e-3 5e-4" OUTERS="average;nesterov, lr: 0.7, momentum: 0.7" timeout $((600 * ${SLOWDOWN:-1})) \
    tests/bench/loss_curves.sh "$scratch/rates" >"$scratch/out" 2>"$scratch/err"
check "learning rates are tried without emulation" $?
awk '$3 != 2 || $4 !~ /^[0-9]+[.][0-9]+$/ { bad = 1 } { n[$1]++; loss[$1, $2] = $4 }
    END { exit bad || n["synchronous"] != 2 || n["diloco"] != 4 || n["int8"] != 2 || loss["synchronous", "1e-3"] == loss["synchronous", "5e-4"] }' "$scratch/out" &&
    [[ $(grep -c 'nesterov, lr: 0.7, momentum: 0.7$' "$scratch/out") == 2 ]]
check "each rate with its loss, DiLoCo with each outer optimizer" $?
exit $bad

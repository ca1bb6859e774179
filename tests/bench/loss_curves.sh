#!/bin/bash
# tests/bench/loss_curves.sh - loss against wall time of one GPT of three million parameters on two islands of two emulated devices, 30 MB/s between
# the islands, trained by each strategy for the same time: synchronous, hierarchical (ZeRO 1 inside nodes), DiLoCo every 16 steps, PowerSGD of
# rank 4, int8, SSP (parameter server on a fifth device, in the first island; workers at most 3 steps apart). The text is the documentation of this program.
# All start from the same parameters and have the same samples in each step.
#
# SSP applies the gradient of each worker by itself, so it makes four updates a step: its lr and weight_decay are a quarter of the others'.
#
# A strategy runs in parts of some steps, each resumed from the checkpoint of the one before, until its steps took SECONDS_EACH. Time is the sum
# over its steps, as its traces have them; starts of processes and checkpoints are left out. The loss of a step is the mean over the batch; with DiLoCo
# every island has its own parameters.
# Prints for each strategy the time of a step, the last loss and the time at which it reaches the last loss of the synchronous run (means of a
# twentieth of its steps); draws FOLDER/loss.png, and FOLDER/NAME.csv has seconds and loss of every step.
# usage: MUSHER=build/musher tests/bench/loss_curves.sh [FOLDER]       results in FOLDER (build/loss), 2 h
#   SECONDS_EACH=1200        STRATEGIES="synchronous hierarchical diloco powersgd int8 ssp"        LR=1e-3
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
MUSHER=${MUSHER:-$here/build/musher}
out=${1:-build/loss}
seconds=${SECONDS_EACH:-1200} strategies=${STRATEGIES:-synchronous hierarchical diloco powersgd int8 ssp} lr=${LR:-1e-3}
every=16 # steps between DiLoCo's exchanges; parts are multiples of it
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

die() {
    echo "loss_curves: $*" >&2
    exit 1
}
mkdir -p "$out" || exit
rm -rf "$out"/*
text=$out/text.txt
cat "$here"/README.md "$here"/ARCHITECTURE.md "$here"/docs/*.md "$here"/docs/*/*.md >"$text"

# plan NAME HEAD SETTINGS [OPTIMIZER [DEVICES of node a]]
plan() {
    local d optimizer=${4:-lr: $lr}
    {
        printf 'version: 1\nname: %s\nmicrobatch: 1\n%s\nreplicas:\n' "$1" "$2"
        for d in a.0 a.1 b.0 b.1; do echo "  - {microbatches: 2, stages: [{layers: [0, 15], device: $d$3}]}"; done
        cat <<END
job:
  version: 1
  model: {model_type: gpt2, n_embd: 192, n_layer: 6, n_head: 6, n_positions: 64, vocab_size: 256}
  sequence_length: 64
  global_batch: 8
  microbatch: 1
  optimizer: {kind: adamw, $optimizer}
  seed: 1
cluster:
  version: 1
  name: two-islands
  device_types: [{name: cpu, device: host, slowdown: 4, memory: 1 GiB}]
  nodes:
    - {name: a, host: localhost, devices: {type: cpu, count: ${5:-2}}}
    - {name: b, host: localhost, devices: {type: cpu, count: 2}}
  links:
    - {name: bus-a, between: [a], bandwidth: 1 GB/s, latency: 20 us}
    - {name: bus-b, between: [b], bandwidth: 1 GB/s, latency: 20 us}
    - {name: net, between: [a, b], bandwidth: 30 MB/s, latency: 1 ms}
END
    } >"$out/$1.yaml"
}
plan synchronous '' ''
plan hierarchical '' ', zero: 1, hybrid_shard: true'
plan diloco "local_sgd: {every: $every, islands: [[0, 1], [2, 3]], outer: nesterov, lr: 0.7, momentum: 0.9}" ''
plan powersgd 'compression: {gradients: {kind: power-sgd, rank: 4}}' ''
plan ssp 'parameter_server: {servers: [a.2], mode: ssp, bound: 3}' '' "lr: $(awk -v lr="$lr" 'BEGIN { print lr / 4 }'), weight_decay: 0.0025" 3
plan int8 'compression: {gradients: int8}' ''

# part NAME STEPS TIME: runs steps and appends "seconds,loss" of each, times from TIME on
part() {
    local resume=()
    [[ -d $out/$1.saved ]] && resume=(--resume "$out/$1.saved")
    "$MUSHER" run -q "$out/$1.yaml" --steps "$2" --data "$text" --json --save "$out/$1.saved" "${resume[@]}" --trace "$out/trace" >"$out/run.json" 2>"$out/err" ||
        die "$1: $(tail -n 3 "$out/err")"
    sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$out/run.json" | tr ',' '\n' | tr -d ' ' >"$out/losses"
    sed -n '/"kind": *"step"/s/.*"step": *\([0-9]*\)[,}].*/\1 &/p' "$out/trace" | sed 's/^\([0-9]*\) .*"end_ns": *\([0-9]*\).*/\1 \2/' | sort -n |
        awk '$1 != last { if (NR > 1) print end; end = 0 } { last = $1; if ($2 > end) end = $2 } END { print end }' >"$out/ends"
    [[ $(wc -l <"$out/ends") == "$2" && $(wc -l <"$out/losses") == "$2" ]] || die "$1: $2 steps have $(wc -l <"$out/ends") ends and $(wc -l <"$out/losses") losses"
    paste "$out/ends" "$out/losses" | awk -v from="$3" '{ printf "%.6f,%s\n", from + $1 / 1e9, $2 }' >>"$out/$1.csv"
}

for name in $strategies; do
    [[ -e $out/$name.yaml ]] || die "unknown strategy '$name'; known: synchronous hierarchical diloco powersgd int8 ssp"
    at=0 steps=$every
    while awk -v at="$at" -v all="$seconds" 'BEGIN { exit !(at < all) }'; do
        part "$name" "$steps" "$at"
        at=$(tail -n 1 "$out/$name.csv" | cut -d, -f1)
        # the next part: at most a twentieth of the time, and not beyond its end by more than a period
        steps=$(awk -v at="$at" -v all="$seconds" -v n="$(wc -l <"$out/$name.csv")" -v every="$every" 'BEGIN {
            left = all - at; if (left > all / 20) left = all / 20
            k = int(left / (at / n) / every); print every * (k > 1 ? k : 1) }')
    done
    rm -rf "$out/$name.saved" "$out/trace" "$out/losses" "$out/ends"
    echo "$name: $(wc -l <"$out/$name.csv") steps in $at s, load $(cut -d' ' -f1 /proc/loadavg)"
done

first=${strategies%% *}
for name in $strategies; do sed "s/^/$name,/" "$out/$name.csv"; done | awk -F, -v first="$first" '
    !($1 in n) { names[++m] = $1 }
    { k = ++n[$1]; t[$1, k] = $2; sum[$1, k] = sum[$1, k - 1] + $3 }
    # mean loss of the last w steps up to the k-th
    function mean(name, k, w) { w = k < w ? k : w; return (sum[name, k] - sum[name, k - w]) / w }
    END {
        w = int(n[first] / 20); if (w < 1) w = 1
        goal = mean(first, n[first], w)
        printf "%-14s %8s %10s %10s %24s\n", "strategy", "steps", "s/step", "last loss", sprintf("reaches %.4f after", goal)
        for (i = 1; i <= m; i++) {
            name = names[i]; reached = "not"
            for (k = w; k <= n[name]; k++)
                if (mean(name, k, w) <= goal) { reached = sprintf("%.1f s", t[name, k]); break }
            printf "%-14s %8d %10.4f %10.4f %24s\n", name, n[name], t[name, n[name]] / n[name], mean(name, n[name], w), reached
        }
        printf "losses are means of %d steps\n", w
    }' | tee "$out/table.txt"

{
    cat <<'END'
set terminal pngcairo size 1100,620 font 'sans,11'
set datafile separator ','
set xlabel 'wall time of the steps, s'
set ylabel 'training loss, nats a byte'
set grid
set key top right
END
    for name in $strategies; do # means of a hundredth of the points
        echo "\$$name << EOD"
        awk -F, -v n="$(wc -l <"$out/$name.csv")" 'BEGIN { w = int(n / 100); if (w < 1) w = 1 } { s += $2; if (++k == w) { printf "%s,%s\n", $1, s / w; s = k = 0 } }' "$out/$name.csv"
        echo EOD
    done
    printf 'plot '
    for name in $strategies; do printf '$%s using 1:2 with lines lw 2 title "%s", ' "$name" "$name"; done
    echo 'NaN notitle'
} >"$out/loss.gp"
gnuplot "$out/loss.gp" >"$out/loss.png" 2>"$out/err" && [[ -s $out/loss.png ]] || die "gnuplot: $(cat "$out/err")"
echo "$out/loss.png"

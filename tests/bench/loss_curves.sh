#!/bin/bash
# tests/bench/loss_curves.sh - loss against wall time of one GPT of three million parameters on two islands of two emulated devices, 30 MB/s between
# the islands, trained by each strategy for the same time: synchronous, hierarchical (ZeRO 1 inside nodes), DiLoCo every 16 steps, PowerSGD of
# rank 4, int8, SSP (parameter server on a fifth device, in the first island; workers at most 3 steps apart). The text is the documentation of this program.
# All start from the same parameters and have the same samples in each step.
#
# SSP applies the gradient of each worker by itself, so it makes four updates a step: its lr and weight_decay are a quarter of those of its row.
#
# A strategy runs in parts of some steps, each resumed from the checkpoint of the one before, until its steps took SECONDS_EACH. The strategies' parts
# take turns, so other load of the machine meets all of them. Time is the sum over a strategy's steps, as its traces have them; starts of processes and
# checkpoints are left out. The loss of a step is the mean over the batch; with DiLoCo every island has its own parameters.
# Prints for each strategy the time of a step, the last loss and the time at which it reaches the last loss of the first one (means of a
# twentieth of its steps); draws FOLDER/loss.png, and FOLDER/NAME.csv has seconds and loss of every step. A second call with the same FOLDER continues
# what is there: a strategy that has its time is not trained again.
# usage: MUSHER=build/musher tests/bench/loss_curves.sh [FOLDER]       results in FOLDER (build/loss), 2 h
#   SECONDS_EACH=1200        STRATEGIES="synchronous hierarchical diloco powersgd int8 ssp"        LR=1e-3 (of all; default: of the table below)
#   A strategy may have a rate of its own behind @: STRATEGIES="synchronous synchronous@2.5e-4"
#   OUTER="nesterov, lr: 0.7, momentum: 0.7" (DiLoCo's)
#
# With STEPS=N it tunes instead: every strategy is trained N steps with every learning rate of RATES, DiLoCo also with every outer optimizer of OUTERS
# (divided by ';'), on devices without slowdown, because losses depend on steps only (SSP's also on the order of pushes). Prints the mean loss of the
# last 61 steps of each. Gradients of all strategies but int8 and SSP are linear in the samples, so two devices with half of the batch each, an island
# of DiLoCo each, give the losses of four to rounding.
#   STEPS=208        RATES="1.25e-4 2.5e-4 5e-4 1e-3 2e-3"        OUTERS="average; nesterov, lr: 0.7, momentum: 0.7"
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
MUSHER=${MUSHER:-$here/build/musher}
out=${1:-build/loss}
seconds=${SECONDS_EACH:-1200} strategies=${STRATEGIES:-synchronous hierarchical diloco powersgd int8 ssp}
every=16 # steps between DiLoCo's exchanges; parts are multiples of it
# tuned with STEPS=208, synchronous also over 1232: docs/guide/strategies.md has what was tried. hierarchical has the losses of synchronous to rounding; int8
# and ssp are not tuned
declare -A lr=([synchronous]=5e-4 [hierarchical]=5e-4 [diloco]=2.5e-4 [powersgd]=5e-4 [int8]=1e-3 [ssp]=1e-3)
outer=${OUTER:-nesterov, lr: 0.7, momentum: 0.7}
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

die() {
    echo "loss_curves: $*" >&2
    exit 1
}
for name in $strategies; do [[ -v lr[${name%@*}] ]] || die "unknown strategy '$name'; known: synchronous hierarchical diloco powersgd int8 ssp"; done
mkdir -p "$out" || exit
text=$out/text.txt
[[ -e $text ]] || cat "$here"/README.md "$here"/ARCHITECTURE.md "$here"/docs/*.md "$here"/docs/*/*.md >"$text"

# plan STRATEGY LR: prints the plan on emulated devices, or with STEPS on devices without slowdown
plan() {
    local d head='' stage='' optimizer="lr: $2" count=2 devices=(a.0 a.1 b.0 b.1) islands='[[0, 1], [2, 3]]' microbatch=1 slowdown=', slowdown: 4'
    if [[ -v STEPS ]]; then
        slowdown='' microbatch=2
        [[ $1 == int8 || $1 == ssp ]] || microbatch=4 devices=(a.0 b.0) islands='[[0], [1]]'
        [[ $1 == hierarchical ]] && microbatch=2 devices=(a.0 a.1 b.0 b.1)
    fi
    case $1 in
    hierarchical) stage=', zero: 1, hybrid_shard: true' ;;
    diloco) head="local_sgd: {every: $every, islands: $islands, outer: $outer}" ;;
    powersgd) head='compression: {gradients: {kind: power-sgd, rank: 4}}' ;;
    ssp) head='parameter_server: {servers: [a.2], mode: ssp, bound: 3}' optimizer="lr: $(awk -v lr="$2" 'BEGIN { print lr / 4 }'), weight_decay: 0.0025" count=3 ;;
    int8) head='compression: {gradients: int8}' ;;
    esac
    printf 'version: 1\nname: %s\nmicrobatch: %d\n%s\nreplicas:\n' "$1" $microbatch "$head"
    for d in "${devices[@]}"; do echo "  - {microbatches: $((8 / microbatch / ${#devices[@]})), stages: [{layers: [0, 15], device: $d$stage}]}"; done
    cat <<END
job:
  version: 1
  model: {model_type: gpt2, n_embd: 192, n_layer: 6, n_head: 6, n_positions: 64, vocab_size: 256}
  sequence_length: 64
  global_batch: 8
  microbatch: $microbatch
  optimizer: {kind: adamw, $optimizer}
  seed: 1
cluster:
  version: 1
  name: two-islands
  device_types: [{name: cpu, device: host$slowdown, memory: 1 GiB}]
  nodes:
    - {name: a, host: localhost, devices: {type: cpu, count: $count}}
    - {name: b, host: localhost, devices: {type: cpu, count: 2}}
  links:
    - {name: bus-a, between: [a], bandwidth: 1 GB/s, latency: 20 us}
    - {name: bus-b, between: [b], bandwidth: 1 GB/s, latency: 20 us}
    - {name: net, between: [a, b], bandwidth: 30 MB/s, latency: 1 ms}
END
}

# losses: the losses of $out/run.json, one a line
losses() { sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$out/run.json" | tr ',' '\n' | tr -d ' '; }

if [[ -v STEPS ]]; then
    for name in $strategies; do
        outers=$outer
        [[ $name == diloco ]] && outers=${OUTERS:-average; nesterov, lr: 0.7, momentum: 0.7}
        while IFS= read -r -d ';' outer; do
            for rate in ${RATES:-1.25e-4 2.5e-4 5e-4 1e-3 2e-3}; do
                plan "$name" "$rate" >"$out/tuned.yaml"
                "$MUSHER" run -q "$out/tuned.yaml" --steps "$STEPS" --data "$text" --json >"$out/run.json" 2>"$out/err" || die "$name: $(tail -n 3 "$out/err")"
                losses | awk -v name="$name" -v rate="$rate" -v outer="$([[ $name == diloco ]] && echo "$outer" | xargs)" '
                    { loss[NR] = $1 }
                    END { for (i = NR; i > 0 && i > NR - 61; i--) sum += loss[i]; printf "%-14s %8s %8d %8.4f  %s\n", name, rate, NR, sum / (NR - i), outer }'
            done
        done <<<"$outers;"
    done | tee "$out/rates.txt"
    exit
fi
for name in $strategies; do
    rate=${LR:-${lr[${name%@*}]}}
    [[ $name == *@* ]] && rate=${name#*@}
    plan "${name%@*}" "$rate" >"$out/new.yaml"
    [[ ! -e $out/$name.csv ]] || cmp -s "$out/new.yaml" "$out/$name.yaml" || die "$out has results of another plan of $name: name another folder"
    mv "$out/new.yaml" "$out/$name.yaml"
done

# part NAME STEPS TIME: runs steps and appends "seconds,loss" of each, times from TIME on
part() {
    local resume=()
    [[ -d $out/$1.saved ]] && resume=(--resume "$out/$1.saved")
    "$MUSHER" run -q "$out/$1.yaml" --steps "$2" --data "$text" --json --save "$out/$1.saved" "${resume[@]}" --trace "$out/trace" >"$out/run.json" 2>"$out/err" ||
        die "$1: $(tail -n 3 "$out/err")"
    losses >"$out/losses"
    sed -n '/"kind": *"step"/s/.*"step": *\([0-9]*\)[,}].*/\1 &/p' "$out/trace" | sed 's/^\([0-9]*\) .*"end_ns": *\([0-9]*\).*/\1 \2/' | sort -n |
        awk '$1 != last { if (NR > 1) print end; end = 0 } { last = $1; if ($2 > end) end = $2 } END { print end }' >"$out/ends"
    [[ $(wc -l <"$out/ends") == "$2" && $(wc -l <"$out/losses") == "$2" ]] || die "$1: $2 steps have $(wc -l <"$out/ends") ends and $(wc -l <"$out/losses") losses"
    paste "$out/ends" "$out/losses" | awk -v from="$3" '{ printf "%.6f,%s\n", from + $1 / 1e9, $2 }' >>"$out/$1.csv"
}

declare -A at=() # seconds of a strategy's steps up to now
for name in $strategies; do [[ ! -e $out/$name.csv ]] || at[$name]=$(tail -n 1 "$out/$name.csv" | cut -d, -f1); done
while :; do
    trained=0
    for name in $strategies; do
        awk -v at="${at[$name]:=0}" -v all="$seconds" 'BEGIN { exit !(at < all) }' || continue
        # a part: at most a twentieth of the time, and not beyond its end by more than a period
        steps=$every
        [[ -e $out/$name.csv ]] && steps=$(awk -v at="${at[$name]}" -v all="$seconds" -v n="$(wc -l <"$out/$name.csv")" -v every="$every" 'BEGIN {
            left = all - at; if (left > all / 20) left = all / 20
            k = int(left / (at / n) / every); print every * (k > 1 ? k : 1) }')
        part "$name" "$steps" "${at[$name]}"
        at[$name]=$(tail -n 1 "$out/$name.csv" | cut -d, -f1) trained=1
    done
    ((trained)) || break
done
for name in $strategies; do
    echo "$name: $(wc -l <"$out/$name.csv") steps in ${at[$name]} s, load $(cut -d' ' -f1 /proc/loadavg)"
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
        echo "\$$(tr -c 'a-z0-9\n' _ <<<"$name") << EOD"
        awk -F, -v n="$(wc -l <"$out/$name.csv")" 'BEGIN { w = int(n / 100); if (w < 1) w = 1 } { s += $2; if (++k == w) { printf "%s,%s\n", $1, s / w; s = k = 0 } }' "$out/$name.csv"
        echo EOD
    done
    printf 'plot '
    for name in $strategies; do printf '$%s using 1:2 with lines lw 2 title "%s", ' "$(tr -c 'a-z0-9\n' _ <<<"$name")" "${name/@/, learning rate }"; done
    echo 'NaN notitle'
} >"$out/loss.gp"
gnuplot "$out/loss.gp" >"$out/loss.png" 2>"$out/err" && [[ -s $out/loss.png ]] || die "gnuplot: $(cat "$out/err")"
echo "$out/loss.png"

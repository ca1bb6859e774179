#!/bin/bash
# tests/cli/goodput.sh - predictions with an interval, and long runs: the same bytes for any number of threads, JSON that keeps its
# promises, bad input refused in words.
set -u
. tests/cli/common.inc
# prints NAME TEXT COMMAND...: succeeds and prints TEXT.
prints() {
    local name=$1 text=$2
    shift 2
    if timeout $((300 * ${SLOWDOWN:-1})) "$@" > "$scratch/out" 2> "$scratch/err" && grep -qF -- "$text" "$scratch/out"; then
        ok "$name"
    else
        not_ok "$name" "'$text' is not in: $(head -c 300 "$scratch/out" "$scratch/err")"
    fi
}
# refused NAME CODE TEXT COMMAND...
refused() {
    local name=$1 wanted=$2 text=$3
    shift 3
    timeout $((300 * ${SLOWDOWN:-1})) "$@" > "$scratch/out" 2> "$scratch/err"
    local code=$?
    ((code == wanted)) && grep -qF -- "$text" "$scratch/err" && ok "$name" || not_ok "$name" "exit $code: $(head -c 300 "$scratch/err")"
}
# same NAME COMMAND...: the same bytes on one, two and three threads.
same() {
    local name=$1
    shift
    for t in 1 2 3; do timeout $((300 * ${SLOWDOWN:-1})) "$@" --threads $t > "$scratch/t$t" 2>> "$scratch/err" || not_ok "$name" "exit $?"; done
    [[ -s $scratch/t1 ]] && cmp -s "$scratch/t1" "$scratch/t2" && cmp -s "$scratch/t1" "$scratch/t3" && ok "$name" || not_ok "$name" "differs"
}

small_job > "$scratch/job.yaml"
cat > "$scratch/team.yaml" <<'END'
version: 1
name: team
device_types: [{name: fast, device: host, slowdown: 2, memory: 64 MiB}, {name: slow, device: host, slowdown: 5, memory: 64 MiB}]
nodes: [{name: a, host: localhost, devices: [{type: fast}, {type: slow}]}]
links: [{name: bus, between: [a], bandwidth: 1 GB/s, latency: 20 us}]
END
plan=$scratch/plan.yaml
"$MUSHER" plan "$scratch/job.yaml" "$scratch/team.yaml" -o "$plan" > /dev/null 2> "$scratch/err" && ok "a plan" || not_ok "a plan" "$(cat "$scratch/err")"

# A parameter server is no spare: the job waits until it is repaired.
served() {
    printf 'version: 1\nname: served\nmicrobatch: 1\n%sreplicas:\n' "$1"
    for d in 0 1; do echo "  - {microbatches: 4, stages: [{layers: [0, 7], device: n.$d}]}"; done
    four_hosts fp32 'sgd, lr: 0.1'
}
served $'parameter_server: {servers: [n.2], mode: bsp}\n' > "$scratch/served.yaml"
served '' > "$scratch/unserved.yaml"
prints "servers are devices of the job" '3 devices for' "$MUSHER" goodput "$scratch/served.yaml" --days 2 --mtbf 2h --repair 1h --samples 20
"$MUSHER" goodput "$scratch/served.yaml" --days 2 --mtbf 2h --repair 1h --samples 20 --json > "$scratch/served" 2> "$scratch/err"
"$MUSHER" goodput "$scratch/unserved.yaml" --days 2 --mtbf 2h --repair 1h --samples 20 --json > "$scratch/unserved" 2> "$scratch/err"
tr -d ' \n' < "$scratch/served" | grep -q '"type":"[^"]*(server)","devices":1,"spares":0' && ok "with a type of their own and no spares" || not_ok "with a type of their own and no spares" "$(head -c 300 "$scratch/served")"
waits() { sed -n '/"best"/,$p' "$1" | sed -n 's/.*"waiting": \([0-9.e-]*\).*/\1/p' | head -1; }
awk -v a="$(waits "$scratch/served")" -v b="$(waits "$scratch/unserved")" 'BEGIN { exit !(a > 0.05 && b + 0 < 0.01) }' && ok "the job waits for them" ||
    not_ok "the job waits for them" "$(waits "$scratch/served") $(waits "$scratch/unserved")"
refused "plans for fewer devices have no servers" 2 "--replan-speeds: the plan has parameter_server" "$MUSHER" goodput "$scratch/served.yaml" --replan-speeds --samples 2

# Intervals around predictions.
same "simulate --samples does not depend on threads" "$MUSHER" simulate "$plan" --samples 100 --json
for key in samples interval_ns p5_confidence_ns mean_ns standard_error_ns; do
    grep -q "\"$key\"" "$scratch/t1" && ok "simulate --json has $key" || not_ok "simulate --json has $key" "$(head -c 300 "$scratch/t1")"
done
prints "an interval as text" "90 % interval" "$MUSHER" simulate "$plan" --samples 100
wide=$(sed -n 's/.*"standard_error_ns": \([0-9]*\).*/\1/p' "$scratch/t1")
"$MUSHER" simulate "$plan" --samples 100 --jitter-alone --json > "$scratch/alone"
narrow=$(sed -n 's/.*"standard_error_ns": \([0-9]*\).*/\1/p' "$scratch/alone")
((wide > narrow && narrow > 0)) && ok "unmeasured costs widen it" || not_ok "unmeasured costs widen it" "$wide, $narrow"
"$MUSHER" simulate "$plan" --trace "$scratch/sim.trace" > /dev/null
refused "free checkpoints have no best interval" 2 "set --interval TIME" "$MUSHER" goodput --checkpoint 0s --samples 2
refused "jitter is not fitted to a prediction" 3 "no measured jitter" "$MUSHER" simulate "$plan" --samples 10 --jitter "$scratch/sim.trace"
refused "jitter without samples" 2 "--samples" "$MUSHER" simulate "$plan" --jitter-alone
"$MUSHER" run "$plan" --steps 4 --data LICENSE --trace "$scratch/run.trace" > /dev/null 2> "$scratch/err" || not_ok "a run" "$(cat "$scratch/err")"
prints "jitter is fitted to a run" "90 % interval" "$MUSHER" simulate "$plan" --samples 100 --jitter "$scratch/run.trace"

prints "stragglers" "90 % interval" "$MUSHER" simulate "$plan" --samples 20 --straggler-share 10
prints "loaders that are too slow" "devices wait" "$MUSHER" simulate "$plan" --loaders 1 --load 10min
refused "loaders without a time" 2 "--load TIME" "$MUSHER" simulate "$plan" --loaders 1

# Long runs.
few=(--samples 8 --days 5)
same "goodput does not depend on threads" "$MUSHER" goodput "${few[@]}" --json
for key in young_s daly_s optimum_s intervals best parts causes; do
    grep -q "\"$key\"" "$scratch/t1" && ok "goodput --json has $key" || not_ok "goodput --json has $key" "$(head -c 300 "$scratch/t1")"
done
prints "goodput as text" "Daly 18.6 min" "$MUSHER" goodput "${few[@]}"
prints "the table of a file" "Faulty GPU" "$MUSHER" goodput "${few[@]}" --failures tests/validate/published/llama3_interruptions_table5.csv
prints "nothing fails" "goodput 100.00 %" "$MUSHER" goodput --mtbf never
prints "fails faster than it restarts" "goodput 0: " "$MUSHER" goodput "${few[@]}" --mtbf 5s
prints "devices that leave and return" "steps on fewer devices" "$MUSHER" goodput --samples 1 --mtbf never --spot tests/data/goodput/spot.csv --speed V100-16_us-central1-a=0.4
prints "a plan's devices, replanned after losses" " replanning " "$MUSHER" goodput "$plan" "${few[@]}" --mtbf 2h --repair 1h --replan 1min --replan-speeds --storage 1MB/s
small_job | sed 's/global_batch: 6/global_batch: 24/' > "$scratch/ten-job.yaml"
small_team | sed 's/devices: \[{type: fast}, {type: slow}\]/devices: {type: fast, count: 6}/; s/devices: \[{type: slow}\]/devices: {type: slow, count: 4}/; $a \  - {name: second, between: [b], bandwidth: 1 GB/s, latency: 20 us}' > "$scratch/ten.yaml"
"$MUSHER" plan "$scratch/ten-job.yaml" "$scratch/ten.yaml" -o "$scratch/ten-plan.yaml" --baseline data-parallel -q > /dev/null
prints "ten devices, replanned for every count" " replanning " "$MUSHER" goodput "$scratch/ten-plan.yaml" "${few[@]}" --mtbf 2h --repair 1h --replan 1min --replan-speeds
small_team | sed 's/devices: \[{type: fast}, {type: slow}\]/devices: {type: fast, count: 20}/; s/devices: \[{type: slow}\]/devices: {type: slow, count: 20}/; $a \  - {name: second, between: [b], bandwidth: 1 GB/s, latency: 20 us}' > "$scratch/forty.yaml"
"$MUSHER" plan "$scratch/ten-job.yaml" "$scratch/forty.yaml" -o "$scratch/forty-plan.yaml" --baseline megatron -q > /dev/null
refused "too many sets of devices" 2 "up to 256 sets" "$MUSHER" goodput "$scratch/forty-plan.yaml" "${few[@]}" --replan-speeds
for option in pause copy restart; do
    refused "--memory-$option without checkpoints in memory" 2 "--memory-$option needs --memory-interval or --memory-every" "$MUSHER" goodput --gpus 64 "--memory-$option" 1s
done
refused "no devices" 2 "at least one device" "$MUSHER" goodput --gpus 0
refused "too many failures to simulate" 3 "failures in" "$MUSHER" goodput --mtbf 1ns
refused "too many checkpoints" 3 "checkpoints in" "$MUSHER" goodput --checkpoint 0s --interval 1us
refused "an interval of 0" 3 "every 0 s" "$MUSHER" goodput --interval 0s
refused "a text that is not a time" 2 "--restart soon" "$MUSHER" goodput --restart soon
refused "speeds of no types" 2 "--speed needs PLAN or --spot" "$MUSHER" goodput --speed x=1
refused "replanning without a plan" 2 "--replan-speeds needs PLAN" "$MUSHER" goodput --replan-speeds
refused "a file that is not a table" 3 "no column 'component'" "$MUSHER" goodput --failures tests/data/goodput/spot.csv
refused "two sources of failures" 2 "exclude each other" "$MUSHER" goodput --mtbf 1h --failures x.csv
exit $bad

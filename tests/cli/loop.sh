#!/bin/bash
# tests/cli/loop.sh - simulator and executor run the same program: the traces of simulate and run have equal spans in equal
# order; simulations repeat to the byte; plans and JSON have the documented members.
set -u
. tests/cli/common.inc
job=$scratch/job.yaml team=$scratch/team.yaml db=$scratch/p.db
small_job > "$job"
small_team > "$team"
text=LICENSE

# Spans of a device's streams in order, without times: kind, phase, microbatch, operator, of one steady step.
order() { # TRACE STEP STREAM
    sed 1d "$1" | grep "\"stream\":\"$3\"" | grep "\"step\":$2[,}]" |
        sed 's/"begin_ns":[0-9]*,"end_ns":[0-9]*,*//; s/"begin_ns":[0-9]*//; s/"end_ns":[0-9]*//'
}

"$MUSHER" profile "$job" "$team" --db "$db" --repeats 3 --json > "$scratch/profile.json" 2> "$scratch/err" && ok "profile" || not_ok "profile" "$(cat "$scratch/err")"
"$MUSHER" plan "$job" "$team" --db "$db" -o "$scratch/found.yaml" --top 2 --json > "$scratch/plan.json" && ok "plan" || not_ok "plan" "exit $?"
for key in iteration_ns baselines candidates; do
    grep -q "\"$key\"" "$scratch/plan.json" && ok "plan --json has $key" || not_ok "plan --json has $key" "$(head -c 200 "$scratch/plan.json")"
done
"$MUSHER" plan "$job" "$team" --db "$db" -o "$scratch/again.yaml" --top 2 > /dev/null
cmp -s "$scratch/found.yaml" "$scratch/again.yaml" && ok "the same plan again, to the byte" || not_ok "the same plan again" "differs"
"$MUSHER" plan "$job" "$team" --db "$db" -o "$scratch/even-pipeline.yaml" --baseline even-pipeline > /dev/null
"$MUSHER" plan "$job" "$team" --db "$db" -o "$scratch/data-parallel.yaml" --baseline data-parallel > /dev/null

# Devices with several stages: a V by name and a device with a written-out order; round robin with a bucket.
chunked() { # NAME REPLICAS
    printf 'version: 1\nname: %s\nmicrobatch: 1\nsteps: 1\nreplicas:\n%s\n' "$1" "$2" > "$scratch/$1.yaml"
    sed -n '/^job:/,$p' "$scratch/even-pipeline.yaml" >> "$scratch/$1.yaml"
}
chunked v '  - {microbatches: 4, schedule: zb-v, stages: [{layers: [0, 1], device: a.0}, {layers: [2, 3], device: a.1}, {layers: [4, 4], device: a.1}, {layers: [5, 7], device: a.0}]}
  - {microbatches: 2, orders: {b.0: "0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1"}, stages: [{layers: [0, 3], device: b.0}, {layers: [4, 7], device: b.0}]}'
chunked turns '  - {microbatches: 6, schedule: interleaved, stages: [{layers: [0, 0], device: a.0}, {layers: [1, 1], device: a.1}, {layers: [2, 2], device: b.0}, {layers: [3, 4], device: a.0, recompute: true}, {layers: [5, 6], device: a.1}, {layers: [7, 7], device: b.0}]}'

for p in found even-pipeline data-parallel v turns; do
    for i in 1 2; do "$MUSHER" simulate "$scratch/$p.yaml" --db "$db" --trace "$scratch/$p.$i" > "$scratch/$p.text.$i"; done
    cmp -s "$scratch/$p.1" "$scratch/$p.2" && cmp -s "$scratch/$p.text.1" "$scratch/$p.text.2" && ok "$p: two simulations, the same bytes" ||
        not_ok "$p: two simulations, the same bytes" "differ"
    "$MUSHER" run "$scratch/$p.yaml" --steps 3 --data $text --trace "$scratch/$p.run" --json > "$scratch/$p.json" 2> "$scratch/err" || {
        not_ok "$p runs" "$(cat "$scratch/err")"
        continue
    }
    for key in iteration_ns steps losses tokens_per_s; do
        grep -q "\"$key\"" "$scratch/$p.json" || not_ok "run --json has $key" "$(head -c 200 "$scratch/$p.json")"
    done
    for stream in compute; do
        order "$scratch/$p.1" 1 $stream > "$scratch/x"
        order "$scratch/$p.run" 1 $stream > "$scratch/y"
        [[ $(wc -l < "$scratch/x") -gt 50 ]] && cmp -s "$scratch/x" "$scratch/y" && ok "$p: sim and exec do the same $stream in the same order" ||
            not_ok "$p: sim and exec do the same $stream in the same order" "$(diff "$scratch/x" "$scratch/y" | head -n 4)"
    done
    for stream in send receive collective; do # concurrent, so equal starts are possible: compared as sets
        order "$scratch/$p.1" 1 $stream | sort > "$scratch/x"
        order "$scratch/$p.run" 1 $stream | sort > "$scratch/y"
        cmp -s "$scratch/x" "$scratch/y" && ok "$p: the same $stream spans" || not_ok "$p: the same $stream spans" "$(diff "$scratch/x" "$scratch/y" | head -n 4)"
    done
done

"$MUSHER" compare "$scratch/found.1" "$scratch/found.run" --json > "$scratch/c.json" && grep -q iteration_error "$scratch/c.json" && grep -q by_kind "$scratch/c.json" &&
    ok "compare" || not_ok "compare" "$(head -c 200 "$scratch/c.json")"
# Time breakdown of each device, predicted and measured: fractions that add up to 1. Of a plan that uses all devices, which the plan found
# on a busy machine may not.
"$MUSHER" compare "$scratch/even-pipeline.1" "$scratch/even-pipeline.run" --json > "$scratch/d.json"
sed -n 's/.*"busy": \([-0-9.e]*\), "message": \([-0-9.e]*\), "collective": \([-0-9.e]*\), "bubble": \([-0-9.e]*\)}.*/\1 \2 \3 \4/p' "$scratch/d.json" > "$scratch/parts"
awk '{ d = $1 + $2 + $3 + $4 - 1; if (d * d > 1e-16 || !($1 > 0 && $1 <= 1)) bad = 1 } END { exit bad || NR < 4 || NR % 2 }' "$scratch/parts" &&
    ok "compare breaks down devices' time" || not_ok "compare breaks down devices' time" "$(cat "$scratch/parts")"
"$MUSHER" compare "$scratch/found.1" "$scratch/found.run" --assert-within 0.0001 > /dev/null 2>&1
[[ $? == 5 ]] && ok "a tolerance that is exceeded is exit 5" || not_ok "a tolerance that is exceeded is exit 5" "$?"
"$MUSHER" calibrate --db "$db" "$scratch/even-pipeline.run" --json > "$scratch/cal.json" 2> "$scratch/err"
for key in profile_id parent_id error_before error_after; do
    grep -q "\"$key\"" "$scratch/cal.json" && ok "calibrate --json has $key" || not_ok "calibrate --json has $key" "$(cat "$scratch/err")"
done
before=$(sed -n 's/.*"error_before": *\([0-9.e-]*\).*/\1/p' "$scratch/cal.json") after=$(sed -n 's/.*"error_after": *\([0-9.e-]*\).*/\1/p' "$scratch/cal.json")
awk -v b="$before" -v a="$after" 'BEGIN { exit !(a <= b) }' && ok "calibration reduces the error on its own runs" || not_ok "calibration reduces the error on its own runs" "$before -> $after"
"$MUSHER" simulate "$scratch/found.yaml" --db "$db" --json | grep -q '"profile_id": 2' && ok "the next prediction uses the next profile" || not_ok "the next prediction uses the next profile" ""
"$MUSHER" simulate "$scratch/found.yaml" --db "$db" --profile 1 | cmp -s - "$scratch/found.text.1" && ok "and the old profile is still there, unchanged" || not_ok "and the old profile is still there" ""
"$MUSHER" lower "$scratch/found.yaml" -o "$scratch/found.program" 2> /dev/null && "$MUSHER" run "$scratch/found.program" --steps 2 --data $text --json > "$scratch/prog.json" 2> "$scratch/err" &&
    ok "a program file runs without its plan" || not_ok "a program file runs without its plan" "$(cat "$scratch/err")"
mpirun --oversubscribe -n 3 true 2> /dev/null
n=$(grep -c 'device:' <(sed '/^job:/,$d' "$scratch/data-parallel.yaml"))
mpirun --oversubscribe --bind-to none -n "$n" "$MUSHER" run "$scratch/data-parallel.yaml" --steps 2 --data $text --json > "$scratch/mpi.json" 2> "$scratch/err" &&
    [[ $(grep -c iteration_ns "$scratch/mpi.json") == 1 ]] && ok "it runs under mpirun" || not_ok "it runs under mpirun" "$(head -c 300 "$scratch/err")"
for ending in png svg json gp; do
    "$MUSHER" plot "$scratch/found.1" -o "$scratch/t.$ending" 2> "$scratch/err" && [[ -s $scratch/t.$ending ]] && ok "plot .$ending" || not_ok "plot .$ending" "$(cat "$scratch/err")"
done
"$MUSHER" plot "$scratch/found.1" "$scratch/found.run" -o "$scratch/two.svg" && grep -q '<svg' "$scratch/two.svg" && ok "simulated above measured" || not_ok "simulated above measured" ""
[[ $(for p in found v; do "$MUSHER" plot "$scratch/$p.1" -o "$scratch/$p.gp" && grep -c '#0072B2' "$scratch/$p.gp"; done) == $'0\n1' ]] &&
    ok "a device's second stage is darker" || not_ok "a device's second stage is darker" "found has some or v has none"
exit $bad

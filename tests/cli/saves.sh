#!/bin/bash
# tests/cli/saves.sh - checkpoints that are written while training goes on (run --save-every): the files of every kind of training are those of
# a run that waits for its writes, byte for byte; a killed run loses no complete generation and continues to the same bits; errors and slow
# disks; the interval of --save-every auto. MUSHER_LONG=1: 300 killed runs (KILLS) in the place of 6.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"

# plan NAME PRECISION OPTIMIZER KEYS REPLICAS: four host devices
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: saved
microbatch: 1
$4
replicas:
$5
$(four_hosts "$2" "$3")
END
}
adamw='adamw, lr: 1e-2'
# replicas SETTINGS: of all layers, on n.0 … n.3
replicas() { for d in 0 1 2 3; do echo "  - {microbatches: 2, stages: [{layers: [0, 7], device: n.$d, bucket: 8 KiB${1:+, $1}}]}"; done; }
pipeline='  - {microbatches: 8, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}'
workers='  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: n.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: n.2}]}'
sharded='  - microbatches: 8
    stages:
      - layers: [0, 7]
        zero: ZERO
        devices: [n.0, n.1]
        sharding: {operators: [{match: "h.*.attn.*", shard: heads}, {match: "h.*.mlp.*", shard: features}, {match: "*", shard: none}]}'
islands='islands: [[0, 2], [1, 3]]'

# same NAME FILES [OPTIONS]: the runs of the plan that wait for the writes, and that do not, leave the same generations, with files of these names.
same() {
    local name=$1 mode file
    for mode in sync async; do
        rm -rf "$scratch/$mode"
        "$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps 7 --save "$scratch/$mode" --save-every 2 --keep 9 --save-mode $mode --json "${@:3}" \
            >"$scratch/$mode.json" 2>"$scratch/err" || break
    done
    diff -r "$scratch/sync" "$scratch/async" >>"$scratch/err" && [[ $(echo $(ls "$scratch/async")) == "step-00000002 step-00000004 step-00000006 step-00000007" ]] &&
        grep -q '"mode": "async"' "$scratch/async.json" && grep -q '"count": 3' "$scratch/async.json"
    local code=$?
    for file in $2; do compgen -G "$scratch/async/step-00000006/$file" >/dev/null || code=1; done
    check "the same files: $name" $code
}

plan plan fp32 "$adamw" '' "$pipeline"
same "pipeline" 'optimizer.safetensors'
same "ranks of MPI" 'optimizer.safetensors' --launcher mpirun
for precision in fp16 bf16 fp64; do
    plan plan $precision "$adamw" '' "$(replicas)"
    same "$precision" 'model.safetensors'
done
for zero in 1 2 3; do
    plan plan fp16 "$adamw" '' "$(replicas "zero: $zero")"
    same "zero $zero" 'optimizer.safetensors'
done
for zero in 0 1; do
    plan plan fp32 "$adamw" '' "${sharded/ZERO/$zero}"
    same "sharded stage, zero $zero" 'model.safetensors'
done
plan plan fp32 "$adamw" "local_sgd: {every: 4, $islands, outer: nesterov, fragments: 2, delay: 2}" "$(replicas)"
same "local SGD with fragments and a delay" 'stage-0000-1.safetensors'
plan plan fp32 "$adamw" "local_sgd: {every: [4, 8], $islands, outer: nesterov}" "$(replicas 'zero: 1')"
same "islands that update at different steps, zero 1" divided-0000.safetensors
plan plan fp32 "$adamw" 'compression: {gradients: {kind: power-sgd, rank: 2}}' "$(replicas)"
same "compressed gradients" 'feedback-*.safetensors'
plan plan fp32 "$adamw" 'weight_versions: 2' "$pipeline"
same "two weight versions" 'optimizer.safetensors'
plan plan fp32 "$adamw" 'parameter_server: {servers: [n.3], mode: bsp}' "$workers"
same "parameter server, bsp" 'model.safetensors'
plan plan fp32 "$adamw" 'parameter_server: {servers: [n.3], mode: ssp, bound: 2, rate: inverse}' "$workers"
"$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps 7 --save "$scratch/order" --save-every 2 --arrivals "$scratch/log" >"$scratch/out" 2>"$scratch/err"
same "parameter server, a replayed order of arrivals" 'stage-0000-*.safetensors' --replay "$scratch/log"

# On GPUs (the stand-in of CUDA and NCCL) a stream of its own copies to page-locked memory.
on_gpus() {
    sed -i -e 's/{name: cpu, device: host, memory: 1 GiB}/{name: h, device: H100-SXM5, memory: 8 GiB}/' \
        -e 's/nodes: .*/nodes: [{name: n, host: localhost, devices: [{type: h, index: 0}, {type: h, index: 1}, {type: h, index: 2}, {type: h, index: 3}]}]/' "$scratch/plan.yaml"
    same "$@"
}
(
    export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
    export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000
    plan plan fp16 "$adamw" '' "$pipeline"
    on_gpus "GPUs, pipeline in fp16" 'model.safetensors'
    plan plan fp32 "$adamw" '' "$(replicas 'zero: 3')"
    on_gpus "GPUs, zero 3" 'optimizer.safetensors'
    plan plan fp32 "$adamw" "local_sgd: {every: 4, $islands, outer: nesterov, fragments: 2, delay: 2}" "$(replicas)"
    on_gpus "GPUs, local SGD with a delay" 'stage-0000-1.safetensors'
    exit $bad
) || bad=1

# --- killed at random moments ---

# Kills a rank, or all of them and the launcher. Returns when the launcher has ended.
end_run() {
    local ranks
    ranks=($(cat /proc/$1/task/*/children 2>/dev/null))
    if ((RANDOM % 2 && ${#ranks[@]})); then
        kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" 2>/dev/null
    else
        kill -KILL $1 "${ranks[@]}" 2>/dev/null
    fi
    wait $1
    while ((${#ranks[@]})) && kill -0 "${ranks[@]}" 2>/dev/null; do sleep 0.01; done
}
newest() { ls "$scratch/kept" 2>/dev/null | tail -n 1; }
at_step() { local n; n=$(newest) && echo $((10#0${n#step-})); }
steps=400 kills=6
[[ ${MUSHER_LONG:-} ]] && kills=${KILLS:-300}
RANDOM=11
killed=0 lost=0 other=0 broken=0 after=0
for name in pipeline zero3; do
    [[ $name == pipeline ]] && plan plan fp32 "$adamw" '' "$pipeline" || plan plan fp16 "$adamw" '' "$(replicas 'zero: 3')"
    rm -rf "$scratch/whole" "$scratch/kept"
    "$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps $steps --save "$scratch/whole" >"$scratch/out" 2>"$scratch/err"
    for ((n = 0; n < kills / 2;)); do
        from=$(at_step)
        ((from == steps)) && { diff -r "$scratch/whole/step-"* "$scratch/kept/step-00000$steps" >>"$scratch/err" || other=1; } && rm -rf "$scratch/kept" && from=0
        # the newest generation: a run that has lost it, or cannot read it, fails or starts from another
        "$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps $((steps - from)) --save "$scratch/kept" --save-every 3 $( ((from)) && echo --resume "$scratch/kept") \
            --json >"$scratch/out" 2>"$scratch/err" &
        run=$!
        sleep 0.$((RANDOM % 5 + 1))$((RANDOM % 10))
        before=$(newest)
        if kill -0 $run 2>/dev/null; then
            end_run $run 2>/dev/null
            killed=$((killed + 1)) n=$((n + 1))
        else
            wait $run || { broken=1 && cat "$scratch/err" && break; }
            grep -q "\"first_step\": $from" "$scratch/out" || broken=1
        fi
        [[ $before ]] && { [[ ! $(newest) < $before ]] || lost=1; }
        # a generation that was complete before the kill is the newest that is still whole: it verifies
        [[ $before ]] && after=$((after + 1))
        grep -q 'cannot be used' "$scratch/err" && broken=1
    done
    from=$(at_step)
    ((from == steps)) || "$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps $((steps - from)) --save "$scratch/kept" $( ((from)) && echo --resume "$scratch/kept") >"$scratch/out" 2>"$scratch/err"
    grep -q 'cannot be used' "$scratch/err" && broken=1
    diff -r "$scratch/whole/step-00000$steps" "$scratch/kept/step-00000$steps" >>"$scratch/err" || other=1
done
echo "$killed runs were killed, $after of them behind a complete generation"
((killed >= kills)) && ((!lost && !broken))
check "a killed run loses no complete generation" $?
((killed >= kills)) && ((!other))
check "and continues to the bits of an undisturbed run" $?

# --- disks ---

plan plan fp32 "$adamw" '' "$pipeline"
shims disk
DISK_NAME=optimizer.safetensors DISK_SECONDS=1 says "a slow disk: the next snapshot waits" 0 '"wait_ns": ' "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 4 --data "$text" --save "$scratch/slow" --save-every 1 --json
awk -F: '/"wait_ns"/ { found = $2 + 0 > 1e8 } /"count"/ { n = $2 + 0 } END { exit !(found && n == 3) }' "$scratch/out" && [[ $(ls "$scratch/slow" | tail -n 1) == step-00000004 ]]
check "and says how long" $?
for mode in sync async; do
    DISK_FULL=1 DISK_NAME=optimizer.safetensors says "a full disk, $mode" 6 "optimizer.safetensors': No space left on device" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data "$text" --save "$scratch/full" --save-every 2 --save-mode $mode
    [[ $(ls "$scratch/full" 2>/dev/null | wc -l) == 0 ]]
    check "and no generation is published" $?
done

# --- what is left of killed runs, and damaged checkpoints ---

rm -rf "$scratch/full"
DISK_SIGNAL=9 DISK_NAME=optimizer.safetensors says "a rank that is killed while it writes" 7 "was killed by signal 9" "${shims[@]}" "$MUSHER" run "$scratch/plan.yaml" --steps 1000000 --data "$text" --save "$scratch/full" --save-every 2
[[ -d $scratch/full && -z $(ls -A "$scratch/full") ]]
check "leaves no temporary folder" $?
continued=("$MUSHER" run "$scratch/plan.yaml" --data "$text" --save "$scratch/full" --continue)
for launcher in fork mpirun; do
    says "two checkpoints, $launcher" 0 "" "${continued[@]}" --launcher $launcher --steps 4 --save-every 2
    mkdir "$scratch/full/.step-00000003.tmp"
    says "a complete training, $launcher" 0 "the training is complete" "${continued[@]}" --launcher $launcher --steps 4
    [[ ! -e $scratch/full/.step-00000003.tmp ]]
    check "removes what a killed run has left, $launcher" $?
    for file in "$scratch"/full/*/model.safetensors; do truncate -s 10 "$file"; done
    for options in "" "--max-restarts 1"; do
        [[ $launcher == mpirun && $options ]] && continue
        says "--continue, all checkpoints are damaged, $launcher $options" 3 "no usable checkpoint in '$scratch/full': '$scratch/full/step-00000004/model.safetensors' is truncated" "${continued[@]}" --launcher $launcher --steps 6 $options
        has "what to do" err "to train from the beginning, remove its 2 checkpoints"
        [[ $(echo $(ls -A "$scratch/full")) == "step-00000002 step-00000004" ]]
        check "they stay" $?
    done
    rm -r "$scratch"/full/*
done

# --- the interval ---

says "auto, failures every hour" 0 "checkpoints " "$MUSHER" run "$scratch/plan.yaml" --steps 60 --data "$text" --save "$scratch/auto" --save-every auto --mtbf 1h
has "the interval and what it follows from are logged" err "step 10: the next checkpoint is"
has "with the time between failures" err "a failure is expected every 3600 s"
[[ $(ls "$scratch/auto" | tail -n 1) == step-00000060 ]]
check "the last step has its checkpoint" $?
rm -rf "$scratch/auto"
says "auto, failures of as many GPUs of Llama 3" 0 "checkpoints 1" "$MUSHER" run "$scratch/plan.yaml" --steps 60 --data "$text" --save "$scratch/auto" --save-every auto --save-mode sync
says "--mtbf without auto" 2 "--mtbf is for --save-every auto" "$MUSHER" run "$scratch/plan.yaml" --save "$scratch/auto" --save-every 3 --mtbf 1h
says "--mtbf 0" 2 "--mtbf 0s: not above 0" "$MUSHER" run "$scratch/plan.yaml" --save "$scratch/auto" --save-every auto --mtbf 0s
says "a time without a unit" 2 "--mtbf 5: not a time" "$MUSHER" run "$scratch/plan.yaml" --save "$scratch/auto" --save-every auto --mtbf 5
for every in -1 1.5 many 2e9; do
    says "--save-every $every" 2 "--save-every $every: not a number of steps from 0 to 1000000000, or auto" "$MUSHER" run "$scratch/plan.yaml" --save "$scratch/auto" --save-every=$every
done
says "--save-mode without --save-every" 2 "--save-every" "$MUSHER" run "$scratch/plan.yaml" --save "$scratch/auto" --save-mode sync

# --- the trace ---

rm -rf "$scratch/auto"
"$MUSHER" run "$scratch/plan.yaml" --steps 2 --data "$text" --trace "$scratch/none.trace" >"$scratch/out" 2>"$scratch/err"
says "a trace with checkpoints" 0 "" "$MUSHER" run "$scratch/plan.yaml" --steps 9 --data "$text" --save "$scratch/auto" --save-every 2 --trace "$scratch/run.trace"
has "its line states them" out "checkpoints 4, every 2 steps: "
[[ $(grep -c '"kind":"snapshot","stream":"snapshot","device":1' "$scratch/run.trace") == 4 && $(grep -c '"kind":"save","stream":"save","device":0' "$scratch/run.trace") == 4 ]]
check "spans of snapshots and of writes" $?
says "show" 0 "  checkpoints 4: " "$MUSHER" show "$scratch/run.trace"
says "goodput with its costs" 0 "best: every" "$MUSHER" goodput --gpus 1024 --trace "$scratch/run.trace" --samples 5
"$MUSHER" show "$scratch/run.trace" --json >"$scratch/show" 2>"$scratch/err"
"$MUSHER" goodput --gpus 1024 --trace "$scratch/run.trace" --samples 5 --json >"$scratch/out" 2>>"$scratch/err"
awk -F: '/"snapshot_ns"|"wait_ns"/ { pause += $2 / 1e9 } /"checkpoint_s"/ { d = pause - $2; found = 1 } END { exit !(found && pause > 0 && d < 1e-6 && d > -1e-6) }' "$scratch/show" "$scratch/out"
check "the pause of a checkpoint is the measured one" $?
says "goodput with a trace without checkpoints" 3 "no checkpoints; run --save DIR --save-every N" "$MUSHER" goodput --trace "$scratch/none.trace"
says "show --json" 0 '"count": 4' "$MUSHER" show "$scratch/run.trace" --json
exit $bad

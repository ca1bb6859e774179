#!/bin/bash
# tests/cli/failures.sh - a run whose rank dies, hangs or is interrupted ends with a message and leaves no process behind.
set -u
. tests/cli/common.inc
cat > "$scratch/plan.yaml" <<'END'
version: 1
name: victim
microbatch: 1
steps: 1
replicas:
  - {microbatches: 4, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, n_positions: 64, vocab_size: 256}
  sequence_length: 48
  global_batch: 4
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n]}]
END
mark=$scratch/plan.yaml
# Processes that have the plan on their command line; the pattern does not match itself.
runs() { grep -lsz "^${mark%plan.yaml}[p]lan[.]yaml" /proc/[0-9]*/cmdline | sed 's|/proc/||; s|/.*||'; }
# rank K LAUNCHER: process of rank K; forked ranks are the launcher's children in their order
rank() {
    local p children
    runs | while read -r p; do grep -lszx "OMPI_COMM_WORLD_RANK=$1" "/proc/$p/environ" > /dev/null && echo "$p"; done | grep . && return
    read -ra children < "/proc/$2/task/$2/children" # without a newline at its end
    [[ ${#children[@]} == 2 ]] && echo "${children[$1]}"
} 2> /dev/null
left() { runs | grep -c .; }

# victim NAME SIGNAL RANK WANTED TEXT [OPTIONS]
victim() {
    "$MUSHER" run "$mark" --steps 1000000 --data LICENSE "${@:6}" > "$scratch/out" 2> "$scratch/err" &
    local run=$! pid= code
    for _ in $(seq 1200); do
        pid=$(rank "${3/launcher/1}" $run | head -n 1) # a launcher is signalled once a rank is there
        [[ -n $pid ]] && break
        sleep 0.1
    done
    sleep 1
    if [[ $3 == launcher ]]; then pid=$run; fi
    kill "-$2" "$pid"
    wait $run
    code=$?
    [[ $code == "$4" ]] && ok "$1: exit code $4" || not_ok "$1: exit code $4" "$code: $(head -c 300 "$scratch/err")"
    grep -q "$5" "$scratch/err" && ok "$1: has its message" || not_ok "$1: has its message" "$(head -c 300 "$scratch/err")"
    for _ in $(seq 600); do
        [[ $(left) == 0 ]] && break
        sleep 0.1
    done
    [[ $(left) == 0 ]] && ok "$1: no process is left behind" || not_ok "$1: no process is left behind" "$(runs)"
}

victim "a killed rank" KILL 1 7 "rank 1"
victim "a crashed rank" SEGV 0 7 "rank 0"
MUSHER_TIMEOUT=$((8 * ${SLOWDOWN:-1})) victim "a hung rank" STOP 1 7 "n.1"
grep -q "rank 0 failed" "$scratch/err" && not_ok "the rank that detected it is not blamed" "$(cat "$scratch/err")" || ok "the rank that detected it is not blamed"
kill -CONT $(runs) 2> /dev/null
for signal in INT TERM HUP; do victim "a run that gets SIG$signal" $signal launcher 130 "interrupted"; done
victim "a killed rank of MPI" KILL 1 7 "rank 1" --launcher mpirun
victim "a crashed rank of MPI" SEGV 0 7 "rank 0" --launcher mpirun
victim "a run under MPI that gets SIGTERM" TERM launcher 130 "interrupted" --launcher mpirun

# An mpirun that has lost its ranks and hangs does not block the launcher.
mkdir "$scratch/bin"
printf '#!/bin/bash\nsleep 1 &\nwait\nexec sleep 1000\n' > "$scratch/bin/mpirun"
chmod +x "$scratch/bin/mpirun"
PATH=$scratch/bin:$PATH says "an mpirun without ranks that hangs" 7 "no rank is left, and mpirun did not end" "$MUSHER" run "$mark" --data LICENSE --launcher mpirun

# With --save a signal ends the run behind a step that all ranks share, with a checkpoint; the steps before and behind it are those of one run.
sed 's/, device: n.0}, {layers: \[4, 7\], device: n.1}/, device: n.0}/; s/\[0, 3\]/[0, 7]/; s/\[{type: cpu}, {type: cpu}\]/[{type: cpu}]/; s/, links:.*//; /^  links/d' "$mark" > "$scratch/alone.yaml"
numbers() { sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$scratch/$1" | tr ',' '\n' | tr -d ' '; }
for plan in plan alone; do
    for signal in INT TERM USR1; do
        rm -rf "$scratch/early"
        "$MUSHER" run "$scratch/$plan.yaml" --steps 100000 --data LICENSE --save "$scratch/early" --json > "$scratch/first" 2> "$scratch/err" &
        run=$!
        sleep 2
        if [[ $signal == INT ]]; then kill -INT $run; else kill -$signal $run $(cat /proc/$run/task/*/children); fi
        wait $run
        code=$?
        steps=$(numbers first | wc -l)
        [[ $code == 130 && $steps -gt 0 ]] && has "$plan, SIG$signal: ends early with exit code 130" err "interrupted after step $steps of 100000; its checkpoint is in $scratch/early" ||
            not_ok "$plan, SIG$signal: ends early with exit code 130" "$code, $steps steps: $(head -c 300 "$scratch/err")"
        [[ $(grep -c '"schema"' "$scratch/first") == 1 ]]
        check "prints its steps once" $?
        "$MUSHER" run "$scratch/$plan.yaml" --steps 3 --data LICENSE --resume "$scratch/early" --json > "$scratch/second" 2> "$scratch/err"
        "$MUSHER" run "$scratch/$plan.yaml" --steps $((steps + 3)) --data LICENSE --json > "$scratch/whole" 2>> "$scratch/err"
        [[ $(numbers second | wc -l) == 3 && $(numbers first; numbers second) == "$(numbers whole)" ]]
        check "and goes on to the same losses" $?
    done
done
rm -rf "$scratch/early"
"$MUSHER" run "$mark" --steps 1000000 --data LICENSE --save "$scratch/early" > "$scratch/out" 2> "$scratch/err" &
run=$!
sleep 2
kill -STOP $(cat /proc/$run/task/*/children)
kill -TERM $run
sleep 1
kill -TERM $run
wait $run
code=$?
[[ $code == 130 && $(left) == 0 ]]
check "a second signal ends ranks that cannot end" $?

"$MUSHER" run "$mark" --steps 12 --save-every 2 --keep 3 --data LICENSE --save "$scratch/kept" > "$scratch/out" 2> "$scratch/err"
[[ $(cd "$scratch/kept" && echo *) == "step-00000008 step-00000010 step-00000012" ]]
check "as many checkpoints are kept as --keep states" $?
says "--keep without --save" 2 "--save" "$MUSHER" run "$mark" --keep 3 --data LICENSE

# A run that is killed while it saves leaves a checkpoint that loads.
"$MUSHER" run "$mark" --steps 1000000 --data LICENSE --save "$scratch/save" --save-every 2 > /dev/null 2>&1 &
run=$!
for _ in $(seq 1200); do
    [[ -n $(ls -d "$scratch"/save/step-* 2> /dev/null | sed -n 2p) ]] && break
    sleep 0.1
done
kill -KILL $(runs)
wait $run 2> /dev/null
"$MUSHER" run "$mark" --steps 1 --data LICENSE --resume "$scratch/save" --json > "$scratch/out" 2> "$scratch/err" &&
    grep -q '"first_step": [1-9]' "$scratch/out" && ok "a run killed while it saves can be resumed" ||
    not_ok "a run killed while it saves can be resumed" "$(head -c 300 "$scratch/err")"
for f in "$scratch"/save/step-*/model.safetensors; do printf '\x55' | dd of="$f" bs=1 seek=20000 conv=notrunc 2> /dev/null; done
"$MUSHER" run "$mark" --steps 1 --data LICENSE --resume "$scratch/save" > "$scratch/out" 2> "$scratch/err"
code=$?
[[ $code == 3 ]] && grep -q "model\|checkpoint\|step-" "$scratch/err" && ok "damaged checkpoints are refused by name" ||
    not_ok "damaged checkpoints are refused by name" "exit code $code: $(head -c 300 "$scratch/err")"
exit $bad

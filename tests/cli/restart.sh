#!/bin/bash
# tests/cli/restart.sh - a run whose ranks are killed or stopped starts again from its newest checkpoint, on all devices (--max-restarts) or on a
# new plan without theirs (--elastic), and ends with the parameters of an undisturbed run, to the bit.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
steps=60

# plan NAME HEAD: two pipelines of two stages on n.0 … n.3
plan() {
    cat >"$scratch/$1.yaml" <<END
version: 1
name: $1
microbatch: 1
deterministic: true
$2
replicas:
  - {microbatches: 4, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
  - {microbatches: 4, stages: [{layers: [0, 3], device: n.2}, {layers: [4, 7], device: n.3}]}
$(four_hosts fp32 adamw | sed "s/device: host,/device: host, slowdown: 10,/")
END
}
plan whole ""
"$MUSHER" run -q "$scratch/whole.yaml" --data "$text" --steps $steps --save "$scratch/undisturbed" --json >"$scratch/undisturbed.json" 2>"$scratch/err" && ok "an undisturbed run" || not_ok "an undisturbed run" "$(cat "$scratch/err")"
numbers() { sed -n 's/.*"losses": *\[\([^]]*\)\].*/\1/p' "$1" | tr ',' '\n' | tr -d ' '; }
newest() { ls -d "$scratch/saved/step-"* 2>/dev/null | tail -n 1; }
# ranks_are_there [N]: waits for N ranks (2) or the end of the run; their processes in pids
ranks_are_there() {
    pids=()
    until ((${#pids[@]} >= ${1:-2})) || ! kill -0 $run 2>/dev/null; do
        read -ra pids <<<"$(cat /proc/$run/task/*/children 2>/dev/null)"
        sleep 0.02
    done
}

# disturbed NAME SIGNALS OPTIONS: signals of the form SIGNAL:RANK:STEP, each sent once the checkpoint of STEP is there
disturbed() {
    local name=$1 signal one rank step pids wanted sent=0
    rm -rf "$scratch/saved"
    "$MUSHER" run "$scratch/whole.yaml" --data "$text" --steps $steps --save "$scratch/saved" --save-every 5 --json "${@:3}" >"$scratch/out" 2>"$scratch/err" &
    run=$!
    for one in $2; do
        IFS=: read -r signal rank step <<<"$one"
        wanted=$scratch/saved/step-$(printf %08d "$step")
        until [[ $(newest) > $wanted || $(newest) == "$wanted" ]] || ! kill -0 $run 2>/dev/null; do sleep 0.02; done
        ranks_are_there $((rank + 1))
        kill "-$signal" "${pids[$rank]:-}" 2>/dev/null && sent=$((sent + 1))
    done
    wait $run
    code=$?
    [[ $code == 0 && $sent == $(wc -w <<<"$2") && $(grep -c '"step": .*"why"\|"why":' "$scratch/out") -ge 1 ]] && ok "$name: ends with exit code 0 after $sent signals" ||
        not_ok "$name: ends with exit code 0 after $sent signals" "$code: $(tail -n 5 "$scratch/err")"
    as_undisturbed "$name"
}
as_undisturbed() { # NAME
    local name=$1 same all t
    numbers "$scratch/out" >"$scratch/last"
    [[ -s $scratch/last ]] && cmp -s "$scratch/last" <(numbers "$scratch/undisturbed.json" | tail -n "$(wc -l <"$scratch/last")")
    check "$name: with the losses of the undisturbed run" $?
    same=0 all=0
    for t in $(sed -n 's/.*"name": "\([^"]*\)", "shape".*/\1/p; s/.*"name": "\([^"]*\)",.*/\1/p' "$scratch"/undisturbed/step-*/manifest.json | sort -u); do
        all=$((all + 1))
        cmp -s <(values "$scratch/undisturbed" "$t") <(values "$scratch/saved" "$t") && same=$((same + 1))
    done
    ((same == all && all > 20)) && ok "$name: and its parameters and state" || not_ok "$name: and its parameters and state" "$same of $all tensors"
    [[ -z $(pgrep -f "$scratch/whole.yaml") && -z $(find "$scratch/saved" -name '*.tmp') ]]
    check "$name: no process and no temporary file is left" $?
}
# bytes of a tensor of the newest generation
values() {
    local folder line
    folder=$(ls -d "$1"/step-* | tail -n 1)
    line=$(grep -F "\"name\": \"$2\"," "$folder/manifest.json") || return 1
    tail -c +$((1 + $(sed 's/.*"offset": *\([0-9]*\).*/\1/' <<<"$line"))) "$folder/$(sed 's/.*"file": *"\([^"]*\)".*/\1/' <<<"$line")" | head -c "$(sed 's/.*"bytes": *\([0-9]*\).*/\1/' <<<"$line")" | md5sum
}

disturbed "a killed rank" "KILL:1:10" --max-restarts 1
has "the restart is reported" err "rank 1 was killed by signal 9 (Killed); restart 1 of 1 after step"
disturbed "three killed ranks" "KILL:0:5 SEGV:3:15 KILL:2:25" --max-restarts 3
export MUSHER_TIMEOUT=$((4 * ${SLOWDOWN:-1}))
disturbed "a stopped rank" "STOP:2:10" --max-restarts 1
disturbed "a device that is lost" "KILL:1:10" --max-restarts 1 --elastic
has "the new plan is without it" out '"without": "n.1"'
disturbed "two devices that are lost" "KILL:3:10 STOP:0:25" --max-restarts 2 --elastic
unset MUSHER_TIMEOUT

# the program itself is killed, and the same command starts again: with a killed rank among the starts
rm -rf "$scratch/saved"
again=("$MUSHER" run "$scratch/whole.yaml" --data "$text" --steps $steps --save "$scratch/saved" --save-every 5 --max-restarts 1 --continue --json)
for start in 1 2 3; do
    before=$(newest)
    "${again[@]}" >"$scratch/out" 2>"$scratch/err" &
    run=$!
    until [[ $(newest) > $before ]] || ! kill -0 $run 2>/dev/null; do sleep 0.01; done
    ranks_are_there 4
    if ((start == 2)); then
        kill -KILL "${pids[1]:-}"
        until grep -q "restart 1 of 1" "$scratch/err" || ! kill -0 $run 2>/dev/null; do sleep 0.02; done
    fi
    kill -KILL $run 2>/dev/null
    wait $run 2>/dev/null
    for pid in "${pids[@]}"; do while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done; done
done
"${again[@]}" >"$scratch/out" 2>"$scratch/err"
check "a program that is killed three times, once after a restart, ends at the fourth start" $?
as_undisturbed "a killed program"

# before any checkpoint, and without an end
rm -rf "$scratch/saved"
"$MUSHER" run "$scratch/whole.yaml" --data "$text" --steps 2000000 --save "$scratch/saved" --max-restarts 2 >"$scratch/out" 2>"$scratch/err" &
run=$!
while kill -0 $run 2>/dev/null; do # each start lasts until its second rank is killed
    ranks_are_there
    kill -KILL "${pids[1]:-}" 2>/dev/null
    sleep 0.3
done
wait $run
code=$?
[[ $code == 7 && $(grep -c "restart . of 2 after step 0" "$scratch/err") == 2 ]] && tail -n 1 "$scratch/err" | grep -q "^musher: rank 1 was killed by signal 9"
check "after the last restart the failure is the error, with exit code 7" $?

# a signal beside a failure is not lost
rm -rf "$scratch/saved"
"$MUSHER" run "$scratch/whole.yaml" --data "$text" --steps 2000000 --save "$scratch/saved" --save-every 5 --max-restarts 2 >"$scratch/out" 2>"$scratch/err" &
run=$!
until [[ -n $(newest) ]] || ! kill -0 $run 2>/dev/null; do sleep 0.02; done
ranks_are_there
kill -KILL "${pids[1]}"
kill -TERM $run
wait $run
code=$?
[[ $code == 130 ]] && grep -q "interrupted" "$scratch/err" && ! grep -q restart "$scratch/err"
check "a run that gets SIGTERM while a rank fails does not start again" $?

"$MUSHER" lower -q "$scratch/whole.yaml" -o "$scratch/whole.program" >/dev/null
says "--elastic of a program file" 2 "pass the plan" "$MUSHER" run "$scratch/whole.program" --data "$text" --save "$scratch/x" --max-restarts 1 --elastic
plan local "local_sgd: {every: 4}"
sed -i '/^deterministic/d' "$scratch/local.yaml"
says "--elastic of a plan that trains differently" 3 "the plan has local_sgd" "$MUSHER" run "$scratch/local.yaml" --data "$text" --save "$scratch/x" --max-restarts 1 --elastic
says "--max-restarts without --save" 2 "--save" "$MUSHER" run "$scratch/whole.yaml" --data "$text" --max-restarts 1
says "--elastic without --max-restarts" 2 "--max-restarts" "$MUSHER" run "$scratch/whole.yaml" --data "$text" --save "$scratch/x" --elastic
says "--max-restarts of mpirun's ranks" 2 "--launcher fork" "$MUSHER" run "$scratch/whole.yaml" --data "$text" --save "$scratch/x" --max-restarts 1 --launcher mpirun
exit $bad

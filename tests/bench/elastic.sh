#!/bin/bash
# tests/bench/elastic.sh - runs of `musher run --elastic` on emulated teams of 4 to 6 devices, with random faults: every run ends with the tensors of
# an undisturbed one, to the bit.
# usage: tests/bench/elastic.sh [SCRIPTS [KILLS [large]]]     default: 50 scripts, 20 kills; 10 s a script, 2 s a kill, 60 s the large model
# 1. SCRIPTS fault scripts, each drawn from its number: one to four faults of the kinds kill, stop, exit, slow, link_slow, disk_full, and host_lost
#    whose node comes back. Checked: exit code 0, every fault happened, each restart was detected within two heartbeat limits (MUSHER_TIMEOUT), the number
#    of sequences read, all tensors, no process and no temporary file left. A row a script, and the mean share of each phase of a restart.
# 2. KILLS times SIGKILL of `musher run` itself, at steps drawn from the kill's number, and the same command again with --continue.
# 3. large: the restart of a GPT of 3 million parameters after a killed rank.
set -u
count=${1:-50} kills=${2:-20} large=${3:-}
musher=${MUSHER:-build/musher} steps=60 bad=0
scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # checkpoints in memory: a shared disk's syncs vary by a second
trap 'rm -rf "$scratch"' EXIT
export MUSHER_TIMEOUT=$((4 * ${SLOWDOWN:-1})) OPENBLAS_NUM_THREADS=1
fail() { echo "not ok $1: $2" && bad=1; }
# plan NAME DEVICES WIDTH BLOCKS SLOWDOWN: equal replicas of one device, one on each node h0 … h5; 12 sequences a step
plan() {
    local n=$2 i last=$((2 * $4 + 3))
    printf 'version: 1\nname: %s\nmicrobatch: 1\ndeterministic: true\nreplicas:\n' "$1"
    for ((i = 0; i < n; i++)); do printf '  - {microbatches: %d, stages: [{layers: [0, %d], device: h%d.0}]}\n' $((12 / n + (i < 12 % n))) "$last" "$i"; done
    cat <<END
job:
  version: 1
  model: {model_type: gpt2, n_embd: $3, n_layer: $4, n_head: 4, n_positions: 64, vocab_size: 256}
  sequence_length: 24
  global_batch: 12
  precision: fp32
  optimizer: {kind: adamw}
  seed: 7
cluster:
  version: 1
  name: team
  device_types: [{name: cpu, device: host, slowdown: $5, memory: 1 GiB}]
  nodes:
END
    for ((i = 0; i < n; i++)); do echo "    - {name: h$i, host: localhost, devices: [{type: cpu}]}"; done
    echo "  links:"
    for ((i = 0; i < n; i++)); do for ((k = i + 1; k < n; k++)); do echo "    - {name: l$i$k, between: [h$i, h$k], bandwidth: 100 MB/s, latency: 50 us}"; done; done
}
for n in 4 5 6; do plan "team$n" $n 32 2 20 >"$scratch/team$n.yaml"; done
# train PLAN STEPS OPTIONS...
train() {
    "$musher" run -q "$scratch/$1.yaml" --data LICENSE --steps "$2" --save "$scratch/saved" --save-every 5 --json "${@:3}"
}
newest() { ls -d "$scratch/$1"/step-* 2>/dev/null | tail -n 1; }
tensors() { # FOLDER: checksum of every tensor of the newest checkpoint, and the number of sequences that were read
    local folder
    folder=$(newest "$1")
    jq -r '.data.sequences, (.tensors[] | "\(.name) \(.crc32)")' "$folder/manifest.json" | sort
}
nothing_left() { [[ -z $(pgrep -f "$scratch/team") && -z $(find "$scratch/saved" -name '*.tmp' -o -name '.step*') ]]; }
train team4 $steps >"$scratch/undisturbed.json" || exit 1
tensors saved >"$scratch/undisturbed"
[[ $(wc -l <"$scratch/undisturbed") -gt 20 ]] || fail "an undisturbed run" "no tensors"
grep -qx $((12 * steps)) "$scratch/undisturbed" || fail "each sequence is read once" "$(grep -v ' ' "$scratch/undisturbed")"

# draw SCRIPT DEVICES: a fault script
draw() {
    RANDOM=$1
    local n=$((RANDOM % 3 + 2)) i at host kind
    echo $'version: 1\nfaults:'
    for ((i = 0; i < n; i++)); do
        at=$((RANDOM % (steps - 20) + 4 + 2 * i)) host=h$((RANDOM % $2)) kind=$((RANDOM % 8))
        ((i == 0)) && kind=$(($1 % 8)) # each kind comes first in one of eight scripts
        case $kind in
        0) echo "  - {kind: kill, device: $host.0, at_step: $at}" ;;
        1) echo "  - {kind: stop, device: $host.0, at_step: $at}" ;;
        2) echo "  - {kind: exit, device: $host.0, at_step: $at, code: 9}" ;;
        3) echo "  - {kind: slow, device: $host.0, at_step: $at, factor: $((RANDOM % 3 + 2)), steps: $((RANDOM % 6 + 3))}" ;;
        4) echo "  - {kind: link_slow, link: l$((RANDOM % 2))$((RANDOM % 2 + 2)), at_step: $at, factor: $((RANDOM % 8 + 2)), steps: $((RANDOM % 6 + 3))}" ;;
        5) echo "  - {kind: disk_full, at_step: $at}" ;;
        6) echo "  - {kind: host_lost, node: $host, at_step: $at, back_at_step: $((at + 3 + RANDOM % 6))}" ;;
        7) echo "  - {kind: host_lost, node: $host, at_step: $at, back: $((RANDOM % 1000 + 200)) ms}" ;;
        esac
    done
}
# In the order of steps; a device that is away has no further fault, and two devices stay.
possible() { # DEVICES
    sed 's/.*at_step: \([0-9]*\).*/\1 &/; t; s/^/0 /' | sort -s -n -k1,1 | cut -d' ' -f2- | awk -v most=$(($1 - 2)) '{
        host = match($0, /h[0-9]/) ? substr($0, RSTART, 2) : ""
        ends = /kill|stop|exit|host_lost/
        if ((host && host in gone) || (ends && n == most)) next
        if (ends) gone[host] = ++n
        print
    }'
}
((count)) && printf '%-6s %-7s %-46s %8s %6s %10s %9s\n' script devices faults restarts 'lost' 'detect s' 'resume s'
for ((script = 1; script <= count; script++)); do
    n=$((script % 3 + 4)) name="script $script"
    draw "$script" $n | possible $n >"$scratch/faults.yaml"
    rm -rf "$scratch/saved"
    train team$n $steps --elastic --max-restarts 9 --faults "$scratch/faults.yaml" --save-mode sync >"$scratch/run.json" 2>"$scratch/err"
    code=$?
    ((code == 0)) || { fail "$name ends with exit code 0" "$code: $(tail -n 3 "$scratch/err"); $(cat "$scratch/faults.yaml")" && continue; }
    [[ $(jq '[.faults[].happened] | all' "$scratch/run.json") == true ]] || fail "$name: every fault happens" "$(jq -c .faults "$scratch/run.json")"
    [[ $(jq "[.restarts[]? | .detection_ns <= 2e9 * $MUSHER_TIMEOUT] | all" "$scratch/run.json") == true ]] || fail "$name: is detected in time" "$(jq -c .restarts "$scratch/run.json")"
    tensors saved | cmp -s - "$scratch/undisturbed" || fail "$name: the tensors of an undisturbed run" "$(tensors saved | diff - "$scratch/undisturbed" | head -n 3)"
    nothing_left || fail "$name: nothing is left" "$(pgrep -af "$scratch/team"; find "$scratch/saved" -name '.*')"
    jq -r --arg n $n --arg s "$script" '[.restarts[]? | select(.failed and .first_step_ns > 0)] as $r |
        [$s, $n, ([.faults[].kind] | join(" ")), (.restarts // [] | length), .goodput.lost_steps,
         ([$r[].detection_ns] | add // 0) / 1e9, ([$r[] | (.replan_ns // 0) + .launch_ns + .load_ns + .first_step_ns] | add // 0) / 1e9 / ([$r | length, 1] | max)] | @tsv' "$scratch/run.json" |
        awk -F'\t' '{ printf "%-6d %-7d %-46s %8d %6d %10.3f %9.3f\n", $1, $2, $3, $4, $5, $6, $7 }'
    jq -c '.restarts[]? | select(.failed and .first_step_ns > 0) | [.detection_ns, .replan_ns // 0, .launch_ns, .load_ns, .first_step_ns]' "$scratch/run.json" >>"$scratch/phases"
done
phases() { jq -rs 'length as $n | transpose | map(add / $n / 1e9) | [$n, .[0], (.[1:] | add), .[1:][]] | @tsv' "$1" |
    awk -F'\t' '$1 > 0 { printf "%d restarts: detection %.3f s; from then to the end of the first new step %.3f s: planning %.0f %%, launch %.0f %%, load %.0f %%, first step %.0f %%\n", $1, $2, $3, 100 * $4 / $3, 100 * $5 / $3, 100 * $6 / $3, 100 * $7 / $3 }'; }
[[ -s $scratch/phases ]] && phases "$scratch/phases"

# ---- the program itself is killed: behind a step that its standard error names, with a killed rank in every third start
rm -rf "$scratch/saved"
killed=0 many=$((20 + 30 * kills))
if ((kills)); then
    train team4 $many >"$scratch/undisturbed.json" || exit 1
    tensors saved >"$scratch/undisturbed"
    rm -rf "$scratch/saved"
fi
RANDOM=1
echo $'version: 1\nfaults: [{kind: kill, device: h1.0, at_step: 2}]' >"$scratch/faults.yaml"
again=("$musher" run "$scratch/team4.yaml" --data LICENSE --steps $many --save "$scratch/saved" --save-every 2 --elastic --max-restarts 3 --continue --json) # no function, because its process would be a shell
while ((killed < kills)); do
    extra=()
    ((killed % 3 == 2)) && for one in "$scratch"/saved/step-*; do extra=(--faults "$scratch/faults.yaml") && sed -i "s/at_step: [0-9]*/at_step: $((10#${one##*-} + 2))/" "$scratch/faults.yaml"; done
    before=$(newest saved) wait=$((RANDOM % 3)) # new checkpoints to wait for
    "${again[@]}" "${extra[@]}" >"$scratch/out" 2>"$scratch/err" &
    run=$!
    for ((i = 0; i < wait; i++)); do
        until [[ $(newest saved) > $before ]] || ! kill -0 $run 2>/dev/null; do sleep 0.01; done
        before=$(newest saved)
    done
    ((wait == 0)) && until [[ -n $(cat /proc/$run/task/*/children 2>/dev/null) ]] || ! kill -0 $run 2>/dev/null; do sleep 0.002; done
    read -ra ranks <<<"$(cat /proc/$run/task/*/children 2>/dev/null)"
    kill -KILL $run 2>/dev/null || { wait $run; fail "the training goes on" "it ended after $killed kills: $(tail -n 3 "$scratch/err")"; break; }
    wait $run 2>/dev/null
    killed=$((killed + 1))
    for ((i = 0; i < 200; i++)); do [[ -z $(pgrep -f "$scratch/team") ]] && break || sleep 0.01; done
    [[ -z $(pgrep -f "$scratch/team") ]] || fail "kill $killed: its ranks end with it" "${ranks[*]}"
done
if ((kills)); then
    "${again[@]}" >"$scratch/out" 2>"$scratch/err" || fail "the last start" "$(tail -n 3 "$scratch/err")"
    tensors saved | cmp -s - "$scratch/undisturbed" || fail "killed $killed times: the tensors of an undisturbed run" "$(tensors saved | diff - "$scratch/undisturbed" | head -n 3)"
    nothing_left || fail "killed $killed times: nothing is left" "$(find "$scratch/saved" -name '.*')"
    echo "musher run was killed $killed times"
fi

# ---- the restart of a larger model
if [[ -n $large ]]; then
    plan large 4 224 5 4 >"$scratch/large.yaml"
    for at in 6 11 16; do
        printf 'version: 1\nfaults: [{kind: kill, device: h%d.0, at_step: %d}]\n' $((at % 4)) $at >"$scratch/faults.yaml"
        rm -rf "$scratch/saved"
        train large 18 --elastic --max-restarts 1 --faults "$scratch/faults.yaml" >"$scratch/run.json" || fail "the large model" "$at"
        jq -c '.restarts[]? | select(.failed) | [.detection_ns, .replan_ns // 0, .launch_ns, .load_ns, .first_step_ns]' "$scratch/run.json" >>"$scratch/large.phases"
    done
    echo "3 million parameters, step $(jq -r '.goodput.step_ns / 1e6 | floor' "$scratch/run.json") ms:"
    phases "$scratch/large.phases"
fi
exit $bad

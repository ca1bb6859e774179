#!/bin/bash
# tests/cli/memory_checkpoints.sh - restarts from checkpoints in host memory (run --memory-every): a rank's own, or the copy on a peer node when the
# node is lost with its memory; the parameters are those of an undisturbed run, to the bit.
set -u
. tests/cli/common.inc
text=$scratch/text.txt
cat LICENSE >"$text"
cat >"$scratch/team.yaml" <<'END'
version: 1
name: team
device_types: [{name: d, device: host, slowdown: 2, memory: 1 GiB}]
nodes: [{name: a, host: localhost, devices: {type: d, count: 2}}, {name: b, host: localhost, devices: {type: d, count: 1}}]
links:
  - {name: bus, between: [a], bandwidth: 400 MB/s, latency: 20 us}
  - {name: net, between: [a, b], bandwidth: 200 MB/s, latency: 50 us}
END
plan() { # REPLICA LINES
    cat <<END
version: 1
name: equal
microbatch: 1
deterministic: true
replicas:
$1
job:
$(small_job | sed 's/^/  /; s/global_batch: .*/global_batch: 6/')
cluster:
$(sed 's/^/  /' "$scratch/team.yaml")
END
}
plan "  - {microbatches: 2, stages: [{layers: [0, 7], device: a.0}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: a.1}]}
  - {microbatches: 2, stages: [{layers: [0, 7], device: b.0}]}" >"$scratch/plan.yaml"
sed 's/layers: \[0, 7\]/&, zero: 1/; /^deterministic/d' "$scratch/plan.yaml" >"$scratch/zero.yaml" # its all-reduces have one order too
plan "  - {microbatches: 6, stages: [{layers: [0, 3], device: a.0}, {layers: [4, 7], device: b.0}]}" >"$scratch/pipeline.yaml"
steps=30
run() { # PLAN FAULTS [OPTION...]
    local plan=$1
    local faults=(--faults "$scratch/faults.yaml")
    printf 'version: 1\nfaults: [%s]\n' "$2" >"$scratch/faults.yaml"
    [[ $2 ]] || faults=()
    shift 2
    rm -rf "$scratch/saved"
    "$MUSHER" run "$scratch/$plan.yaml" --data "$text" --steps $steps --json --save "$scratch/saved" --max-restarts 3 "${faults[@]}" "$@" >"$scratch/out" 2>"$scratch/err"
}
value() { jq -r "$1" "$scratch/out"; }
tensors() { # checksum of the values of every tensor of the newest checkpoint
    local folder
    folder=$(ls -d "$scratch"/saved/step-* | tail -n 1)
    jq -r '.. | objects | select(.name? and .offset? != null) | "\(.name) \(.file) \(.offset) \(.bytes)"' "$folder/manifest.json" | sort | while read -r name file offset bytes; do
        echo "$name $(tail -c +$((offset + 1)) "$folder/$file" | head -c "$bytes" | md5sum)"
    done
}
same() { tensors >"$scratch/tensors" && (($(wc -l <"$scratch/tensors") > 20)) && cmp -s "$scratch/tensors" "$scratch/$1"; }
restarts() { value '[.restarts[] | "\(.step) \(.from)"] | join(", ")'; }

for p in plan zero pipeline; do
    run $p "" && tensors >"$scratch/undisturbed-$p"
    check "$p: undisturbed" $?
done

# ---- a killed rank: its memory is there
run plan "{kind: kill, device: a.1, at_step: 19}" --memory-every 4 && [[ $(restarts) =~ ^1[26]\ memory$ && $(value '.goodput.lost_steps') -le 6 ]]
check "a killed rank restarts from memory" $?
same undisturbed-plan && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts) $(head -c 300 "$scratch/err")"
[[ $(value '.memory_checkpoints.every') == 4 && $(value '.memory_checkpoints.count') -ge 2 && $(value '.memory_checkpoints.snapshot_ns') -gt 0 ]]
check "their cost is reported" $?

# ---- a lost host: its memory is lost, and that of its peer is used
for node in a b; do
    run plan "{kind: host_lost, node: $node, at_step: 19, back: 100 ms}" --memory-every 4 && [[ $(restarts) =~ ^1[26]\ peer$ ]]
    check "a lost host $node restarts from its peer's memory" $?
    same undisturbed-plan && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts)"
done
for p in zero pipeline; do
    run $p "{kind: host_lost, node: b, at_step: 19, back: 100 ms}, {kind: kill, device: a.0, at_step: 26}" --memory-every 4 && [[ $(restarts) =~ ^1[26]\ peer,\ 2[04]\ memory$ ]]
    check "$p: twice" $?
    same undisturbed-$p && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts)"
done

# ---- predicted: the same steps are lost
run plan "{kind: kill, device: a.1, at_step: 20}, {kind: host_lost, node: b, at_step: 28, back: 100 ms}" --memory-every 4 && lost=$(value '.goodput.lost_steps') &&
    "$MUSHER" goodput "$scratch/plan.yaml" --faults "$scratch/faults.yaml" --steps $steps --memory-every 4 --max-restarts 3 --measured "$scratch/out" --json >"$scratch/predicted" 2>"$scratch/err" &&
    predicted=$(jq .goodput.lost_steps "$scratch/predicted") && ((lost == predicted || lost == predicted + 4 || lost == predicted + 8)) &&
    [[ $(jq -r '.goodput.costs | "\(.memory.source) \(.memory_restart.source)"' "$scratch/predicted") == "measured measured" ]]
check "goodput predicts the lost steps, of one interval more where the copy was not complete" $?

# ---- both peers are lost: the disk
run plan "{kind: host_lost, node: a, at_step: 19, back: 100 ms}, {kind: host_lost, node: b, at_step: 13, back: 100 ms}" --memory-every 50 --save-every 5 --save-mode sync && [[ $(restarts) == "10 disk, 15 disk" ]]
check "without a checkpoint in memory the disk's is used" $?
run plan "{kind: kill, device: a.0, at_step: 19}" --memory-every 7 --save-every 8 --save-mode sync && [[ $(restarts) == "16 disk" ]]
check "and where it is newer" $?
same undisturbed-plan && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts)"

# ---- another plan, without the lost device
run plan "{kind: kill, device: b.0, at_step: 19}" --memory-every 4 --elastic && [[ $(restarts) =~ ^1[26]\ memory$ && $(value '.restarts[0].without') == b.0 ]]
check "another plan resumes from memory" $?
same undisturbed-plan && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts)"

# ---- refused
says "without restarts" 2 "--memory-every needs --max-restarts" "$MUSHER" run "$scratch/plan.yaml" --data "$text" --memory-every 4
# ---- more devices than at the start: they have memory too, and standard input is left alone
plan "  - {microbatches: 3, stages: [{layers: [0, 7], device: a.0}]}
  - {microbatches: 3, stages: [{layers: [0, 7], device: a.1}]}" | sed 's/count: 1/count: 2/' >"$scratch/pair.yaml"
echo kept >"$scratch/input"
run pair "{kind: kill, device: a.1, at_step: 9}, {kind: kill, device: a.0, at_step: 24}" --memory-every 3 --elastic <>"$scratch/input"
[[ $(value '[.restarts[] | .from] | join(" ")') == "memory memory" && $(value '[.restarts[].devices] | join(" ")') == "3 "* && $(cat "$scratch/input") == kept ]]
check "a plan of more devices than the first one" $?
same undisturbed-plan && ok "with the bits of an undisturbed run" || not_ok "with the bits of an undisturbed run" "$(restarts)"

# ---- the end: a newer checkpoint in memory is written, and the same command goes on from it
continues() { # PLAN: the newest generation on disk is of step 16 or 18; then --continue
    [[ $(ls -d "$scratch"/saved/step-* | tail -n 1) == */step-0000001[68] ]] || return 1
    "$MUSHER" run "$scratch/$1.yaml" --data "$text" --steps $steps --save "$scratch/saved" --continue >"$scratch/out" 2>"$scratch/err" && same "undisturbed-$1"
}
for p in plan zero; do
    run $p "{kind: kill, device: a.1, at_step: 19}" --memory-every 2 --elastic --min-devices 3 --save-every 5 --save-mode sync
    code=$?
    [[ $code == 75 && $(value .error.message) == *"the newest checkpoint, of step 1"[68]", is in $scratch/saved: start again with --continue" ]]
    check "$p: a run that gives up writes its checkpoint in memory" $?
    continues $p
    check "$p: and goes on from it with the bits of an undisturbed run" $?
done
run plan "{kind: kill, device: a.1, at_step: 8}, {kind: kill, device: a.0, at_step: 19}" --memory-every 2 --max-restarts 1
code=$?
[[ $code == 7 ]] && grep -q "the checkpoint in memory, of step 1[68], is in $scratch/saved now: start again with --continue" "$scratch/err"
check "a run without restarts left does so too" $?
continues plan
check "and goes on from it" $?
"$MUSHER" run "$scratch/plan.yaml" --data "$text" --steps 3 --save "$scratch/x" --max-restarts 1 --elastic --db "$scratch/none.db" >"$scratch/out" 2>"$scratch/err"
[[ $? == 3 && $(cat "$scratch/err") == *"no profile database"* && ! -e $scratch/x ]]
check "a profile database is looked for at the start" $?
exit $bad

#!/bin/bash
# tests/gates/r02_power_loss.sh - gate R2: after a power loss at any moment, a checkpoint and a profile database are the old or the new ones, and
# what the program has reported is there. The model of a disk, and what is tried: tests/programs/power_loss.c.
set -u
. tests/gates/common.inc
unless_sanitized R2 "power loss"
text=$scratch/text data=$(realpath tests/data/nccl_tests)
seq 1 4000 >"$text"
operations=0 states=0 lost=0

# record COMMAND...: copies the folder files to before, runs the command in files, and logs its changes of them
record() {
    shims disk
    rm -rf "$scratch/before" "$scratch/log"
    cp -a "$scratch/files" "$scratch/before"
    (cd "$scratch/files" && DISK_NAME=$scratch/files DISK_LOG=$scratch/log "${shims[@]}" "$@") >"$scratch/out" 2>"$scratch/err" ||
        not_ok "recorded: $*" "exit code $?: $(tail -n 3 "$scratch/err")"
}
# replay KIND NAME DRAWS [data|folders]: sets found to "operations states lost"
replay() {
    found=$("$programs/power_loss" "$1" "$scratch/log" "$scratch/files" "$scratch/before" "$2" "$scratch/work" 1 "$3" ${4:+"$4"} 2>"$scratch/replay")
    local code=$?
    ((code == 0 || code == 1)) || not_ok "replay of $2" "exit code $code: $(head -c 300 "$scratch/replay")"
    found=$(tr -dc '0-9 ' <<<"$found")
}
# survives TITLE KIND NAME COMMAND...: no state of the recorded command is lost; without syncs of data, or of folders, some are
survives() {
    local title=$1 o s l without
    record "${@:4}"
    replay "$2" "$3" $((long ? 8 : 1))
    read -r o s l <<<"$found"
    ((operations += o, states += s, lost += l))
    ((l == 0)) || not_ok "$title" "$l lost: $(head -n 3 "$scratch/replay")"
    ((long)) || return
    for without in data folders; do
        replay "$2" "$3" 0 $without
        read -r o s l <<<"$found"
        ((l > 0)) || not_ok "$title" "without syncs of $without nothing would be lost: the gate does not see them"
    done
}
mkdir "$scratch/files"
two_stages >"$scratch/two.yaml"
sed 's/n_embd: 32/n_embd: 8/; s/vocab_size: 256/vocab_size: 256, tie_word_embeddings: true/' "$scratch/two.yaml" >"$scratch/files/two.yaml"
# the same model in two replicas, whose optimizer state is divided
sed 's/{microbatches: 2, stages: .*/{microbatches: 1, stages: [{layers: [0, 7], device: n.0, zero: 1}]}\n  - {microbatches: 1, stages: [{layers: [0, 7], device: n.1, zero: 1}]}/' "$scratch/files/two.yaml" >"$scratch/files/zero.yaml"
train=("$MUSHER" run --data "$text" --save ck --save-every 1 -v)
survives "three checkpoints, asynchronous" checkpoints ck "${train[@]}" two.yaml --steps 3
if ((long)); then
    survives "three more, behind a resumption" checkpoints ck "${train[@]}" two.yaml --steps 3 --resume ck
    survives "three more, synchronous" checkpoints ck "${train[@]}" two.yaml --steps 3 --resume ck --save-mode sync
    survives "three more, of divided optimizer state" checkpoints ck "${train[@]}" zero.yaml --steps 3 --resume ck
    # The newest generation is damaged: the run goes on from the one before and writes it again, in exchange.
    newest=$(ls -d "$scratch"/files/ck/step-* | tail -n 1)
    printf 'X' | dd of="$newest/model.safetensors" bs=1 seek=$(($(stat -c %s "$newest/model.safetensors") - 100)) conv=notrunc 2>"$scratch/err"
    survives "three more, one in the place of a damaged one" checkpoints ck "${train[@]}" two.yaml --steps 3 --resume ck
fi
checkpoints="$(thousands $operations) operations, $(thousands $states) states, $lost lost"
operations=0 states=0 lost=0
rm -rf "$scratch/files/"* && cat >"$scratch/files/pair.yaml" <<'END'
version: 1
name: pair
device_types: [{name: a100, device: A100-SXM4-80}]
nodes: [{name: a, host: sled1, devices: [{type: a100, count: 4}]}]
links: [{name: nva, between: [a], bandwidth: 240 GB/s, latency: 5 us}]
END
import=("$MUSHER" import nccl-tests "$data/now.json" --cluster pair.yaml --db p.db)
survives "the first profile" profiles p.db "${import[@]}"
survives "the second profile" profiles p.db "${import[@]}"
figure R2 "power loss" "checkpoints: $checkpoints; profile database: $(thousands $operations) operations, $(thousands $states) states, $lost lost"
exit $bad

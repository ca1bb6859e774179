#!/bin/bash
# tests/cli/peers.sh - runs whose ranks have GPUs (the stand-in's): under MPI, a rank that dies or stops ends the run with its name,
# in every state of the others; several ranks share one GPU; a link's settings reach NCCL; links and collectives are profiled.
set -u
. tests/cli/common.inc
export MUSHER_CUDA_PLUGIN=$(realpath "$BUILD")/libmusher_cuda_standin.so MUSHER_NCCL=$(realpath "$BUILD")/standin/libnccl.so.2
export STANDIN_DEVICES=4 STANDIN_NAME="NVIDIA H100" STANDIN_MEMORY=40000000000

# plan NAME INDEX LINK REPLICAS: of two GPUs n.0 and m.INDEX, joined by a link with the further keys LINK
plan() {
    {
        printf 'version: 1\nname: %s\nmicrobatch: 1\nsteps: 1\nreplicas:\n%s\njob:\n' "$1" "$4"
        printf '  version: 1\n  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 2, n_positions: 32, vocab_size: 256}\n'
        printf '  sequence_length: 16\n  global_batch: 4\n'
        printf 'cluster:\n  version: 1\n  name: two\n  device_types: [{name: h, device: H100-SXM5, memory: 30 GiB}]\n'
        printf '  nodes:\n    - {name: n, host: localhost, devices: [{type: h}]}\n    - {name: m, host: localhost, devices: [{type: h, index: %s}]}\n' "$2"
        printf '  links: [{name: nv, between: [n, m], bandwidth: 10 GB/s, latency: 5 us%s}]\n' "$3"
    } > "$scratch/$1.yaml"
}
row='  - {microbatches: 4, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: m.1}]}'
pair='  - {microbatches: 3, stages: [{layers: [0, 7], device: n.0}]}
  - {microbatches: 1, stages: [{layers: [0, 7], device: m.1}]}'
plan row 1 "" "$row"
plan pair 1 "" "$pair"
# A microbatch of many operators: two of them, the number of input buffers, exceed the stream queue below.
plan deep 1 "" "$row"
sed -i -e 's/n_layer: 2/n_layer: 12/' -e 's/layers: .0, 3./layers: [0, 13]/; s/layers: .4, 7./layers: [14, 27]/' "$scratch/deep.yaml"
plan shared 0 ", maxCTAs: 4, netName: Socket" "${row//m.1/m.0}"

# ---- several ranks on one GPU, each a host of its own to NCCL, sockets on the loopback
left() { grep -lsz "^$scratch/.*[.]yaml" /proc/[0-9]*/cmdline | grep -c .; }
export STANDIN_NCCL_TELL=$scratch/told
STANDIN_DEVICES=1 says "two ranks train on one GPU" 0 '"losses"' "$MUSHER" run "$scratch/shared.yaml" --data LICENSE --steps 2 --json
[[ $(grep -c "of 2: maxCTAs 4, netName Socket" "$scratch/told") -ge 4 && $(grep -vc "maxCTAs 4, netName Socket" "$scratch/told") == 0 ]] &&
    ok "NCCL settings of the link reach each communicator" || not_ok "NCCL settings of the link reach each communicator" "$(cat "$scratch/told")"
rm "$scratch/told"
says "a link without NCCL settings keeps NCCL's defaults" 0 "" "$MUSHER" run "$scratch/pair.yaml" --data LICENSE --steps 2
grep -q "maxCTAs 0, netName -" "$scratch/told" && ok "by its own choice" || not_ok "by its own choice" "$(cat "$scratch/told")"
unset STANDIN_NCCL_TELL
STANDIN_DEVICES=1 MUSHER_NCCL=/nowhere/libnccl.so.2 says "without NCCL messages use host memory, with a warning" 0 "messages between GPUs go through the host" \
    "$MUSHER" run "$scratch/shared.yaml" --data LICENSE --steps 2
plan nonsense 1 ", netName: Telegraph" "$row"
says "a network unknown to NCCL ends all ranks" 6 "invalid usage" "$MUSHER" run "$scratch/nonsense.yaml" --data LICENSE --steps 2
plan wrong 1 ", maxCTAs: 65" "$row"
says "an impossible number of blocks is refused with its line" 3 "wrong.yaml:19:83: cluster.links[0].maxCTAs" "$MUSHER" run "$scratch/wrong.yaml" --data LICENSE --steps 2

# ---- fp16 with sharded gradients, first loss scale overflows: the same steps are skipped over NCCL and over the host, and losses agree
sed 's/^  sequence_length: 16/&\n  precision: fp16\n  loss_scale: {initial: 16777216}/; s/microbatches: [13]/microbatches: 2/; s/\(device: [nm]\..\)}/\1, zero: 2}/' "$scratch/pair.yaml" > "$scratch/half.yaml"
for by in devices host; do
    MUSHER_TRANSPORT=$by "$MUSHER" run "$scratch/half.yaml" --data LICENSE --steps 8 --json --verbose > "$scratch/$by.json" 2> "$scratch/$by.err"
    grep -o '"skipped": .*' "$scratch/$by.json" > "$scratch/$by.skipped"
    sed -n 's/.*"losses": *\[\(.*\)\].*/\1/p' "$scratch/$by.json" | tr ',' '\n' | tr -d ' ' > "$scratch/$by.losses"
done
grep -q "collectives: 0, 0, [1-9]" "$scratch/devices.err" && grep -q "collectives: 0, [1-9][0-9]*, 0" "$scratch/host.err" && ok "sums go by GPUs or by the host" ||
    not_ok "sums go by GPUs or by the host" "$(grep -h collectives: "$scratch/devices.err" "$scratch/host.err")"
[[ $(cat "$scratch/devices.skipped") == '"skipped": ['[0-9]* ]] && cmp -s "$scratch/devices.skipped" "$scratch/host.skipped" && ok "the same steps overflow" ||
    not_ok "the same steps overflow" "$(cat "$scratch/devices.skipped" "$scratch/host.skipped" "$scratch/devices.err")"
[[ $(wc -l < "$scratch/devices.losses") == 8 ]] && within "$(distance "$scratch/devices.losses" "$scratch/host.losses")" 1e-3 && ok "losses are alike" ||
    not_ok "losses are alike" "$(paste "$scratch/devices.losses" "$scratch/host.losses")"

# ---- delayed sums of two islands, over NCCL and over the host; resumed while one is in flight
sed 's/^replicas:/local_sgd: {every: 4, outer: nesterov, fragments: 3, delay: 2}\n&/' "$scratch/pair.yaml" > "$scratch/streaming.yaml"
losses() { "$MUSHER" run -q "$scratch/streaming.yaml" --data LICENSE --json "$@" 2> "$scratch/err" | sed -n 's/.*"losses": *\[\(.*\)\].*/\1/p' | tr ',' '\n' | tr -d ' '; }
for by in devices host; do MUSHER_TRANSPORT=$by losses --steps 7 > "$scratch/$by.losses"; done
[[ $(wc -l < "$scratch/devices.losses") == 7 ]] && within "$(distance "$scratch/devices.losses" "$scratch/host.losses")" 1e-4 && ok "streaming exchanges by GPUs and by the host" ||
    not_ok "streaming exchanges by GPUs and by the host" "$(paste "$scratch/devices.losses" "$scratch/host.losses") $(cat "$scratch/err")"
{ losses --steps 7 --save "$scratch/flight" --save-every 5 | head -5; losses --steps 2 --resume "$scratch"/flight/step-*5; } > "$scratch/parts"
grep -q '#sum"' "$scratch"/flight/step-*5/manifest.json && cmp -s "$scratch/devices.losses" "$scratch/parts" && ok "and resumed while a sum is in flight: the same bits" ||
    not_ok "and resumed while a sum is in flight: the same bits" "$(paste "$scratch/devices.losses" "$scratch/parts")"

# ---- islands of two GPUs that divide their state, the second of which updates in every second step; over NCCL and over the host, and resumed between two
# of its updates (zero 1: on host devices in saves.sh)
for zero in 3 ${MUSHER_LONG:+1}; do
    sed "s/index: 1}/count: 2, index: 2}/; s/devices: \[{type: h}\]/devices: [{type: h, count: 2}]/; s/^  links: .*/  links:\n    - {name: in-n, between: [n], bandwidth: 10 GB\/s, latency: 5 us}\n    - {name: in-m, between: [m], bandwidth: 10 GB\/s, latency: 5 us}\n    - {name: nv, between: [n, m], bandwidth: 10 GB\/s, latency: 5 us}/" "$scratch/pair.yaml" |
        awk -v zero=$zero '/^replicas:/ { print "local_sgd: {every: [4, 2], islands: [[0, 1], [2, 3]], outer: nesterov}"; print; for (i = 0; i < 4; i++) printf "  - {microbatches: 1, stages: [{layers: [0, 7], device: %s, zero: %d}]}\n", (i < 2 ? "n." : "m.") i, zero; next } !/^  - .microbatches/' >"$scratch/streaming.yaml"
    for by in devices host; do MUSHER_TRANSPORT=$by losses --steps 7 > "$scratch/$by.losses"; done
    [[ $(wc -l < "$scratch/devices.losses") == 7 ]] && within "$(distance "$scratch/devices.losses" "$scratch/host.losses")" 1e-4 && ok "islands with zero $zero by GPUs and by the host" ||
        not_ok "islands with zero $zero by GPUs and by the host" "$(paste "$scratch/devices.losses" "$scratch/host.losses") $(cat "$scratch/err")"
    rm -rf "$scratch/flight"
    { losses --steps 7 --save "$scratch/flight" --save-every 5 | head -5; losses --steps 2 --resume "$scratch"/flight/step-*5; } > "$scratch/parts"
    grep -q '"gradients#x' "$scratch"/flight/step-*5/manifest.json && cmp -s "$scratch/devices.losses" "$scratch/parts" && ok "and resumed between two updates: the same bits" ||
        not_ok "and resumed between two updates: the same bits" "$(paste "$scratch/devices.losses" "$scratch/parts")"
done

# ---- a tied embedding, replicated for one use and sharded for the other: partial gradients are half precision, their sum fp32
split='  - {microbatches: 4, stages: [{layers: [0, 7], devices: [n.0, m.1], sharding: {ratios: [[3, 1]], operators: [{match: lm_head, shard: vocabulary}, {match: "*", shard: positions}]}}]}'
plan whole 1 "" "${pair%%$'\n'*}"
plan parts 1 "" "$split"
for name in whole parts; do
    sed -i 's/^  sequence_length: 16/&\n  precision: bf16/; s/microbatches: 3/microbatches: 4/' "$scratch/$name.yaml"
    "$MUSHER" run "$scratch/$name.yaml" --data LICENSE --steps 4 --json > "$scratch/$name.json" 2> "$scratch/$name.err"
    sed -n 's/.*"losses": *\[\(.*\)\].*/\1/p' "$scratch/$name.json" | tr ',' '\n' | tr -d ' ' > "$scratch/$name.losses"
done
[[ $(wc -l < "$scratch/parts.losses") == 4 ]] && within "$(distance "$scratch/whole.losses" "$scratch/parts.losses")" 1e-3 && ok "a sharded tied embedding in bf16" ||
    not_ok "a sharded tied embedding in bf16" "$(paste "$scratch/whole.losses" "$scratch/parts.losses"; cat "$scratch/parts.err")"

# ---- sums by codes: over NCCL and over the host the same losses, near those of whole gradients
plan whole 1 "" "$pair"
"$MUSHER" run "$scratch/whole.yaml" --data LICENSE --steps 3 --json 2> "$scratch/err" | sed -n 's/.*"losses": *\[\(.*\)\].*/\1/p' | tr ',' '\n' | tr -d ' ' > "$scratch/whole.losses"
for kind in 'int8, feedback: ef' 'sign' 'top-k, fraction: 0.2, feedback: ef21, block: 500' 'random-k, fraction: 0.5' 'power-sgd, rank: 8'; do
    plan code 1 "" "$pair"
    sed -i "s/^steps: 1/&\ncompression: {gradients: {kind: $kind}}/" "$scratch/code.yaml"
    for by in devices host; do
        MUSHER_TRANSPORT=$by "$MUSHER" run "$scratch/code.yaml" --data LICENSE --steps 3 --json 2> "$scratch/err" |
            sed -n 's/.*"losses": *\[\(.*\)\].*/\1/p' | tr ',' '\n' | tr -d ' ' > "$scratch/$by.losses"
    done
    [[ $(wc -l < "$scratch/devices.losses") == 3 ]] && within "$(distance "$scratch/devices.losses" "$scratch/host.losses")" 1e-6 && ! cmp -s "$scratch/whole.losses" "$scratch/host.losses" &&
        within "$(distance "$scratch/whole.losses" "$scratch/host.losses")" 0.03 && ok "codes between GPUs: $kind" ||
        not_ok "codes between GPUs: $kind" "$(paste "$scratch/whole.losses" "$scratch/devices.losses" "$scratch/host.losses"; cat "$scratch/err")"
done

# ---- a peer that dies or stops
export MUSHER_TIMEOUT=$((12 * ${SLOWDOWN:-1}))
"$MUSHER" run "$scratch/row.yaml" --data LICENSE --steps 3 --save "$scratch/all" --save-every 1 > /dev/null 2> "$scratch/err" &&
    ok "within the timeout no rank is lost" || not_ok "within the timeout no rank is lost" "$(head -c 300 "$scratch/err")"
# strike NAME PLAN RANK CALL SIGNAL TEXT
strike() {
    export STANDIN_SIGNAL_AT=$4:$5:$3
    says "$1" 7 "$6" "$MUSHER" run "$scratch/$2.yaml" --launcher mpirun --data LICENSE --steps 100 --save "$scratch/save" --save-every 2 --trace "$scratch/trace"
    unset STANDIN_SIGNAL_AT
    for _ in $(seq 600); do
        [[ $(left) == 0 ]] && break
        sleep 0.1
    done
    [[ $(left) == 0 ]] && ok "$1: no process is left behind" || not_ok "$1: no process is left behind" "$(left)"
    [[ ! -e $scratch/trace ]] && ok "$1: no trace is half written" || not_ok "$1: no trace is half written" "$(ls -l "$scratch/trace")"
    if compgen -G "$scratch/save/step-*" > /dev/null; then
        says "$1: the checkpoint is complete" 0 "" "$MUSHER" run "$scratch/$2.yaml" --data LICENSE --steps 1 --resume "$scratch/save"
    fi
    rm -rf "$scratch/save"
}
strike "stopped before it has a device" row 1 2 19 "m.1"
strike "stopped while communicators are made" row 1 150 19 "m.1"
strike "killed while communicators are made" pair 0 150 9 "rank 0"
strike "stopped in a step" row 0 1500 19 "n.0"
strike "stopped in a later one" pair 1 2500 19 "m.1"
strike "killed in a step" pair 1 2000 9 "rank 1"
# A rank that fills its GPU's stream queue blocks in a launch, for ever if the queue waits for the peer.
STANDIN_QUEUE=512 strike "stopped while the peer has issued many calls" deep 1 6000 19 "m.1"
# Also a gradient sum by microbatches that depends on the peer's messages; compute does not wait for it.
sed -e 's/n_layer: 2/n_layer: 12/' -e 's/layers: .0, 7./layers: [0, 27]/; s/^steps: 1/&\ndeterministic: true/; s/microbatches: 1/microbatches: 3/; s/global_batch: 4/global_batch: 6/' "$scratch/pair.yaml" > "$scratch/chain.yaml"
STANDIN_QUEUE=256 strike "stopped while sums are more than a stream takes" chain 0 11500 19 "a member is gone; rank 0 (n.0)"
# Several host names of this machine: a dead rank is reported with its host, over every transport.
sed "s/name: m, host: localhost/name: m, host: $HOSTNAME/" "$scratch/row.yaml" > "$scratch/hosts.yaml"
for by in devices host; do
    [[ $HOSTNAME == localhost ]] || MUSHER_TRANSPORT=$by strike "stopped on another host, by $by" hosts 1 2500 19 "m.1 on $HOSTNAME"
done
unset MUSHER_TIMEOUT

# ---- NCCL aborts that never return: no rank waits for them, nor does the exit of a process, as a GPU's driver would
export STANDIN_NCCL_STUCK=always STANDIN_NCCL_LINGER=1
STANDIN_NCCL_FAIL_AT=4 says "ranks end if their first message fails and the library hangs" 7 "ncclAllReduce failed: unhandled system error" \
    "$MUSHER" run "$scratch/pair.yaml" --data LICENSE --steps 2
STANDIN_NCCL_FAIL_AT=5 says "and if a single rank fails" 7 "ncclAllReduce failed: unhandled system error" \
    "$MUSHER" run "$scratch/pair.yaml" --data LICENSE --steps 2
unset STANDIN_NCCL_STUCK STANDIN_NCCL_LINGER

# ---- links and collectives between this machine's GPUs; only their presence is checked, not their times
small_job > "$scratch/job.yaml"
cat > "$scratch/gpus.yaml" <<'END'
version: 1
name: gpus
device_types: [{name: h, device: H100-SXM5, memory: 30 GiB}]
nodes: [{name: a, host: localhost, devices: {type: h, count: 2}}, {name: b, host: localhost, devices: [{type: h, index: 2}, {type: h, index: 3}]}]
links: [{name: in, between: [a]}, {name: out, between: [b]}, {name: net, between: [a, b]}]
END
profile() { "$MUSHER" profile "$scratch/$1.yaml" "$scratch/gpus.yaml" --db "$scratch/p.db" --repeats 3 --warm 0 --largest 4096 "${@:2}"; }
profile job --json > "$scratch/p.json" 2> "$scratch/err" && ok "four GPUs are profiled" || not_ok "four GPUs are profiled" "$(head -c 300 "$scratch/err")"
jq -e '.collectives as $rows | .messages as $sizes
    | ($rows | length) == 7 * 9 * 3 and ($rows | unique_by(.kind, .ranks, .nodes, .algorithm, .protocol, .bytes) | length) == ($rows | length)
    and all($rows[]; .samples == 3 and .seconds > 0)
    and ([$rows[] | [.ranks, .nodes]] | unique) == [[2, 1], [2, 2], [4, 2]]
    and ([$rows[] | select(.kind == "all-gather").algorithm] | unique) == ["", "grouped", "padded", "pairwise"]
    and ([$rows[] | select(.kind == "all-reduce").algorithm] | unique) == [""]
    and ([$rows[].provenance] | unique) ==
        ["profile, a.0 a.1 b.2 b.3, nccl 2.28.9", "profile, a.0 a.1, nccl 2.28.9", "profile, a.0 b.2, nccl 2.28.9"]
    and ([$rows[] | select(.ranks == 4 and .kind == "all-reduce").bytes] | sort) == [range(7) | 1024 * pow(4; .)]
    and ([$sizes[].link] | unique) == ["in", "net", "out"] and ($sizes | length) == 21
    and all($sizes[]; .samples == 6 and .seconds > 0)
    and ([.links[].source] | unique) == ["fitted"]' "$scratch/p.json" > "$scratch/out" 2>&1 && ok "each link and each collective, once" ||
    not_ok "each link and each collective, once" "$(tail -n 2 "$scratch/out")"
says "a plan for them" 0 "" "$MUSHER" plan "$scratch/job.yaml" "$scratch/gpus.yaml" --db "$scratch/p.db" -o "$scratch/found.yaml"
profile job "$scratch/found.yaml" > "$scratch/out" 2> "$scratch/err"
grep -q "measuring [0-9]* collectives" "$scratch/err" && not_ok "known operators are not measured again" "$(cat "$scratch/err")" ||
    ok "known operators are not measured again"
STANDIN_DEVICES=3 profile job > "$scratch/out" 2> "$scratch/err"
has "a link without both GPUs here is reported" err "link out: not both ends are on this machine"
has "collectives are measured between the GPUs here" err "measuring 63 collectives of a.0 b.2"
grep -q "collectives of .*b.3" "$scratch/err" && not_ok "of no others" "$(cat "$scratch/err")" || ok "of no others"
STANDIN_DEVICES=1 profile job > "$scratch/out" 2> "$scratch/err"
has "a single GPU has no collectives" err "this machine has 1 of the cluster's GPUs, and 2 are needed"
sed -i 's/index: 2/index: 0/; s/index: 3/index: 1/' "$scratch/gpus.yaml"
profile job > "$scratch/out" 2> "$scratch/err"
has "a GPU listed twice is one member" err "measuring 63 collectives of a.0 a.1"
grep -q "collectives of a.0 a.1 b" "$scratch/err" && not_ok "and no more" "$(cat "$scratch/err")" || ok "and no more"
exit $bad

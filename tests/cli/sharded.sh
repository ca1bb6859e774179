#!/bin/bash
# tests/cli/sharded.sh - random plans whose devices share operators train like one device; checkpoints know no placement.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks="$BUILD/tests/programs/shard_ranks"
# all NAME FIRST COUNT RANKS: at least two in three plans of these seeds are run, all of them well.
all() {
    "$ranks" alone $2 $3 > "$scratch/alone" 2> "$scratch/err" &&
        mpirun --oversubscribe --bind-to none -n $4 "$ranks" $2 $3 "$scratch/alone" > "$scratch/out" 2> "$scratch/err"
    local n
    n=$(sed -n 's/^ok \([0-9]*\) plans$/\1/p' "$scratch/out")
    ((3 * ${n:-0} >= 2 * $3)) && ok "$1" || not_ok "$1" "${n:-no} plans: $(head -c 300 "$scratch/err")"
}
each=3
[[ ${MUSHER_LONG:-} ]] && each=60
for n in 2 3 4 5 6; do all "$each plans that share operators on $n ranks" $((100 * n)) $each $n; done

job() {
    cat <<'END'
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 8
  precision: fp64
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB, slowdown: 2}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n], bandwidth: 200 MB/s, latency: 50 us}]
END
}
begin() { printf 'version: 1\nname: %s\nmicrobatch: 4\nreplicas:\n  - microbatches: 2\n    stages:\n' "$1"; }
{
    begin alone
    echo "      - {layers: [0, 7], device: n.0}"
    job
} > "$scratch/alone.yaml"
{
    begin shared
    cat <<'END'
      - layers: [0, 7]
        devices: [n.0, n.1]
        sharding:
          ratios: [[3, 1], [1, 1]]
          operators:
            - {match: "h.*.attn.*", split: heads}
            - {match: "h.*.mlp.c_fc*", split: features, ratio: 1}
            - {match: "h.*.mlp.gelu*", split: features, ratio: 1}
            - {match: "h.*.mlp.c_proj", split: inputs, ratio: 1}
            - {match: "lm_head", split: vocabulary}
            - {match: "*", split: batch}
END
    job
} > "$scratch/shared.yaml"
# The loss that a run ends with, to nine digits.
last() { "$MUSHER" run "$scratch/$1.yaml" --data LICENSE --json "${@:2}" 2> "$scratch/err" | grep '"losses"' | grep -o '[0-9.]*]' | cut -c1-10; }
wanted=$(last alone --steps 6)
last alone --steps 3 --save "$scratch/a" > /dev/null
last shared --steps 3 --save "$scratch/s" > /dev/null
for from in a s; do
    for to in alone shared; do
        got=$(last $to --steps 3 --resume "$scratch/$from")
        [[ $got && $got == "$wanted" ]] && ok "a checkpoint ($from) goes on $to" || not_ok "a checkpoint ($from) goes on $to" "$got, not $wanted: $(cat "$scratch/err")"
    done
done
says "a plan that shares operators is lowered" 0 "" "$MUSHER" lower "$scratch/shared.yaml" -o "$scratch/shared.program"
says "a program file with meetings runs" 0 '"losses"' "$MUSHER" run "$scratch/shared.program" --steps 2 --data LICENSE --json
says "meetings are simulated" 0 "peak memory" "$MUSHER" simulate "$scratch/shared.yaml" --trace "$scratch/sim.trace"
says "meetings are explained" 0 "collective" "$MUSHER" simulate "$scratch/shared.yaml" --explain
says "what a device holds is told" 0 "collective buffers" "$MUSHER" memory "$scratch/shared.yaml"
says "show tells who shares" 0 "sharing operators" "$MUSHER" show "$scratch/shared.yaml"
says "runs leave traces of meetings" 0 "measured" "$MUSHER" run "$scratch/shared.yaml" --steps 4 --data LICENSE --trace "$scratch/run.trace"
says "predicted and measured meetings are compared" 0 "reduce" "$MUSHER" compare "$scratch/sim.trace" "$scratch/run.trace"
sed 's/split: heads/split: experts/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "an index that is none is refused with its place" 3 "bad.yaml:" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
sed 's/^microbatch: 4/microbatch: 4\ndeterministic: true/' "$scratch/shared.yaml" > "$scratch/bad.yaml"
says "what is shared cannot be deterministic" 3 "cannot be deterministic" "$MUSHER" lower "$scratch/bad.yaml" -o "$scratch/x"
says "no search goes on from what is shared" 3 "share operators" "$MUSHER" plan --from "$scratch/shared.yaml" -o "$scratch/x"
exit $bad

#!/bin/bash
# tests/cli/ranks.sh - messages and sums between real processes; what a run prints reaches its reader or is an error.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for what in collectives wires; do
    mpirun --oversubscribe --bind-to none -n 3 "$BUILD/tests/programs/exec_ranks" $what > "$scratch/out" 2> "$scratch/err" &&
        grep -qx ok "$scratch/out" && ok "$what of three ranks" || not_ok "$what of three ranks" "$(head -c 300 "$scratch/err")"
    "$BUILD/tests/programs/exec_ranks" local 3 $what > "$scratch/out" 2> "$scratch/err" &&
        grep -qx ok "$scratch/out" && ok "$what of three forked ranks" || not_ok "$what of three forked ranks" "$(head -c 300 "$scratch/err")"
done

cat > "$scratch/plan.yaml" <<'END'
version: 1
name: two
microbatch: 1
steps: 1
replicas:
  - {microbatches: 2, stages: [{layers: [0, 3], device: n.0}, {layers: [4, 7], device: n.1}]}
job:
  version: 1
  model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 2, n_positions: 32, vocab_size: 256}
  sequence_length: 24
  global_batch: 2
cluster:
  version: 1
  name: here
  device_types: [{name: cpu, device: host, memory: 1 GiB}]
  nodes: [{name: n, host: localhost, devices: [{type: cpu}, {type: cpu}]}]
  links: [{name: bus, between: [n]}]
END
run() { "$MUSHER" run "$scratch/plan.yaml" --steps 2 --data LICENSE "$@"; }
run --json > "$scratch/out" 2> "$scratch/err" && grep -q '"losses"' "$scratch/out" && ok "ranks print through their launcher" ||
    not_ok "ranks print through their launcher" "$(head -c 300 "$scratch/err")"
run > /dev/full 2> "$scratch/err"
code=$?
[[ $code == 6 ]] && grep -q "stdout" "$scratch/err" && ok "a full disk behind stdout is exit code 6" ||
    not_ok "a full disk behind stdout is exit code 6" "$code: $(head -c 300 "$scratch/err")"
run >&- 2> "$scratch/err"
code=$?
[[ $code == 6 ]] && ok "a closed stdout is exit code 6" || not_ok "a closed stdout is exit code 6" "$code: $(head -c 300 "$scratch/err")"
run 2> "$scratch/err" | true
[[ ! -s $scratch/err ]] && ok "a reader that has gone is no news" || not_ok "a reader that has gone is no news" "$(head -c 300 "$scratch/err")"
exit $bad

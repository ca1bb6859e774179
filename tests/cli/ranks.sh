#!/bin/bash
# tests/cli/ranks.sh - messages and gradient all-reduces between real processes; output of a run that cannot be written is an error.
set -u
. tests/cli/common.inc
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for what in collectives wires; do
    mpirun --oversubscribe --bind-to none -n 3 "$BUILD/tests/programs/exec_ranks" $what > "$scratch/out" 2> "$scratch/err" &&
        grep -qx ok "$scratch/out" && ok "$what of three ranks" || not_ok "$what of three ranks" "$(head -c 300 "$scratch/err")"
    "$BUILD/tests/programs/exec_ranks" local 3 $what > "$scratch/out" 2> "$scratch/err" &&
        grep -qx ok "$scratch/out" && ok "$what of three forked ranks" || not_ok "$what of three forked ranks" "$(head -c 300 "$scratch/err")"
done

two_stages > "$scratch/plan.yaml"
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
[[ ! -s $scratch/err ]] && ok "a closed reader gives no message" || not_ok "a closed reader gives no message" "$(head -c 300 "$scratch/err")"

# The PMIx module may be called back until the end of a rank, so ranks must not unload it; the launcher may.
LD_DEBUG=files LD_DEBUG_OUTPUT=$scratch/ld run > /dev/null 2>&1
module='mca_pmix_\(ext3x\|pmix3x\)'
loaded=$(grep -l "$module" "$scratch"/ld.* | wc -l) unloaded=$(grep -l "$module.*destroying" "$scratch"/ld.* | wc -l)
((loaded)) || echo "left out: this MPI has no such module"
((loaded == 0 || loaded - unloaded == 2)) && ok "ranks keep the PMIx module loaded" || not_ok "ranks keep the PMIx module loaded" "$unloaded of $loaded let go"
exit $bad

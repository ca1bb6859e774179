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
for launcher in fork mpirun; do
    run --launcher $launcher --json > "$scratch/$launcher.json" 2> "$scratch/err" && grep -q '"losses"' "$scratch/$launcher.json" && ok "$launcher: ranks print through their launcher" ||
        not_ok "$launcher: ranks print through their launcher" "$(head -c 300 "$scratch/err")"
    run --launcher $launcher > /dev/full 2> "$scratch/err"
    code=$?
    [[ $code == 6 ]] && grep -q "stdout\|standard output" "$scratch/err" && ok "$launcher: a full disk behind stdout is exit code 6" ||
        not_ok "$launcher: a full disk behind stdout is exit code 6" "$code: $(head -c 300 "$scratch/err")"
    run --launcher $launcher >&- 2> "$scratch/err"
    code=$?
    [[ $code == 6 ]] && ok "$launcher: a closed stdout is exit code 6" || not_ok "$launcher: a closed stdout is exit code 6" "$code: $(head -c 300 "$scratch/err")"
    run --launcher $launcher 2> "$scratch/err" | true
    [[ ! -s $scratch/err ]] && ok "$launcher: a closed reader gives no message" || not_ok "$launcher: a closed reader gives no message" "$(head -c 300 "$scratch/err")"
done
losses() { grep '"losses"' "$scratch/$1.json"; }
[[ $(losses fork) == "$(losses mpirun)" ]] && ok "both launchers give the same losses" || not_ok "both launchers give the same losses" "$(losses fork) $(losses mpirun)"
"$MUSHER" run - --steps 2 --data LICENSE --json < "$scratch/plan.yaml" > "$scratch/fork.json" 2> "$scratch/err"
[[ $(losses fork) == "$(losses mpirun)" ]] && ok "forked ranks run a plan from standard input" || not_ok "forked ranks run a plan from standard input" "$(head -c 300 "$scratch/err")"
says "ranks of mpirun cannot" 2 "pass it as a file" "$MUSHER" run - --launcher mpirun --data LICENSE < "$scratch/plan.yaml"

# A step of srun whose MPI does not know the other ranks.
says "ranks of Slurm that MPI does not join" 7 "2 ranks were started, but MPI knows of 1" env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 "$MUSHER" run "$scratch/plan.yaml" --steps 1 --data LICENSE

# The PMIx module may be called back until the end of a rank, so ranks must not unload it; the launcher may.
LD_DEBUG=files LD_DEBUG_OUTPUT=$scratch/ld run --launcher mpirun > /dev/null 2>&1
module='mca_pmix_\(ext3x\|pmix3x\)'
loaded=$(grep -l "$module" "$scratch"/ld.* | wc -l) unloaded=$(grep -l "$module.*destroying" "$scratch"/ld.* | wc -l)
((loaded)) || echo "left out: this MPI has no such module"
((loaded == 0 || loaded - unloaded == 2)) && ok "ranks keep the PMIx module loaded" || not_ok "ranks keep the PMIx module loaded" "$unloaded of $loaded let go"
exit $bad

#!/bin/bash
# tests/cli/slurm.sh - batch scripts of `musher launch slurm` in a Slurm of this machine: four nodes, each a slurmd with a host name of its own.
# A job of equal nodes (srun with PMIx) and a heterogeneous one (mpirun through srun) are stopped by a signal of the batch script, put
# themselves back into the queue, are requeued once more by scontrol, and end with the parameters of an undisturbed run. README's commands.
set -u
. tests/cli/common.inc
left_out() {
    echo "left out: Slurm, because $1"
    exit "$bad"
}
for program in slurmctld slurmd munged sbatch unshare; do command -v $program > /dev/null || left_out "$program is missing"; done
unshare -mu true 2> /dev/null || left_out "this user cannot unshare mounts and host names"

# ---- the cluster ------------------------------------------------------------------------------
slurm=$scratch/slurm
host=$(hostname -s)
port=$((20000 + $$ % 20000)) # others may run this test at the same time
mkdir -p "$slurm"/{state,tmp,n1/tmp,n2/tmp,n3/tmp,n4/tmp}
end_cluster() {
    local f
    SLURM_CONF=$slurm/slurm.conf scancel --quiet --user=root > /dev/null 2>&1
    for f in "$slurm"/*.pid; do kill "$(cat "$f")" 2> /dev/null; done
    sleep 1
    rm -rf "$scratch"
}
trap end_cluster EXIT
(umask 077 && head -c 1024 /dev/urandom > "$slurm/key")
cat > "$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/%n
TmpFS=$slurm/tmp
SlurmctldPidFile=$slurm/controller.pid
SlurmdPidFile=$slurm/%n.pid
SlurmctldLogFile=$slurm/controller.log
SlurmdLogFile=$slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=8 Gres=gpu:fast:2
NodeName=n[3-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 3))-$((port + 4))] CPUs=8 Gres=gpu:slow:2
PartitionName=all Nodes=n[1-4] Default=YES State=UP
END
cat > "$slurm/gres.conf" <<END
NodeName=n[1-2] Name=gpu Type=fast File=/dev/null,/dev/zero
NodeName=n[3-4] Name=gpu Type=slow File=/dev/null,/dev/zero
END
export SLURM_CONF=$slurm/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
munged --force --socket="$slurm/munge.socket" --pid-file="$slurm/munge.pid" --log-file="$slurm/munge.log" --seed-file="$slurm/munge.seed" \
    --key-file="$slurm/key" > "$scratch/out" 2> "$scratch/err" || left_out "munged does not start: $(tail -n 1 "$scratch/err")"
slurmctld -c > "$scratch/out" 2>&1 || left_out "slurmctld does not start: $(tail -n 1 "$scratch/out")"
for node in n1 n2 n3 n4; do # the folder for PMIx's sockets is one of each node
    unshare -mu bash -c "hostname $node && mount --bind $slurm/$node/tmp $slurm/tmp && exec slurmd -N $node" > "$scratch/out" 2>&1 ||
        left_out "slurmd does not start: $(tail -n 1 "$scratch/out")"
done
# until N COMMAND...: waits for the command to succeed, at most N seconds times SLOWDOWN.
until_true() {
    local left=$(($1 * ${SLOWDOWN:-1} * 5))
    shift
    until "$@" > /dev/null 2>&1; do
        ((left-- > 0)) || return 1
        sleep 0.2
    done
}
four_idle() { [[ $(sinfo --noheader --format=%D --states=idle) == 4 ]]; }
until_true 30 four_idle || left_out "its nodes do not come up: $(tail -n 1 "$slurm/controller.log")"
# ---- jobs -------------------------------------------------------------------------------------
steps=700
"$MUSHER" run examples/three-hosts.yaml --any-host --steps $steps --data LICENSE --save "$scratch/whole" > "$scratch/out" 2> "$scratch/err"
check "an undisturbed run" $?

is() { scontrol show job "$1" | grep -q "JobState=$2 "; }
gone() { scontrol show job "$1" | grep -q "Restarts=$2 " && is "$1" PENDING; }
has_checkpoints() { [[ $(compgen -G "$scratch/$1/step-*") && $(compgen -G "$scratch/$1/step-*" | tail -n 1) != "${2:-}" ]]; }
# begun JOB COMMAND...: the command, after the job was told to begin now if it waits, because Slurm lets a requeued job wait for two minutes.
begun() {
    local part
    for part in $(squeue --noheader --states=PENDING --jobs="$1" --format=%i); do scontrol update JobId="$part" StartTime=now; done
    "${@:2}"
}

# disturbed NAME PLAN COMPONENTS SIGNAL: a job that is stopped twice.
disturbed() {
    local name=$1 newest
    "$MUSHER" launch slurm "$2" -o "$scratch/$name.sh" --name "$name" --save "$scratch/$name" --program "$MUSHER" --time 10 \
        --label fast=gpu:fast --label slow=gpu:slow --directive="--output=$scratch/$name.log" -- --steps $steps --data LICENSE --save-every 50 \
        2> "$scratch/err"
    check "$name: a batch script is written" $?
    [[ $(grep -c '^#SBATCH --nodes' "$scratch/$name.sh") == "$3" ]] && ok "$name: of $3 components" || not_ok "$name: of $3 components" "$(cat "$scratch/$name.sh")"
    job=$(sbatch --parsable "$scratch/$name.sh" 2> "$scratch/err")
    check "$name: sbatch takes it" $?
    until_true 240 has_checkpoints "$name" || { not_ok "$name: it trains" "$(tail -n 5 "$scratch/$name.log")"; return; }
    scancel --signal="$4" --batch "$job"
    until_true 240 gone "$job" 1 && ok "$name: it requeues itself" || not_ok "$name: it requeues itself" "$(tail -n 5 "$scratch/$name.log")"
    grep -q "interrupted after step" "$scratch/$name.log" && ok "$name: after a step, with a checkpoint" || not_ok "$name: after a step, with a checkpoint" "$(tail -n 5 "$scratch/$name.log")"
    sleep 2 # a credential of the second in which the job ended is revoked: the next start fails
    newest=$(compgen -G "$scratch/$name/step-*" | tail -n 1)
    until_true 240 begun "$job" has_checkpoints "$name" "$newest" || { not_ok "$name: it goes on" "$(tail -n 5 "$scratch/$name.log")"; return; }
    scontrol requeue "$job"
    until_true 240 gone "$job" 2 && ok "$name: it is requeued" || not_ok "$name: it is requeued" "$(scontrol show job "$job")"
    sleep 2
    until_true 240 begun "$job" is "$job" COMPLETED && ok "$name: it ends" || not_ok "$name: it ends" "$(tail -n 5 "$scratch/$name.log")"
    diff -r "$scratch/whole/step-00000$steps" "$scratch/$name/step-00000$steps" > "$scratch/err"
    check "$name: the parameters of an undisturbed run" $?
}
# Ranks of a node that are not neighbours: p.0, q.0, p.1, r.0.
sed 's/{layers: \[4, 7\], device: p.1}/{layers: [4, 7], device: q.0}/; s/{layers: \[0, 3\], device: q.0}/{layers: [0, 3], device: p.1}/' examples/three-hosts.yaml > "$scratch/unequal.yaml"
disturbed unequal "$scratch/unequal.yaml" 3 USR1
sed -e '/name: r, host/d; s/{name: q, .*/{name: q, host: beta, devices: [{type: fast}, {type: fast}]}/; s/r\.0/q.1/' examples/three-hosts.yaml > "$scratch/equal.yaml"
disturbed equal "$scratch/equal.yaml" 1 TERM

# Where PMIx's folder of the first step is left over on the second node, where srun starts no rank, and where it has no PMIx.
job=$(sbatch --parsable --hold --output="$scratch/left.log" <(sed "s:$scratch/equal :$scratch/left :; s/--steps $steps/--steps 100/" "$scratch/equal.sh"))
mkdir "$slurm/n2/pmix.$job.0"
scontrol release "$job"
until_true 240 is "$job" COMPLETED && grep -q "start again; starts left" "$scratch/left.log" && grep -q "at step 100$" "$scratch/left.log" &&
    ok "ranks that PMIx does not start are started again" || not_ok "ranks that PMIx does not start are started again" "$(tail -n 5 "$scratch/left.log")"
sed 's/ --save [^ ]* --continue//; s/--steps [0-9]*/--steps 20/; s/ --save-every [0-9]*//' "$scratch/equal.sh" > "$scratch/short.sh"
sed 's/srun --mpi=pmix/srun --no-such-option/' "$scratch/short.sh" > "$scratch/refused.sh"
sed 's/srun --mpi=list/echo none/' "$scratch/short.sh" > "$scratch/plain.sh"
for name in refused plain; do
    job=$(sbatch --parsable --output="$scratch/$name.log" "$scratch/$name.sh")
    until_true 240 is "$job" COMPLETED && grep -q "at step 20" "$scratch/$name.log" && ok "equal nodes by mpirun, $name" || not_ok "equal nodes by mpirun, $name" "$(tail -n 5 "$scratch/$name.log")"
done
sed "s/ --steps $steps / --steps 1000000 /; s:$scratch/equal :$scratch/cancelled :" "$scratch/equal.sh" > "$scratch/cancelled.sh"
job=$(sbatch --parsable "$scratch/cancelled.sh")
until_true 240 has_checkpoints cancelled
scancel "$job"
until_true 240 is "$job" CANCELLED && scontrol show job "$job" | grep -q "Restarts=0 " && ok "a job that is cancelled is not requeued" ||
    not_ok "a job that is cancelled is not requeued" "$(scontrol show job "$job")"

# README's commands, with musher in PATH.
mkdir "$scratch/bin" "$scratch/readme"
ln -s "$MUSHER" "$scratch/bin/musher"
cp "$scratch/equal.yaml" "$scratch/readme/plan.yaml"
cp LICENSE "$scratch/readme/text.txt"
sed -n 's/^    \(musher launch slurm .*\|sbatch .*\)/\1/p' README.md > "$scratch/readme/commands"
[[ $(wc -l < "$scratch/readme/commands") == 2 ]] && (cd "$scratch/readme" && PATH=$scratch/bin:$PATH bash -e commands) > "$scratch/out" 2> "$scratch/err"
check "README's commands for Slurm" $?
job=$(sed -n 's/^Submitted batch job //p' "$scratch/out")
until_true 240 is "$job" COMPLETED && [[ -d $scratch/readme/checkpoints/step-00001000 ]] && ok "and they train" || not_ok "and they train" "$(cat "$scratch"/readme/*.log)"

# Forms of a time that launch takes are sbatch's.
for time in 30 30:15 8:00:00 2-12 2-12:30 2-12:30:15; do
    "$MUSHER" launch slurm "$scratch/equal.yaml" -o "$scratch/time.sh" --time $time 2>> "$scratch/err" && sbatch --test-only "$scratch/time.sh" > "$scratch/out" 2>&1
    check "sbatch takes --time $time" $?
done
exit $bad

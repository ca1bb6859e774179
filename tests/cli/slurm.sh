#!/bin/bash
# tests/cli/slurm.sh - batch scripts of `musher launch slurm` in a Slurm of this machine: four nodes, each a slurmd with a host name of its own.
# A job of equal nodes (srun with PMIx) and a heterogeneous one (mpirun through srun) are stopped by SIGTERM of the batch script, put
# themselves back into the queue, are requeued once more by scontrol, and end with the parameters of an undisturbed run.
set -u
. tests/cli/common.inc
left_out() {
    echo "left out: Slurm, because $1"
    exit "$bad"
}
((${MUSHER_LONG:-0})) || left_out "it depends on the timing of Slurm's daemons: MUSHER_LONG=1 runs it"
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
export SLURM_CONF=$slurm/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
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
steps=1500
"$MUSHER" run examples/three-hosts.yaml --any-host --steps $steps --data LICENSE --save "$scratch/whole" > "$scratch/out" 2> "$scratch/err"
check "an undisturbed run" $?

is() { scontrol show job "$1" | grep -q "JobState=$2 "; }
gone() { scontrol show job "$1" | grep -q "Restarts=$2 " && is "$1" PENDING; }
has_checkpoints() { [[ $(compgen -G "$scratch/$1/step-*") && $(compgen -G "$scratch/$1/step-*" | tail -n 1) != "${2:-}" ]]; }
# begun JOB COMMAND...: the command, after the job was told to begin now if it waits, because Slurm lets a requeued job wait for two minutes.
begun() {
    local part
    # What a killed step leaves behind (Slurm 22.05's PMIx plugin) would refuse the next step of the same number.
    [[ $(squeue --noheader --states=RUNNING,COMPLETING --jobs="$1") ]] || rm -rf "$slurm"/n?/tmp/spmix_appdir_* "$slurm"/n?/stepd.slurm.pmix.*
    for part in $(squeue --noheader --states=PENDING --jobs="$1" --format=%i); do scontrol update JobId="$part" StartTime=now; done
    "${@:2}"
}

# disturbed NAME PLAN COMPONENTS: a job that is stopped twice.
disturbed() {
    local name=$1 job newest
    "$MUSHER" launch slurm "$2" -o "$scratch/$name.sh" --name "$name" --save "$scratch/$name" --program "$MUSHER" --time 10 \
        --label fast=gpu:fast --label slow=gpu:slow --directive="--output=$scratch/$name.log" -- --steps $steps --data LICENSE --save-every 100 \
        2> "$scratch/err"
    check "$name: a batch script is written" $?
    [[ $(grep -c '^#SBATCH --nodes' "$scratch/$name.sh") == "$3" ]] && ok "$name: of $3 components" || not_ok "$name: of $3 components" "$(cat "$scratch/$name.sh")"
    job=$(sbatch --parsable "$scratch/$name.sh" 2> "$scratch/err")
    check "$name: sbatch takes it" $?
    until_true 60 has_checkpoints "$name" || { not_ok "$name: it trains" "$(tail -n 5 "$scratch/$name.log")"; return; }
    scancel --signal=TERM --batch "$job"
    until_true 60 gone "$job" 1 && ok "$name: it requeues itself" || not_ok "$name: it requeues itself" "$(tail -n 5 "$scratch/$name.log")"
    grep -q "interrupted after step" "$scratch/$name.log" && ok "$name: after a step, with a checkpoint" || not_ok "$name: after a step, with a checkpoint" "$(tail -n 5 "$scratch/$name.log")"
    newest=$(compgen -G "$scratch/$name/step-*" | tail -n 1)
    until_true 60 begun "$job" has_checkpoints "$name" "$newest" || { not_ok "$name: it goes on" "$(tail -n 5 "$scratch/$name.log")"; return; }
    scontrol requeue "$job"
    until_true 60 gone "$job" 2 && ok "$name: it is requeued" || not_ok "$name: it is requeued" "$(scontrol show job "$job")"
    until_true 120 begun "$job" is "$job" COMPLETED && ok "$name: it ends" || not_ok "$name: it ends" "$(tail -n 5 "$scratch/$name.log")"
    diff -r "$scratch/whole/step-0000$steps" "$scratch/$name/step-0000$steps" > "$scratch/err"
    check "$name: the parameters of an undisturbed run" $?
}
disturbed unequal examples/three-hosts.yaml 3
sed -e '/name: r, host/d; s/{name: q, .*/{name: q, host: beta, devices: [{type: fast}, {type: fast}]}/; s/r\.0/q.1/' examples/three-hosts.yaml > "$scratch/equal.yaml"
disturbed equal "$scratch/equal.yaml" 1
# Where srun has no PMIx.
sed 's/srun --mpi=list/echo none/; s/ --save [^ ]* --continue//; s/--steps [0-9]*/--steps 20/; s/ --save-every [0-9]*//' "$scratch/equal.sh" > "$scratch/plain.sh"
sbatch --wait --output="$scratch/plain.log" "$scratch/plain.sh" > "$scratch/out" 2> "$scratch/err" && grep -q "at step 20" "$scratch/plain.log" &&
    ok "equal nodes without PMIx" || not_ok "equal nodes without PMIx" "$(tail -n 5 "$scratch/err" "$scratch/plain.log")"
exit $bad

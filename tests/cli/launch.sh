#!/bin/bash
# tests/cli/launch.sh - the files of `musher launch`: what they state, and mpirun's, really started on hosts that are host names of this machine.
# tests/cli/slurm.sh submits the batch scripts.
set -u
. tests/cli/common.inc
plan=examples/three-hosts.yaml

says "an unknown engine" 2 "did you mean 'slurm'?" "$MUSHER" launch slurn $plan -o - -- --steps 1
says "a label of an unknown type" 2 "did you mean 'fast'?" "$MUSHER" launch slurm $plan -o - --label fasd=gpu:a
says "a label without text" 2 "expected TYPE=TEXT" "$MUSHER" launch slurm $plan -o - --label fast=
says "a wrong option of run" 2 "--steps" "$MUSHER" launch slurm $plan -o - -- --step 3
says "an option of run that launch has" 2 "pass it to launch itself" "$MUSHER" launch slurm $plan -o - -- --save ckpt
says "a variable without value" 2 "expected NAME=VALUE" "$MUSHER" launch ssh $plan -o - --env 1X=2
for time in 8h 1:2:3:4 -5 1- 1: 1-2:3:4:5 123456789 1--2 ""; do
    says "--time '$time'" 2 "--time '$time': expected minutes, MM:SS, HH:MM:SS, D-HH" "$MUSHER" launch slurm $plan -o - --time="$time"
done
for limit in 1 2:00 0-0:2 00:01:30; do
    says "a time limit of $limit within the grace" 2 "--grace 120 (the default): the time limit --time $limit is" "$MUSHER" launch slurm $plan -o - --save ckpt --time=$limit
done
says "a grace longer than the limit" 2 "--grace 7200: the time limit --time 1:00:00 is 3600 s" "$MUSHER" launch slurm $plan -o - --save ckpt --time 1:00:00 --grace 7200
for limit in 3 2:01 0-1 1-0:0:0 0; do
    says "a time limit of $limit" 0 "--signal=B:USR1@120" "$MUSHER" launch slurm $plan -o - --save ckpt --time=$limit
done
says "without checkpoints no grace" 0 "--time=1" "$MUSHER" launch slurm $plan -o - --time 1
says "a directive without a dash" 2 "--directive 'mem=4G': sbatch's options begin with a dash" "$MUSHER" launch slurm $plan -o - --directive=mem=4G
says "a label of Slurm with a blank" 2 "without blanks, commas and quotes" "$MUSHER" launch slurm $plan -o - "--label=fast=gpu:a --exclusive"
says "a label with a shell's letters" 0 "--gres='gpu:a(S:0-1):2'" "$MUSHER" launch slurm $plan -o - "--label=fast=gpu:a(S:0-1)"
says "an image with a blank" 2 "--image 'a b': expected a reference" "$MUSHER" launch kubernetes $plan -o - --image 'a b' --claim c
says "a relative folder" 2 "--folder 'work': pods mount the claim at an absolute path" "$MUSHER" launch kubernetes $plan -o - --image i --claim c --folder work
says "an option of another engine" 2 "--image has no effect with ssh, it is for kubernetes" "$MUSHER" launch ssh $plan -o - --image i
says "of several others" 2 "--restarts has no effect with ssh, it is for slurm and kubernetes and ray" "$MUSHER" launch ssh $plan -o - --restarts 3 --save ckpt
for option in time partition account directive agent image claim folder label grace name; do
    case $option in time | partition | account | directive) engine=kubernetes ;; agent) engine=slurm ;; *) engine=ssh ;; esac
    says "--$option for $engine" 2 "--$option has no effect with $engine" "$MUSHER" launch $engine $plan -o - --$option 1
done
says "a plan from standard input" 2 "pass it as a file" "$MUSHER" launch ssh - -o -
says "pods without an image" 2 "--image" "$MUSHER" launch kubernetes $plan -o -
says "pods of two types of nodes" 2 "expected a label of nodes" "$MUSHER" launch kubernetes $plan -o - --image i --claim c --label fast=gpu
says "a name that is no DNS label" 2 "pass --name" "$MUSHER" launch kubernetes $plan -o - --image i --claim c --name _x
says "a name that begins with a digit" 2 "pass --name" "$MUSHER" launch kubernetes $plan -o - --image i --claim c --name 7b
says "emulated devices on two nodes" 3 "on one host" "$MUSHER" launch slurm examples/served.yaml -o -
sed 's/host: gamma/host: localhost/' $plan > "$scratch/local.yaml"
says "a node without host" 3 "its host is localhost" "$MUSHER" launch ssh "$scratch/local.yaml" -o -
says "another host" 3 "rank 0 runs on" "$MUSHER" run $plan --launcher mpirun --steps 1 --data LICENSE

# Slurm: a component for each kind of node, in the plan's order.
"$MUSHER" launch slurm $plan -o "$scratch/job.sh" --save ckpt --label slow=gpu:mi300 --label fast=gpu:h100 --time 60 --directive=--mem=4G -- --steps 5 --data "a b's" --json > "$scratch/out" 2> "$scratch/err"
check "a batch script is written" $?
bash -n "$scratch/job.sh" 2> "$scratch/err"
check "it is a shell script" $?
grep -E '^#SBATCH (--nodes|hetjob)' "$scratch/job.sh" > "$scratch/components"
diff - "$scratch/components" > "$scratch/err" <<'END'
#SBATCH --nodes=1 --ntasks-per-node=2 --gres=gpu:h100:2
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:mi300:1
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks-per-node=1 --gres=gpu:h100:1
END
check "it has the plan's nodes" $?
[[ $(grep -c -- '--time=60' "$scratch/job.sh") == 3 && $(grep -c -- '#SBATCH --mem=4G' "$scratch/job.sh") == 3 ]] && ok "each component has the directives" || not_ok "each component has the directives" "$(cat "$scratch/job.sh")"
has "it ends before the time limit" job.sh "--signal=B:USR1@120"
eval "$(grep '^run=' "$scratch/job.sh")"
[[ "${run[*]}" == "musher run $plan --any-host --save ckpt --continue --steps 5 --data a b's --json" && ${#run[@]} == 12 ]] && ok "words are quoted" || not_ok "words are quoted" "${run[*]}"

# Kubernetes: every document is read by a YAML parser and a shell (tests/tools/test_launch.c reads the fields).
"$MUSHER" launch kubernetes $plan -o "$scratch/jobset.yaml" --image registry/musher:1 --claim work --save ckpt -- --steps 5 2> "$scratch/err"
check "a JobSet is written" $?
awk '/^ *- \|$/ { on = 1; next } /volumeMounts|resources/ { on = 0 } on' "$scratch/jobset.yaml" | sed 's/^ \{22\}//' > "$scratch/pods.sh"
bash -n "$scratch/pods.sh" 2> "$scratch/err"
check "its scripts are of a shell" $?
has "its pods are hosts" pods.sh "three-hosts-nodes2-0-0.three-hosts"

# Ranks of a node that are not neighbours: p.0, q.0, p.1, r.0.
mixed=$scratch/mixed.yaml
sed 's/{layers: \[4, 7\], device: p.1}/{layers: [4, 7], device: q.0}/; s/{layers: \[0, 3\], device: q.0}/{layers: [0, 3], device: p.1}/' $plan > "$mixed"
"$MUSHER" launch slurm "$mixed" -o "$scratch/mixed.sh" 2> "$scratch/err" && [[ $(grep '^ranks=' "$scratch/mixed.sh") == "ranks=(0 1 0 2) "* ]]
check "Slurm: ranks in the plan's order" $?
"$MUSHER" launch ray "$mixed" -o "$scratch/mixed.py" 2> "$scratch/err" && grep -q '^RANKS = \[0, 1, 0, 2\]' "$scratch/mixed.py"
check "Ray: ranks in the plan's order" $?
"$MUSHER" launch kubernetes "$mixed" -o "$scratch/mixed-jobset.yaml" --image i --claim c 2> "$scratch/err" &&
    [[ $(sed -n "/hosts\" <<'END'/,/END\$/s/^ *three-hosts-\(.*\)\.three-hosts/\1/p" "$scratch/mixed-jobset.yaml" | tr '\n' ' ') == "leader-0-0 nodes1-0-0 leader-0-0 nodes2-0-0 " ]]
check "Kubernetes: ranks in the plan's order" $?

# mpirun: each host is a name of this machine, in a name space of its own.
if unshare -u true 2> /dev/null; then
    cat > "$scratch/agent" <<'END'
#!/bin/bash
host=$1
shift
exec unshare -u bash -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
END
    chmod +x "$scratch/agent"
    "$MUSHER" launch ssh $plan -o "$scratch/run.sh" --program "$MUSHER" --agent "$scratch/agent" --save "$scratch/ckpt" --env "MUSHER_TIMEOUT=60" -- --steps 400 --data LICENSE 2> "$scratch/err"
    check "a script for mpirun is written" $?
    timeout 300 bash "$scratch/run.sh" > "$scratch/out" 2> "$scratch/err"
    check "three hosts train" $?
    "$MUSHER" run $plan --any-host --steps 400 --data LICENSE --save "$scratch/whole" > /dev/null 2> "$scratch/err" &&
        diff -r "$scratch/whole" "$scratch/ckpt" > "$scratch/err"
    check "they have the parameters of one host" $?
    says "a complete training ends at once" 0 "the training is complete" bash "$scratch/run.sh"
    "$MUSHER" launch ssh "$mixed" -o "$scratch/mixed.sh" --program "$MUSHER" --agent "$scratch/agent" --save "$scratch/mixed" -- --steps 100 --data LICENSE 2> "$scratch/err"
    sed -i 's/ --steps / --any-host --steps /' "$scratch/mixed.sh"
    timeout 300 bash "$scratch/mixed.sh" > "$scratch/out" 2> "$scratch/err"
    check "ranks that are not neighbours train" $?
    "$MUSHER" run "$mixed" --any-host --steps 100 --data LICENSE --save "$scratch/mixed-whole" > /dev/null 2> "$scratch/err" &&
        diff -r "$scratch/mixed-whole" "$scratch/mixed" > "$scratch/err"
    check "with the parameters of one host" $?
    # Agents that do not reach a host; what a killed run has left is removed by the next one, which has a file of its own.
    mkdir "$scratch/tmp"
    echo left > "$scratch/tmp/musher-hosts-killed"
    echo kept > "$scratch/tmp/musher-hosts-locked"
    exec {lock}< "$scratch/tmp/musher-hosts-locked"
    flock "$lock"
    not_reached() { # NAME ANSWER TEXT: of the host beta
        printf '#!/bin/bash\n[[ $1 != beta ]] || { %s; }\nexec "%s" "$@"\n' "$2" "$scratch/agent" > "$scratch/agent-of"
        chmod +x "$scratch/agent-of"
        says "$1" 7 "host beta: '$scratch/agent-of' $3" timeout 60 env TMPDIR="$scratch/tmp" "$MUSHER" run $plan --data LICENSE --steps 2 --agent "$scratch/agent-of"
    }
    not_reached "a host that refuses" "echo no route to host >&2; echo more >&2; exit 255" "cannot start Open MPI there (exit code 255): no route to host"
    [[ $(ls "$scratch/tmp") == musher-hosts-locked ]] && ok "files of killed runs are removed" || not_ok "files of killed runs are removed" "$(ls "$scratch/tmp")"
    exec {lock}<&-
    not_reached "a host without Open MPI" "exec sh -c 'orted-is-missing'" "cannot start Open MPI there (exit code 127): sh: 1: orted-is-missing: not found"
    not_reached "a host without an answer" "exit 255" "cannot start Open MPI there (exit code 255)"
    says "no such agent" 7 "host" env TMPDIR="$scratch/tmp" "$MUSHER" run $plan --data LICENSE --steps 2 --agent "$scratch/no-agent"
    has "its name is there" err "cannot start Open MPI there (exit code 127): $scratch/no-agent: No such file or directory"
    [[ -z $(ls "$scratch/tmp") ]] && ok "no file is left" || not_ok "no file is left" "$(ls "$scratch/tmp")"
    # Ranks in another order than the plan's.
    sed "/^alpha$/d; s/^END$/alpha\nalpha\nEND/; s/ --save [^ ]* --continue//" "$scratch/run.sh" > "$scratch/order.sh"
    says "ranks on other hosts than the plan's" 3 "rank 0 runs on 'gamma'" bash "$scratch/order.sh"
    sed 's/ --steps / --any-host --steps /' "$scratch/order.sh" > "$scratch/split.sh"
    says "a node on two hosts" 3 "start as many ranks on each host" bash "$scratch/split.sh"
else
    echo "left out: a script for mpirun on three host names, because this user cannot unshare them"
fi

# Ranks of mpirun end with a checkpoint, on which they agree by messages.
two_stages > "$scratch/two.yaml"
ranks=(mpirun --oversubscribe --bind-to none -n 2 "$MUSHER" run "$scratch/two.yaml" --deterministic --data LICENSE --steps 4000 --save-every 100)
"${ranks[@]}" --save "$scratch/mpi" --continue > "$scratch/out" 2> "$scratch/err" &
pid=$!
until compgen -G "$scratch/mpi/step-*" > /dev/null || ! kill -0 $pid 2> /dev/null; do sleep 0.1; done
kill -USR1 $pid
wait $pid
code=$?
[[ $code == 130 ]] && grep -q "interrupted after step" "$scratch/err" && ok "SIGUSR1 of mpirun ends ranks with a checkpoint" ||
    not_ok "SIGUSR1 of mpirun ends ranks with a checkpoint" "$code: $(tail -n 3 "$scratch/err")"
says "the ranks continue" 0 "at step 4000" "${ranks[@]}" --save "$scratch/mpi" --continue
"$MUSHER" run "$scratch/two.yaml" --deterministic --data LICENSE --steps 4000 --save "$scratch/alone" > /dev/null 2> "$scratch/err" &&
    diff -r "$scratch/alone/step-00004000" "$scratch/mpi/step-00004000" > "$scratch/err"
check "with the bits of an undisturbed run" $?
says "--continue needs --save" 2 "save" "$MUSHER" run "$scratch/two.yaml" --data LICENSE --continue
exit $bad

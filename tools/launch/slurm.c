/* tools/launch/slurm.c - a batch script for sbatch.
 *
 * Equal nodes are one job, whose ranks srun starts with PMIx. Unequal nodes are a heterogeneous job: a component for each run of equal
 * nodes, in the plan's order, because one job asks for the same resources on every node. There, where srun has no PMIx, and where ranks of
 * a node are not neighbours (srun's distribution is by blocks), mpirun starts the ranks, and reaches the nodes by srun: Slurm's PMIx plugin refuses a step over components whose hosts are not in the order of their
 * names (seen with Slurm 22.05). SIGUSR1 or SIGTERM of the batch script (time limit, preemption) ends the run after a step with a
 * checkpoint, and the script puts the job back into the queue.
 *
 * A step's PMIx folder on a node bears the numbers of job and step, and slurmstepd removes it seconds after srun has ended. A requeued job
 * starts again with step 0, so its PMIx may not start: "Cannot create directory", and srun 22.05 ends with 0. Therefore each start
 * takes another step number, and where no rank has begun, mpirun starts them. */
#include "core/base/arena.h"
#include "tools/launch/shell.h"

#include <inttypes.h>
#include <string.h>

/* Generic resources of a node: --gres. */
static void print_gres(FILE *out, struct arena *a, const struct launch_node *x)
{
    const char *gres = NULL;
    for (int32_t i = 0; i < x->n_parts; i++) {
        const struct launch_part *p = &x->part[i];
        if (!p->label && !p->gpu) continue;
        gres = arena_printf(a, "%s%s%s%s:%" PRId32, gres ? gres : "", gres ? "," : "", p->label ? "" : "gpu:", p->label ? p->label : p->type, p->n);
    }
    if (!gres) return;
    fputs(" --gres=", out);
    shell_word(out, gres);
}

/* Names of gres have neither blanks nor commas, which separate them; sbatch ends an option at a blank, and a line at #. */
static enum status check_labels(const struct launch *l, struct error *err)
{
    for (int32_t i = 0; i < l->n_nodes; i++)
        for (int32_t k = 0; k < l->nodes[i].n_parts; k++) {
            const struct launch_part *p = &l->nodes[i].part[k];
            if (p->label && strpbrk(p->label, " ,'\"#"))
                return error_set(err, ERR_USAGE, "--label %s=%.100s: expected one of Slurm's generic resources, without blanks, commas and quotes, e.g. %s=gpu:h100",
                                 p->type, p->label, p->type);
        }
    return OK;
}

static void print_option(FILE *out, const char *option, const char *value)
{
    if (!value) return;
    fprintf(out, "#SBATCH --%s=", option);
    shell_word(out, value);
    putc('\n', out);
}

static void print_components(FILE *out, const struct launch *l)
{
    for (int32_t g = 0; g < l->n_groups; g++) {
        const struct launch_node *x = &l->nodes[l->groups[g].first];
        if (g) fputs("#SBATCH hetjob\n", out);
        print_option(out, "time", l->q->time);
        print_option(out, "partition", l->q->partition);
        print_option(out, "account", l->q->account);
        for (size_t i = 0; i < l->q->directives.count; i++) fprintf(out, "#SBATCH %s\n", l->q->directives.items[i]);
        fprintf(out, "#SBATCH --nodes=%" PRId32 " --ntasks-per-node=%" PRId32, l->groups[g].n, x->n_ranks);
        print_gres(out, l->a, x);
        putc('\n', out);
    }
}

static const char by_mpirun[] =
    "over_mpirun() {\n"
    "    local group component list host i hosts=()\n"
    "    : > \"$here/components\"\n"
    "    for ((group = 0; group < components; group++)); do\n"
    "        list=$SLURM_JOB_NODELIST component=\n"
    "        ((components > 1)) && eval \"list=\\$SLURM_JOB_NODELIST_HET_GROUP_$group\" component=--het-group=$group\n"
    "        for host in $(scontrol show hostnames \"$list\"); do\n"
    "            echo \"$host $component\" >> \"$here/components\"\n"
    "            hosts+=(\"$host\")\n"
    "        done\n"
    "    done\n"
    "    for i in \"${ranks[@]}\"; do echo \"${hosts[i]}\"; done > \"$here/hosts\"\n"
    "    # mpirun calls this in place of ssh\n"
    "    cat > \"$here/agent\" <<'END'\n"
    "host=$1\n"
    "shift\n"
    "component=$(sed -n \"s/^$host //p\" \"${0%/*}/components\")\n"
    "exec srun $component --overlap --nodelist=\"$host\" --nodes=1 --ntasks=1 --mpi=none --input=none sh -c \"$*\"\n"
    "END\n"
    "    exec mpirun --mca ras ^slurm --mca plm rsh --mca plm_rsh_agent \"bash $here/agent\" --mca plm_rsh_no_tree_spawn 1 "
    "--leave-session-attached ";

/* Ranks end each other (exec/comm), with exit codes of their own; srun kills those that are left after a minute. */
static const char by_srun[] =
    "over_srun() {\n"
    "    exec srun --mpi=pmix --distribution=block --kill-on-bad-exit=0 --wait=60 "
    "bash -c '[[ $SLURM_PROCID != 0 ]] || : > \"$0\"; exec \"$@\"' \"$here/begun\" \"${run[@]}\"\n"
    "}\n\n";

static const char start[] =
    "here=$(mktemp -d)\n"
    "trap 'rm -rf \"$here\"' EXIT\n"
    "stopped='' step='' code=1\n"
    "stop() {\n"
    "    stopped=1\n"
    "    [[ -z $step ]] || kill -USR1 \"$step\" 2> /dev/null # srun and mpirun pass it on\n"
    "}\n"
    "trap stop TERM USR1\n"
    "# start COMMAND: returns when it has ended, with its exit code in code\n"
    "start() {\n"
    "    \"$1\" &\n"
    "    step=$!\n"
    "    [[ -z $stopped ]] || kill -USR1 \"$step\"\n"
    "    while\n"
    "        wait \"$step\"\n"
    "        code=$?\n"
    "        ((code > 128)) && kill -0 \"$step\" 2> /dev/null\n"
    "    do :; done\n"
    "}\n";

enum { STEP_NUMBERS = 4 }; /* A step of Slurm 22.05 removed its folder up to 3 s after srun had ended (2 cores, loaded): less than four starts. */

static void print_ranks(FILE *out, bool by_block)
{
    if (!by_block) {
        fputs("start_ranks() { start over_mpirun; }\n", out);
        return;
    }
    fprintf(out,
            "start_ranks() {\n"
            "    if [[ -n $pmix ]]; then\n"
            "        rm -f \"$here/begun\"\n"
            "        start over_srun\n"
            "        # rank 0 is on the first node, where this script runs too\n"
            "        [[ ! -e $here/begun && $SLURMD_NODENAME == \"$(scontrol show hostnames | head -n 1)\" ]] || return\n"
            "        echo \"srun has started no rank; mpirun starts them\" >&2\n"
            "        code=1 # srun may have ended with 0\n"
            "    fi\n"
            "    [[ -n $stopped ]] || start over_mpirun\n"
            "}\n"
            "pmix=$(srun --mpi=list 2>&1 | grep -wm 1 pmix)\n"
            "# The PMIx of a step fails while the step of the same number, from before a requeue, is ending.\n"
            "for ((i = 0; i < ${SLURM_RESTART_COUNT:-0} %% %d; i++)); do\n"
            "    srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 true > /dev/null 2>&1\n"
            "done\n",
            STEP_NUMBERS);
}

/* Not after success, wrong options, input or device, or an end by a signal. */
static void print_restarts(FILE *out, int64_t n)
{
    fprintf(out,
            "for ((left = %" PRId64 "; left > 0; left--)); do\n"
            "    case $code in 0 | 2 | 3 | 8 | 130) break ;; esac\n"
            "    [[ -z $stopped ]] || break\n"
            "    echo \"the ranks ended with exit code $code and start again; starts left: $left\" >&2\n"
            "    start_ranks\n"
            "done\n",
            n);
}

static void print_requeue(FILE *out)
{
    fputs("# Ranks that were interrupted have a checkpoint, from which the next start continues. The state of a job that is cancelled, or that\n"
          "# Slurm requeues by itself, is no longer RUNNING.\n"
          "if ((code == 130)) || [[ -n $stopped && $code != 0 ]]; then\n"
          "    id=${SLURM_JOB_ID_HET_GROUP_0:-$SLURM_JOB_ID}\n"
          "    [[ $(squeue --noheader --format=%T --jobs=\"$id\" | sort -u) != RUNNING ]] || scontrol requeue \"$id\"\n"
          "fi\n",
          out);
}

enum status launch_slurm(FILE *out, const struct launch *l, struct error *err)
{
    TRY(check_labels(l, err));
    bool by_block = l->n_groups == 1 && l->in_order;
    fprintf(out, "#!/bin/bash\n# Plan %s: %" PRId32 " ranks on %" PRId32 " nodes. Written by `musher launch slurm`; to submit it: sbatch FILE\n",
            l->plan_name, l->n_ranks, l->n_nodes);
    print_option(out, "job-name", l->name);
    fputs("#SBATCH --output=%x-%j.log --open-mode=append\n", out);
    if (l->q->save) fprintf(out, "#SBATCH --requeue --signal=B:USR1@%" PRId64 "\n", l->q->grace_s);
    print_components(out, l);
    fputs("set -u\n", out);
    shell_env(out, l);
    shell_run(out, l, true);
    fprintf(out, "components=%" PRId32 "\nranks=(", l->n_groups);
    for (int32_t i = 0; i < l->n_ranks; i++) fprintf(out, "%s%" PRId32, i ? " " : "", l->rank_node[i]);
    fputs(") # node of each, in the order of the components and their hosts\n\n", out);
    fputs(by_mpirun, out);
    shell_mpirun(out, l);
    fputs(" \"${run[@]}\"\n}\n\n", out);
    if (by_block) fputs(by_srun, out);
    fputs(start, out);
    print_ranks(out, by_block);
    fputs("start_ranks\n", out);
    if (l->q->save) print_restarts(out, l->q->restarts);
    if (l->q->save) print_requeue(out);
    fputs("exit \"$code\"\n", out);
    return OK;
}

/* tools/launch/slurm.c - a batch script for sbatch.
 *
 * Equal nodes are one job, whose ranks srun starts with PMIx. Unequal nodes are a heterogeneous job: a component for each run of equal
 * nodes, in the plan's order, because one job asks for the same resources on every node. There, and where srun has no PMIx, mpirun starts
 * the ranks, and reaches the nodes by srun: Slurm's PMIx plugin refuses a step over components whose hosts are not in the order of their
 * names (seen with Slurm 22.05). SIGTERM of the batch script (time limit, preemption) ends the run after a step with a checkpoint, and the
 * script puts the job back into the queue. */
#include "tools/launch/shell.h"

#include <inttypes.h>

/* Generic resources of a node: --gres. */
static void print_gres(FILE *out, const struct launch_node *x)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->n_parts; i++) {
        const struct launch_part *p = &x->part[i];
        if (!p->label && !p->gpu) continue;
        fprintf(out, "%s%s%s:%" PRId32, n++ ? "," : " --gres=", p->label ? "" : "gpu:", p->label ? p->label : p->type, p->n);
    }
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
        print_gres(out, x);
        putc('\n', out);
    }
}

static const char by_mpirun[] =
    "over_mpirun() {\n"
    "    local group component list host i\n"
    "    for group in \"${!ranks[@]}\"; do\n"
    "        list=$SLURM_JOB_NODELIST component=\n"
    "        ((${#ranks[@]} > 1)) && eval \"list=\\$SLURM_JOB_NODELIST_HET_GROUP_$group\" component=--het-group=$group\n"
    "        for host in $(scontrol show hostnames \"$list\"); do\n"
    "            echo \"$host $component\" >> \"$here/components\"\n"
    "            for ((i = 0; i < ranks[group]; i++)); do echo \"$host\"; done\n"
    "        done\n"
    "    done > \"$here/hosts\"\n"
    "    # mpirun calls this in place of ssh\n"
    "    cat > \"$here/agent\" <<'END'\n"
    "host=$1\n"
    "shift\n"
    "component=$(sed -n \"s/^$host //p\" \"${0%/*}/components\")\n"
    "exec srun $component --overlap --nodelist=\"$host\" --nodes=1 --ntasks=1 --mpi=none --input=none sh -c \"$*\"\n"
    "END\n"
    "    exec mpirun --mca ras ^slurm --mca plm rsh --mca plm_rsh_agent \"bash $here/agent\" --mca plm_rsh_no_tree_spawn 1 "
    "--leave-session-attached ";

enum status launch_slurm(FILE *out, const struct launch *l, struct error *err)
{
    (void)err;
    fprintf(out, "#!/bin/bash\n# Plan %s: %" PRId32 " ranks on %" PRId32 " nodes. Written by `musher launch slurm`; to submit it: sbatch FILE\n",
            l->plan_name, l->n_ranks, l->n_nodes);
    print_option(out, "job-name", l->name);
    fputs("#SBATCH --output=%x-%j.log --open-mode=append\n", out);
    if (l->q->save) fprintf(out, "#SBATCH --requeue --signal=B:TERM@%" PRId64 "\n", l->q->grace_s);
    print_components(out, l);
    fputs("set -u\n", out);
    shell_env(out, l);
    shell_run(out, l, true);
    fputs("ranks=(", out);
    for (int32_t g = 0; g < l->n_groups; g++) fprintf(out, "%s%" PRId32, g ? " " : "", l->nodes[l->groups[g].first].n_ranks);
    fputs(") # of each node, by component\n\n", out);
    fputs(by_mpirun, out);
    shell_mpirun(out, l);
    fputs(" \"${run[@]}\"\n}\n\n", out);
    fputs("here=$(mktemp -d)\n"
          "trap 'rm -rf \"$here\"' EXIT\n"
          "stopped='' step=''\n"
          "stop() {\n"
          "    stopped=1\n"
          "    [ -z \"$step\" ] || kill -USR1 \"$step\" # srun and mpirun pass it on\n"
          "}\n"
          "trap stop TERM\n",
          out);
    if (l->n_groups == 1)
        fputs("if srun --mpi=list 2>&1 | grep -qw pmix; then\n"
              "    srun --mpi=pmix --distribution=block --kill-on-bad-exit=1 \"${run[@]}\" &\n"
              "else\n"
              "    over_mpirun &\n"
              "fi\n",
              out);
    else
        fputs("over_mpirun &\n", out);
    fputs("step=$!\n"
          "while\n"
          "    wait \"$step\"\n"
          "    code=$?\n"
          "    ((code > 128)) && kill -0 \"$step\" 2> /dev/null\n"
          "do :; done\n",
          out);
    if (l->q->save)
        fputs("# The next start continues from the checkpoint; if that is of the last step, it ends at once.\n"
              "if [ -n \"$stopped\" ]; then scontrol requeue \"${SLURM_JOB_ID_HET_GROUP_0:-$SLURM_JOB_ID}\"; fi\n",
              out);
    fputs("exit \"$code\"\n", out);
    return OK;
}

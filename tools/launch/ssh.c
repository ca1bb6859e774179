/* tools/launch/ssh.c - a shell script that starts the ranks by mpirun of Open MPI. */
#include "core/base/log.h"
#include "tools/mpi_hosts.h"
#include "tools/launch/shell.h"

#include <inttypes.h>
#include <string.h>

static enum status check_hosts(const struct launch *l, struct error *err)
{
    for (int32_t i = 0; i < l->n_nodes; i++) {
        const char *host = l->nodes[i].host;
        if (l->n_nodes > 1 && !strcmp(host, "localhost"))
            return error_set(err, ERR_INPUT, "node %s: its host is localhost; name the host of each node in the cluster of the plan, e.g. host: gpu1",
                             l->nodes[i].name);
        if (!mpi_hosts_name(host)) return error_set(err, ERR_INPUT, "node %s: '%.200s' is no name of a host", l->nodes[i].name, host);
    }
    return OK;
}

enum status launch_ssh(FILE *out, const struct launch *l, struct error *err)
{
    TRY(check_hosts(l, err));
    fprintf(out, "#!/bin/bash\n# Plan %s: %" PRId32 " ranks on %" PRId32 " nodes. Written by `musher launch ssh`; to start it: bash FILE\n",
            l->plan_name, l->n_ranks, l->n_nodes);
    fputs("# Every host has the program, the plan and the data under the same names, and this host reaches them by ssh without a password.\n"
          "set -u\n",
          out);
    shell_env(out, l);
    shell_run(out, l, false);
    fputs("here=$(mktemp -d)\n"
          "trap 'rm -rf \"$here\"' EXIT\n"
          "cat > \"$here/hosts\" <<'END'\n",
          out);
    for (int32_t i = 0; i < l->n_ranks; i++) fprintf(out, "%s\n", l->nodes[l->rank_node[i]].host);
    fputs("END\nmpirun --mca plm rsh ", out);
    if (l->q->agent) {
        fputs("--mca plm_rsh_agent ", out);
        shell_word(out, l->q->agent);
        putc(' ', out);
    }
    shell_mpirun(out, l);
    fputs(" \"${run[@]}\" &\n"
          "step=$!\n"
          "trap 'kill -USR1 \"$step\"' INT TERM # ranks with checkpoints end after a step\n"
          "while\n"
          "    wait \"$step\"\n"
          "    code=$?\n"
          "    ((code > 128)) && kill -0 \"$step\" 2> /dev/null\n"
          "do :; done\n"
          "exit \"$code\"\n",
          out);
    return OK;
}

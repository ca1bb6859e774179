/* tools/launch/kubernetes.c - a JobSet (jobset.x-k8s.io/v1alpha2), of which a Kubeflow TrainJob's runtime consists too.
 *
 * The first node is the replicated job `leader`, whose pod runs mpirun; each run of equal nodes behind it is a replicated job of its own,
 * whose pods run sshd, with its number of GPUs and its node selector. The headless service of the JobSet gives pods the names
 * JOBSET-JOB-0-INDEX.JOBSET. The end of the leader is the end of the JobSet. An MPIJob has one kind of workers only, so unequal nodes do not
 * fit. Ranks take the pods as hosts, where GPUs are numbered from 0. */
#include "core/base/text.h"
#include "tools/launch/shell.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define SSH "/etc/musher/ssh"
enum { NAME_MAX_BYTES = 40 }; /* a pod's name has the job's and the pod's number behind it, and at most 63 bytes */

/* The job's name as a DNS label of RFC 1035, which JobSet's webhook asks for. */
static enum status dns_name(const struct launch *l, char out[NAME_MAX_BYTES + 1], struct error *err)
{
    size_t n = strlen(l->name);
    if (n > NAME_MAX_BYTES)
        return error_set(err, ERR_USAGE, "--name: '%.80s' is longer than %d bytes, and names of pods are made of it", l->name, NAME_MAX_BYTES);
    for (size_t i = 0; i <= n; i++) {
        unsigned char c = (unsigned char)l->name[i];
        out[i] = c == 0 ? 0 : c < 128 && isalnum(c) ? (char)tolower(c) : '-';
    }
    if (!n || out[0] < 'a' || out[0] > 'z' || out[n - 1] == '-')
        return error_set(err, ERR_USAGE, "the job's name '%.80s' does not begin with a letter and end with a letter or a digit: pass --name, e.g. --name training",
                         l->name);
    return OK;
}

static enum status check(const struct launch *l, struct error *err)
{
    /* of image references (distribution/reference) */
    static const char reference[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:@[]";
    const struct launch_part *first = NULL;
    if (!l->q->image) return error_set(err, ERR_USAGE, "launch kubernetes needs --image, a container image with musher, Open MPI and sshd");
    if (!l->q->claim) return error_set(err, ERR_USAGE, "launch kubernetes needs --claim, the persistent volume claim with plan, data and checkpoints");
    if (l->q->image[strspn(l->q->image, reference)] || !*l->q->image)
        return error_set(err, ERR_USAGE, "--image '%.200s': expected a reference without blanks and quotes, e.g. registry/musher:1 or registry/musher@sha256:...", l->q->image);
    if (*l->q->folder != '/' || strchr(l->q->folder, ':'))
        return error_set(err, ERR_USAGE, "--folder '%.200s': pods mount the claim at an absolute path without colons, e.g. /data", l->q->folder);
    for (int32_t i = 0; i < l->n_nodes; i++)
        for (int32_t k = 0; k < l->nodes[i].n_parts; k++) {
            const struct launch_part *p = &l->nodes[i].part[k];
            if (p->label && (!strchr(p->label, '=') || *p->label == '='))
                return error_set(err, ERR_USAGE, "--label %s=%.100s: expected a label of nodes, e.g. %s=nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3", p->type,
                                 p->label, p->type);
            if (!p->gpu) continue;
            if (!first) first = p;
            if (strcmp(first->type, p->type) != 0 && (!first->label || !p->label))
                return error_set(err, ERR_USAGE, "the plan has several types of GPUs; tell their nodes apart: --label %s=KEY=VALUE",
                                 first->label ? p->type : first->type);
        }
    return OK;
}

static void print_key(FILE *out, const char *indented_key, const char *value)
{
    fprintf(out, "%s: ", indented_key);
    shell_text(out, value, strlen(value));
    putc('\n', out);
}

static void print_selector(FILE *out, const struct launch_node *x)
{
    bool any = false;
    for (int32_t i = 0; i < x->n_parts; i++) {
        const char *label = x->part[i].label;
        if (!label) continue;
        size_t n = strcspn(label, "=");
        if (!any) fputs("              nodeSelector:\n", out);
        any = true;
        fputs("                ", out);
        shell_text(out, label, n);
        fputs(": ", out);
        shell_text(out, label + n + 1, strlen(label + n + 1));
        putc('\n', out);
    }
}

static void print_script(FILE *out, const char *script)
{
    fputs("                  args:\n                    - |\n", out);
    for (const char *line = script; *line;) {
        size_t n = strcspn(line, "\n");
        if (n) fprintf(out, "                      %.*s", (int)n, line);
        putc('\n', out);
        line += n + (line[n] == '\n');
    }
}

static void print_job(FILE *out, const struct launch *l, const char *job, const char *name, int32_t pods, const struct launch_node *x, const char *script)
{
    int32_t gpus = 0;
    for (int32_t i = 0; i < x->n_parts; i++) gpus += x->part[i].gpu ? x->part[i].n : 0;
    fprintf(out,
            "    - name: %s\n"
            "      replicas: 1\n"
            "      template:\n"
            "        spec:\n"
            "          parallelism: %" PRId32 "\n"
            "          completions: %" PRId32 "\n"
            "          backoffLimit: 0\n"
            "          template:\n"
            "            spec:\n"
            "              restartPolicy: Never\n"
            "              terminationGracePeriodSeconds: %" PRId64 "\n",
            job, pods, pods, l->q->grace_s);
    print_selector(out, x);
    fputs("              containers:\n"
          "                - name: musher\n",
          out);
    print_key(out, "                  image", l->q->image);
    print_key(out, "                  workingDir", l->q->folder);
    fputs("                  command: [bash, -c]\n", out);
    print_script(out, script);
    if (gpus) fprintf(out, "                  resources:\n                    limits:\n                      nvidia.com/gpu: %" PRId32 "\n", gpus);
    fputs("                  volumeMounts:\n", out);
    print_key(out, "                    - name: work\n                      mountPath", l->q->folder);
    fputs("                    - name: ssh\n"
          "                      mountPath: " SSH "\n"
          "                    - name: shm\n"
          "                      mountPath: /dev/shm\n"
          "              volumes:\n"
          "                - name: work\n"
          "                  persistentVolumeClaim:\n",
          out);
    print_key(out, "                    claimName", l->q->claim);
    fprintf(out,
            "                - name: ssh\n"
            "                  secret:\n"
            "                    secretName: %s-ssh\n"
            "                    defaultMode: 256\n" /* 0400 */
            "                - name: shm\n"
            "                  emptyDir:\n"
            "                    medium: Memory\n",
            name);
}

/* Pods behind the leader's in a group. */
static int32_t rest(const struct launch *l, int32_t g) { return l->groups[g].n - (g == 0); }

static void print_pod(FILE *out, const struct launch *l, const char *name, int32_t node)
{
    int32_t g = 0;
    while (node >= l->groups[g].first + l->groups[g].n) g++;
    if (node)
        fprintf(out, "%s-nodes%" PRId32 "-0-%" PRId32 ".%s\n", name, g, node - l->groups[g].first - (g == 0), name);
    else
        fprintf(out, "%s-leader-0-0.%s\n", name, name);
}

static void write_leader(FILE *out, const struct launch *l, const char *name)
{
    fputs("set -u\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n", out);
    shell_env(out, l);
    shell_run(out, l, true);
    fputs("here=$(mktemp -d)\n"
          "cat > \"$here/hosts\" <<'END'\n",
          out);
    for (int32_t i = 0; i < l->n_ranks; i++) print_pod(out, l, name, l->rank_node[i]);
    fputs("END\n"
          "ssh_options='-i " SSH "/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR'\n"
          "for host in $(sort -u \"$here/hosts\"); do\n"
          "    case $host in \"$HOSTNAME\".*) continue ;; esac\n"
          "    until ssh $ssh_options -o ConnectTimeout=5 \"$host\" true; do sleep 2; done\n"
          "done\n"
          "mpirun --mca plm rsh --mca plm_rsh_args \"$ssh_options\" --mca plm_rsh_no_tree_spawn 1 ",
          out);
    shell_mpirun(out, l);
    fputs(" \"${run[@]}\" &\n"
          "step=$!\n"
          "trap 'kill -USR1 \"$step\"' TERM # ranks with checkpoints end after a step\n"
          "while\n"
          "    wait \"$step\"\n"
          "    code=$?\n"
          "    ((code > 128)) && kill -0 \"$step\" 2> /dev/null\n"
          "do :; done\n"
          "exit \"$code\"\n",
          out);
}

static const char serve_ssh[] = "mkdir -p /run/sshd\n"
                                "exec /usr/sbin/sshd -D -e -h " SSH "/id -o AuthorizedKeysFile=" SSH "/id.pub -o StrictModes=no\n";

enum status launch_kubernetes(FILE *out, const struct launch *l, struct error *err)
{
    char name[NAME_MAX_BYTES + 1], job[32];
    struct text t;
    TRY(check(l, err));
    TRY(dns_name(l, name, err));
    write_leader(text_begin(&t), l, name);
    const char *script = text_end(l->a, &t, NULL);
    fprintf(out,
            "# Plan %s: %" PRId32 " ranks on %" PRId32 " nodes. Written by `musher launch kubernetes`. Once, a key for ssh between the pods:\n"
            "#   ssh-keygen -t ed25519 -N '' -f id && kubectl create secret generic %s-ssh --from-file=id --from-file=id.pub\n"
            "# Then: kubectl apply -f FILE\n"
            "apiVersion: jobset.x-k8s.io/v1alpha2\n"
            "kind: JobSet\n"
            "metadata:\n"
            "  name: %s\n"
            "spec:\n"
            "  network:\n"
            "    enableDNSHostnames: true\n"
            "    publishNotReadyAddresses: true\n"
            "  successPolicy:\n"
            "    operator: All\n"
            "    targetReplicatedJobs: [leader]\n"
            "  failurePolicy:\n"
            "    maxRestarts: %" PRId64 "\n"
            "  replicatedJobs:\n",
            l->plan_name, l->n_ranks, l->n_nodes, name, name, l->q->save ? l->q->restarts : 0);
    print_job(out, l, "leader", name, 1, &l->nodes[0], script);
    for (int32_t g = 0; g < l->n_groups; g++) {
        snprintf(job, sizeof job, "nodes%" PRId32, g);
        if (rest(l, g)) print_job(out, l, job, name, rest(l, g), &l->nodes[l->groups[g].first], serve_ssh);
    }
    return OK;
}

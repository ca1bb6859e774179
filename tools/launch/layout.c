/* tools/launch/layout.c - the nodes of a program, and which of them are alike. */
#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "tools/launch/launch.h"

#include <string.h>

static enum status add_device(struct launch_node *x, const struct cluster *c, const struct device *d, bool gpu, struct error *err)
{
    int32_t i = 0, n = 0;
    const struct node_spec *node = &c->nodes[d->node];
    const char *type = c->types[d->type].name;
    while (i < x->n_parts && strcmp(x->part[i].type, type) != 0) i++;
    if (i == LAUNCH_PARTS)
        return error_set(err, ERR_INPUT, "node %s: more than %d device types; a file of launch states at most %d a node", node->name, LAUNCH_PARTS,
                         LAUNCH_PARTS);
    if (i == x->n_parts) x->part[x->n_parts++] = (struct launch_part){.type = type, .gpu = gpu};
    for (int32_t k = node->first_device; k < node->first_device + node->n_devices; k++)
        n += c->devices[k].type == d->type && c->devices[k].index <= d->index;
    if (n > x->part[i].n) x->part[i].n = n;
    x->n_ranks++;
    return OK;
}

static bool alike(const struct launch_node *x, const struct launch_node *y)
{
    if (x->n_ranks != y->n_ranks || x->n_parts != y->n_parts) return false;
    for (int32_t i = 0; i < x->n_parts; i++)
        if (x->part[i].n != y->part[i].n || strcmp(x->part[i].type, y->part[i].type) != 0) return false;
    return true;
}

static enum status find_nodes(const struct plan *plan, const struct program *p, struct launch *out, struct error *err)
{
    const struct cluster *c = &plan->cluster;
    int32_t *found = ARENA_ARRAY(out->a, int32_t, (size_t)c->n_nodes + 1); /* 1 + index in out->nodes */
    out->rank_node = ARENA_ARRAY(out->a, int32_t, (size_t)p->n_devices + 1);
    out->in_order = true;
    out->nodes = ARENA_ARRAY(out->a, struct launch_node, (size_t)c->n_nodes + 1);
    for (int32_t i = 0; i < p->n_devices; i++) {
        int32_t device = cluster_device(c, p->devices[i].name);
        const struct device *d = &c->devices[device];
        if (!found[d->node]) {
            out->nodes[out->n_nodes++] = (struct launch_node){.name = c->nodes[d->node].name, .host = c->nodes[d->node].host};
            found[d->node] = out->n_nodes;
        }
        out->rank_node[i] = found[d->node] - 1;
        out->in_order &= !i || out->rank_node[i] >= out->rank_node[i - 1];
        TRY(add_device(&out->nodes[out->rank_node[i]], c, d, !program_device_is_host(&p->devices[i]), err));
    }
    return OK;
}

static void find_groups(struct launch *l)
{
    l->groups = ARENA_ARRAY(l->a, struct launch_group, (size_t)l->n_nodes + 1);
    for (int32_t i = 0; i < l->n_nodes; i++) {
        if (!i || !alike(&l->nodes[i], &l->nodes[i - 1])) l->groups[l->n_groups++] = (struct launch_group){.first = i};
        l->groups[l->n_groups - 1].n++;
    }
}

/* --label TYPE=TEXT */
static enum status take_label(struct launch *l, const struct cluster *c, const char *label, struct error *err)
{
    const char *sign = strchr(label, '=');
    const char **names = ARENA_ARRAY(l->a, const char *, (size_t)c->n_types + 1);
    char hint[NEAREST_HINT];
    bool known = false;
    if (!sign || sign == label || !sign[1]) return error_set(err, ERR_USAGE, "--label %.200s: expected TYPE=TEXT, e.g. h100=gpu:h100", label);
    const char *type = arena_strndup(l->a, label, (size_t)(sign - label));
    for (int32_t i = 0; i < c->n_types; i++) names[i] = c->types[i].name, known |= !strcmp(type, names[i]);
    if (!known)
        return error_set(err, ERR_USAGE, "--label %.200s: the plan has no device type '%.60s'%s", label, type, nearest_name_hint(type, names, hint));
    for (int32_t i = 0; i < l->n_nodes; i++)
        for (int32_t k = 0; k < l->nodes[i].n_parts; k++)
            if (!strcmp(l->nodes[i].part[k].type, type)) l->nodes[i].part[k].label = sign + 1;
    return OK;
}

/* Each text becomes part of a line of the file. */
static enum status check_text(const char *option, const char *text, struct error *err)
{
    for (const char *c = text; c && *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) return error_set(err, ERR_USAGE, "%s: control characters cannot stand in the file", option);
    return OK;
}

static enum status check_texts(const char *option, const struct texts *t, struct error *err)
{
    for (size_t i = 0; i < t->count; i++) TRY(check_text(option, t->items[i], err));
    return OK;
}

static enum status check_request(const struct launch_request *q, struct error *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    const char *const texts[] = {q->program, q->save, q->name, q->time, q->partition, q->account, q->agent, q->image, q->claim, q->folder};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) TRY(check_text("launch", texts[i], err));
    TRY(check_texts("--label", &q->labels, err));
    TRY(check_texts("--env", &q->env, err));
    TRY(check_texts("--directive", &q->directives, err));
    TRY(check_texts("options of run", &q->run, err));
    for (size_t i = 0; i < q->directives.count; i++)
        if (*q->directives.items[i] != '-')
            return error_set(err, ERR_USAGE, "--directive '%.200s': sbatch's options begin with a dash, e.g. --directive=--mem=4G", q->directives.items[i]);
    for (size_t i = 0; i < q->env.count; i++) {
        size_t n = strspn(q->env.items[i], letters);
        if (!n || q->env.items[i][n] != '=' || strchr("0123456789", *q->env.items[i]))
            return error_set(err, ERR_USAGE, "--env %.200s: expected NAME=VALUE, e.g. NCCL_DEBUG=WARN", q->env.items[i]);
    }
    return OK;
}

enum status launch_layout(struct arena *a, const char *path, const struct plan *plan, const struct program *program, const struct launch_request *q,
                          struct launch *out, struct error *err)
{
    *out = (struct launch){.a = a, .q = q, .plan_path = path, .plan_name = program->name, .n_ranks = program->n_devices};
    out->name = q->name ? q->name : program->name;
    TRY(check_request(q, err));
    TRY(check_text("the plan's path", path, err));
    TRY(check_text("the plan's name", program->name, err));
    TRY(find_nodes(plan, program, out, err));
    find_groups(out);
    for (size_t i = 0; i < q->labels.count; i++) TRY(take_label(out, &plan->cluster, q->labels.items[i], err));
    return OK;
}

/* planner/coarse/messages.c - times of the messages between the stages of a pipeline, alone and on links that they share. */
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/coarse/line.h"

/* GPUs of the smaller end of boundary i. */
static int32_t fewest(const struct coarse_line *l, int32_t i)
{
    return (int32_t)units_min(coarse_line_degree(l, i)->n, coarse_line_degree(l, i + 1)->n);
}

/* An activation of measured layers in parts, of which a GPU of the smaller end has several (core/lower/channels.c); -1: it is sent
 * whole. */
static int64_t part_ns(const struct coarse_line *l, int32_t i, int32_t cut)
{
    const struct device_route *r = l->route[i];
    int64_t most = units_max(coarse_line_degree(l, i)->n, coarse_line_degree(l, i + 1)->n);
    if (!l->s->job->model.measured || !r->blocking || !r->own) return -1;
    int64_t rounds = (most + fewest(l, i) - 1) / fewest(l, i);
    return rounds * cost_occupancy_ns(&r->link, l->s->cut_bytes[cut] / most) +
           r->link.latency_ns;
}

/* Replicas whose messages from or to stage i pass a link with so many devices on its smaller side. */
static int64_t replicas_below(const struct coarse_line *l, int32_t i, int32_t devices)
{
    const struct coarse_class *k = &l->q->classes[l->stage[i].of];
    int32_t n = l->by_stage ? coarse_line_degree(l, i)->n : (int32_t)units_max(1, k->n / l->replicas);
    return units_max(1, units_min(l->replicas, units_min(devices, k->n) / n));
}

/* Links that a message of boundary i shares with others; 0: within a node, or over links of its own. */
static int32_t hops_of(const struct coarse_line *l, int32_t i)
{
    const struct device *d = l->q->task->cluster->devices;
    bool far = !l->route[i]->own && d[l->device[i]].node != d[l->device[i + 1]].node;
    return far ? l->route[i]->n_hops : 0;
}

/* What all GPUs of the receiver take of the cut behind stage i. */
static int64_t received_bytes(const struct coarse_line *l, int32_t i, int32_t cut, bool back)
{
    int32_t type = coarse_line_degree(l, back ? i : i + 1)->type;
    return group_copies(l->s, type) * l->s->cut_bytes[cut];
}

/* The message's time on one of them. A link below which lies a part of the smaller end has this part of the message. */
static int64_t hop_ns(const struct coarse_line *l, int32_t i, int32_t cut, bool back, int32_t h)
{
    const struct device_route *r = l->route[i];
    int32_t below = l->q->graph->below[r->hop[h] / 2], few = fewest(l, i);
    int64_t bytes = received_bytes(l, i, cut, back);
    bytes *= units_max(replicas_below(l, i, below), replicas_below(l, i + 1, below));
    double part = below < few ? (double)below / few : 1;
    return (int64_t)(1e9 * part * (double)bytes / r->hop_Bps[h]);
}

int64_t coarse_line_transfer_ns(const struct coarse_line *l, int32_t i, int32_t cut, bool back)
{
    const struct device_route *r = l->route[i];
    int64_t sent = part_ns(l, i, cut);
    if (sent >= 0) return sent;
    sent = cost_occupancy_ns(&r->link, received_bytes(l, i, cut, back) / fewest(l, i));
    for (int32_t h = 0; h < hops_of(l, i); h++) sent = units_max(sent, hop_ns(l, i, cut, back, h));
    return sent + r->link.latency_ns;
}

/* 2 · link + direction of a message's hop. */
static int32_t hop_of(const struct coarse_line *l, int32_t i, bool back, int32_t h)
{
    return l->route[i]->hop[h] ^ (l->device[i] > l->device[i + 1]) ^ back;
}

/* The time that a message of boundary k in the other direction of the pipeline takes on the same link in the same direction. */
static int64_t beside_ns(const struct coarse_line *l, int32_t hop, bool back, int32_t k)
{
    for (int32_t m = 0; m < hops_of(l, k); m++)
        if (hop_of(l, k, !back, m) == hop) return hop_ns(l, k, l->stage[k].last, !back, m);
    return 0;
}

/* The boundary before i whose messages leave their nodes; -1: none. */
static int32_t far_before(const struct coarse_line *l, int32_t i)
{
    int32_t k = i - 1;
    while (k >= 0 && !hops_of(l, k)) k--;
    return k;
}

int64_t coarse_line_links_ns(const struct coarse_line *l, int32_t i, const struct coarse_passage *before,
                        const struct coarse_passage *x)
{
    int64_t most = units_max(x->after_ns, x->back_ns);
    int32_t k = far_before(l, i);
    if (i + 1 == l->n || !hops_of(l, i) || k < 0)
        return units_max(before->after_ns + x->back_ns, x->after_ns + before->back_ns);
    for (int32_t h = 0; h < 2 * hops_of(l, i); h++) {
        bool back = h & 1;
        int64_t other = beside_ns(l, hop_of(l, i, back, h / 2), back, k);
        most = units_max(most, hop_ns(l, i, l->stage[i].last, back, h / 2) + other);
    }
    return most;
}

/* The work of a stage between two of its messages, an activation and a gradient. */
static int64_t between_ns(const struct coarse_line *l, int32_t i)
{
    const struct stage_cost *c = coarse_line_cost(l, i, l->stage[i].first, l->stage[i].last);
    return units_min(c->forward_ns, c->input_ns);
}

int64_t coarse_line_meeting_ns(const struct coarse_line *l, int32_t i, bool back, int64_t alone_ns)
{
    int64_t most = alone_ns;
    int32_t before = far_before(l, i), behind = i + 1;
    while (behind + 1 < l->n && !hops_of(l, behind)) behind++;
    for (int32_t h = 0; h < hops_of(l, i); h++) {
        int32_t hop = hop_of(l, i, back, h);
        int64_t own = hop_ns(l, i, l->stage[i].last, back, h), shared = 0;
        if (before >= 0)
            shared = units_min(own, beside_ns(l, hop, back, before)) - (before == i - 1 ? between_ns(l, i) : 0);
        if (behind + 1 < l->n)
            shared = units_max(shared, units_min(own, beside_ns(l, hop, back, behind)) -
                                           (behind == i + 1 ? between_ns(l, i + 1) : 0));
        most = units_max(most, own + units_max(0, shared) + l->route[i]->link.latency_ns);
    }
    return most;
}

int64_t coarse_line_busy_ns(const struct coarse_line *l, int32_t i, int32_t cut)
{
    if (i < 0 || cut < 0 || i + 1 >= l->n || !l->route[i] || !l->route[i]->blocking) return 0;
    return coarse_line_transfer_ns(l, i, cut, false) + coarse_line_transfer_ns(l, i, cut, true);
}

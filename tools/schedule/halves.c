/* tools/schedule/halves.c - the pipeline of half stages, and a lower bound for every placement of them. */
#include "tools/schedule/halves.h"

#include "core/base/arena.h"
#include "core/base/units.h"

static struct pipeline_link crossing(const struct pipeline *p, int32_t link)
{
    struct pipeline_link x = {{0, 0}, {0, 0}};
    if (p->links) x = p->links[link];
    for (int k = 0; k < 2; k++) x.occupancy_ns[k] *= 2, x.latency_ns[k] *= 2;
    return x;
}

/* From the last device back to the first: activations use the direction of gradients on each link. */
static struct pipeline_link link_back(const struct pipeline *p)
{
    struct pipeline_link x = {{0, 0}, {0, 0}};
    for (int32_t l = 0; l + 1 < p->n_devices; l++) {
        struct pipeline_link y = crossing(p, l);
        for (int k = 0; k < 2; k++) x.latency_ns[k] += y.occupancy_ns[1 - k] + y.latency_ns[1 - k];
    }
    return x;
}

static struct pipeline_link turned(struct pipeline_link x)
{
    return (struct pipeline_link){{x.occupancy_ns[1], x.occupancy_ns[0]},
                                  {x.latency_ns[1], x.latency_ns[0]}};
}

void schedule_halve(struct arena *a, const struct pipeline *p, bool v_shaped, struct pipeline *out)
{
    int32_t n = p->n_devices, stages = 2 * n;
    *out = (struct pipeline){.n_devices = n, .n_stages = stages};
    out->stages = ARENA_ARRAY(a, struct pipeline_stage, (size_t)stages);
    out->links = ARENA_ARRAY(a, struct pipeline_link, (size_t)stages);
    out->devices = p->devices ? ARENA_ARRAY(a, struct pipeline_device, (size_t)n) : NULL;
    for (int32_t v = 0; v < stages; v++) {
        out->stages[v] = p->stages[v < n ? v : v_shaped ? stages - 1 - v : v - n];
        if (v + 1 == stages) break;
        if (v + 1 < n)
            out->links[v] = crossing(p, v);
        else if (v >= n)
            out->links[v] = v_shaped ? turned(crossing(p, stages - 2 - v)) : crossing(p, v - n);
        else if (!v_shaped)
            out->links[v] = link_back(p);
    }
    for (int32_t d = 0; d < n && p->devices; d++) {
        out->devices[d].resident_bytes = 2 * p->devices[d].resident_bytes;
        out->devices[d].limit_bytes = p->devices[d].limit_bytes == PIPELINE_NO_LIMIT
                                          ? PIPELINE_NO_LIMIT
                                          : 2 * p->devices[d].limit_bytes;
    }
}

/* --- the bound, in half nanoseconds --- */

static int64_t back_ns(const struct pipeline_stage *x)
{
    int64_t split = x->input_ns + x->weight_ns;
    return x->fused_ns && x->fused_ns < split ? x->fused_ns : split;
}

static int64_t work(const struct pipeline *p, int32_t d, int32_t m)
{
    return 2 * m * (p->stages[d].forward_ns + back_ns(&p->stages[d]));
}

static int64_t latency(const struct pipeline *p, int32_t link, int direction)
{
    return p->links ? 2 * p->links[link].latency_ns[direction] : 0;
}

/* Halves of F within the device's memory before anything is freed. */
static int64_t halves_held(const struct pipeline *p, int32_t d, int32_t m)
{
    int64_t bytes = p->stages[d].forward_bytes, most = 2 * (int64_t)m;
    if (bytes <= 0 || !p->devices || p->devices[d].limit_bytes == PIPELINE_NO_LIMIT) return most;
    int64_t held = 2 * (p->devices[d].limit_bytes - p->devices[d].resident_bytes) / bytes;
    return held < 0 ? 0 : held < most ? held : most;
}

/* For any first device, some other device starts late. */
static int64_t fill_ns(const struct pipeline *p, int32_t m)
{
    int64_t least = INT64_MAX;
    for (int32_t e = 0; e < p->n_devices; e++) {
        int64_t before = e > 0 ? latency(p, e - 1, 1) : INT64_MAX, most = work(p, e, m);
        if (e + 1 < p->n_devices && latency(p, e, 0) < before) before = latency(p, e, 0);
        for (int32_t d = 0; d < p->n_devices; d++)
            if (d != e) most = units_max(most, work(p, d, m) + p->stages[e].forward_ns + before);
        if (most < least) least = most;
    }
    return least;
}

int64_t schedule_halves_bound(const struct pipeline *p, int32_t microbatches, const char **term)
{
    int64_t first = 0, one = 0, weight = INT64_MAX, bound[3] = {0};
    for (int32_t d = 0; d < p->n_devices; d++) {
        const struct pipeline_stage *x = &p->stages[d];
        int64_t after = back_ns(x) - (x->fused_ns ? x->fused_ns : x->input_ns);
        int64_t input = x->fused_ns && x->fused_ns < x->input_ns ? x->fused_ns : x->input_ns;
        if (after < weight) weight = after;
        first += 2 * x->forward_ns, one += 2 * input;
        for (int direction = 0; direction < 2 && d + 1 < p->n_devices; direction++)
            *(direction ? &one : &first) +=
                p->links ? 2 * (p->links[d].latency_ns[0] < p->links[d].latency_ns[1]
                                    ? p->links[d].latency_ns[0]
                                    : p->links[d].latency_ns[1])
                         : 0;
    }
    for (int32_t d = 0; d < p->n_devices; d++)
        bound[0] =
            units_max(bound[0], first + work(p, d, microbatches) -
                                    halves_held(p, d, microbatches) * p->stages[d].forward_ns);
    bound[1] = fill_ns(p, microbatches);
    bound[2] = first + one + units_max(weight, 0);
    static const char *const name[] = {"first gradient", "fill", "one microbatch"};
    int best = 0;
    for (int k = 1; k < 3; k++)
        if (bound[k] > bound[best]) best = k;
    *term = name[best];
    return bound[best];
}

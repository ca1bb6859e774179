/* Tables are NCCL 2.28.9's (src/graph/tuning.cc, topo.h), microseconds and GB/s as there. Generations: Volta, Ampere,
 * Hopper, Blackwell; columns of nodes: 1, 2, more. */
#include "profiles/nccl.h"

#include "core/base/nearest.h"
#include "profiles/catalogue.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const nccl_algorithm_names[] = {"Tree", "Ring", "NVLS", NULL};
const char *const nccl_protocol_names[] = {"LL", "LL128", "Simple", NULL};

const char *const nccl_versions[] = {"2.28.9", "2.30", NULL}; /* the same constants */

enum { ON_NVLINK, ON_PCIE, ON_NETWORK };
static const double base_us[NCCL_ALGORITHMS][NCCL_PROTOCOLS] = {
    {6.8, 14, 8.4}, {6.6, 14, 8.4}, {0}};
static const double hop_us[3][NCCL_ALGORITHMS][NCCL_PROTOCOLS] = {
    {{.6, 1.25, 4}, {.6, 1.9, 3.4}, {0, 0, 25}},
    {{1, 1.9, 4}, {1, 2.5, 5.7}, {0}},
    {{5, 8.5, 14}, {2.7, 4, 14}, {0, 0, 18}},
};
static const double ll_GBps[4][3] = {
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
/* Of one channel. */
static const double ring_ll128_GBps[4] = {20, 20, 36.7, 40};
static const double tree_ll128_GBps[4][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
static const double tree_GBps[4][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
/* The share of its links that the sums in a switch reach. */
static const double nvls_efficiency[4] = {0, 0, .85, .74};
/* NCCL's own correction of trees by size: powers of two from 64 B. */
enum { CORRECTIONS = 23 };
static const double tree_correction[NCCL_PROTOCOLS][CORRECTIONS] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
};

static int generation(int32_t capability)
{
    return capability >= 100 ? 3 : capability >= 90 ? 2 : capability >= 80 ? 1 : 0;
}

static int log2_floor(int64_t x)
{
    int n = -1;
    for (; x; x /= 2) n++;
    return n;
}

/* --- the model ------------------------------------------------------------------------------- */

static int32_t ring_steps(enum collective_kind kind, int32_t n)
{
    return kind == COLLECTIVE_ALL_REDUCE ? 2 * (n - 1) : kind == COLLECTIVE_BROADCAST ? n : n - 1;
}

/* One channel does nothing but lead: hence channels - 1. Both directions of an all-reduce go at once. */
static double nvls_bandwidth(const struct nccl_system *s, enum collective_kind kind)
{
    double n = s->n_ranks, channels = s->nvls_channels;
    double bus =
        s->nvls_Bps / 1e9 * nvls_efficiency[generation(s->compute_capability)] * (channels - 1);
    if (kind != COLLECTIVE_ALL_REDUCE) return bus * (n - 1) / n;
    return 2 * bus * n / ring_steps(kind, s->n_ranks);
}

/* GB/s of the algorithm: bytes of the user's vector per second. */
static double bandwidth(const struct nccl_system *s, enum collective_kind kind,
                        enum nccl_algorithm a, enum nccl_protocol p)
{
    int g = generation(s->compute_capability), column = s->n_nodes <= 2 ? s->n_nodes - 1 : 2;
    double bus = s->near_Bps, channels = s->channels;
    if (a == NCCL_NVLS) return nvls_bandwidth(s, kind);
    if (s->n_nodes > 1) bus = fmin(bus, s->far_Bps);
    bus /= 1e9;
    double ll = ll_GBps[s->n_nodes == 1 ? g : s->amd_host][column];
    if (a == NCCL_RING) {
        if (p == NCCL_LL) bus = fmin(ll, bus / 2);
        if (p == NCCL_LL128) bus = fmin(.92 * bus, channels * ring_ll128_GBps[g]);
        return bus * s->n_ranks / ring_steps(kind, s->n_ranks);
    }
    bus = fmin(.92 * bus, channels * tree_GBps[g][column]);
    if (p == NCCL_LL) bus = fmin(bus / 3.8, ll);
    if (p == NCCL_LL128)
        bus = fmin(bus * (s->n_nodes == 1 ? 7. / 9 : 120. / 128),
                   channels * tree_ll128_GBps[g][column]);
    return bus / 2;
}

static double ring_latency_us(const struct nccl_system *s, enum collective_kind kind,
                              enum nccl_protocol p, double near, double far)
{
    int32_t steps = ring_steps(kind, s->n_ranks);
    int32_t far_steps = s->n_nodes == 1                 ? 0
                        : kind == COLLECTIVE_ALL_REDUCE ? 2 * (s->n_nodes - 1)
                                                        : s->n_nodes - 1;
    double overhead = s->n_nodes > 1 ? (s->amd_host ? 2 : 1) * (p == NCCL_SIMPLE ? 3 : 1) : 0;
    if (kind == COLLECTIVE_BROADCAST) /* goes through in pieces: one hop's delay counts */
        return hop_us[s->n_nodes > 1 ? ON_NETWORK : s->nvlink ? ON_NVLINK : ON_PCIE][NCCL_RING][p];
    return (steps - far_steps) * fmax(near, overhead) + far_steps * far;
}

static double latency_us(const struct nccl_system *s, enum collective_kind kind,
                         enum nccl_algorithm a, enum nccl_protocol p)
{
    bool alone = s->n_ranks == s->n_nodes; /* one rank a node: nothing hides the network */
    double near = hop_us[s->nvlink ? ON_NVLINK : ON_PCIE][a][p];
    double far =
        hop_us[ON_NETWORK][alone ? NCCL_TREE : a][p] + s->far_s * 1e6 * (p == NCCL_SIMPLE ? 2 : 1);
    if (a == NCCL_NVLS) return near;
    if (a == NCCL_RING) return base_us[a][p] + ring_latency_us(s, kind, p, near, far);
    return base_us[a][p] +
           2 * ((s->n_ranks / s->n_nodes - 1) * near + log2_floor(s->n_nodes) * far);
}

double nccl_seconds(const struct nccl_system *s, enum collective_kind kind, int64_t bytes,
                    enum nccl_algorithm a, enum nccl_protocol p)
{
    if (kind == COLLECTIVE_ALL_TO_ALL || s->n_ranks < 2 || bytes < 0) return NAN;
    if (a == NCCL_TREE && kind != COLLECTIVE_ALL_REDUCE) return NAN;
    if (p == NCCL_LL128 && (!s->nvlink || s->compute_capability < 70)) return NAN;
    if (a == NCCL_NVLS && (p != NCCL_SIMPLE || kind == COLLECTIVE_BROADCAST ||
                           s->nvls_channels < 2 || s->n_nodes > 1))
        return NAN;
    double GBps = bandwidth(s, kind, a, p), us = latency_us(s, kind, a, p);
    int size = log2_floor(bytes / 64);
    if (a == NCCL_TREE && size >= 0 && size < CORRECTIONS) GBps *= tree_correction[p][size];
    if (a == NCCL_RING && p == NCCL_SIMPLE && s->n_nodes > 1 && kind == COLLECTIVE_ALL_REDUCE &&
        bytes / ((int64_t)s->channels * s->n_ranks) >= 64)
        us *= s->compute_capability < 80 ? 1.9 : 1.4;
    return (us + (double)bytes / (1000 * GBps)) * 1e-6;
}

/* Channels, then threads, are dropped while there is too little for each of them. */
static int32_t channels_left(const struct nccl_system *s, const struct nccl_choice *c,
                             int64_t bytes)
{
    int64_t threads = c->protocol == NCCL_LL128 ? 640 : 512;
    int64_t channels = c->algorithm == NCCL_NVLS ? s->nvls_channels : s->channels;
    int64_t each = c->protocol == NCCL_SIMPLE ? 64 : 8;
    if (c->protocol == NCCL_LL && c->algorithm == NCCL_RING) each *= s->n_ranks;
    while (channels > 1 && bytes < channels * threads * each) channels--;
    return (int32_t)channels;
}

enum status nccl_known(const char *version, struct error *err)
{
    char hint[NEAREST_HINT];
    for (int v = 0; nccl_versions[v]; v++)
        if (!strcmp(nccl_versions[v], version)) return OK;
    return error_set(err, ERR_INPUT, "no cost model of NCCL %s; known: 2.28.9, 2.30%s",
                     version, nearest_name_hint(version, nccl_versions, hint));
}

enum status nccl_choose(const char *version, const struct nccl_system *s, enum collective_kind kind,
                        int64_t bytes, struct nccl_choice *out, struct error *err)
{
    TRY(nccl_known(version, err));
    if (kind == COLLECTIVE_ALL_TO_ALL)
        return error_set(err, ERR_INPUT, "NCCL's model does not price all-to-all");
    *out = (struct nccl_choice){NCCL_RING, NCCL_SIMPLE, s->channels, s->n_ranks > 1 ? INFINITY : 0};
    for (int a = 0; a < NCCL_ALGORITHMS && s->n_ranks > 1; a++)
        for (int p = 0; p < NCCL_PROTOCOLS; p++) {
            double t = nccl_seconds(s, kind, bytes, (enum nccl_algorithm)a, (enum nccl_protocol)p);
            if (t < out->seconds) {
                out->algorithm = (enum nccl_algorithm)a, out->protocol = (enum nccl_protocol)p;
                out->seconds = t;
            }
        }
    if (s->n_ranks > 1) out->channels = channels_left(s, out, bytes);
    return OK;
}

/* --- systems --------------------------------------------------------------------------------- */

/* NVLinks of a GPU (NVIDIA's data sheets: total ÷ 50 GB/s a link, 100 of Blackwell) and what NCCL takes one for (topo.h). */
static void links_of(int32_t capability, int32_t *links, double *GBps)
{
    *links = capability >= 90 ? 18 : capability >= 80 ? 12 : 6;
    *GBps = capability >= 100 ? 40.1 : capability >= 90 ? 20.6 : 20;
}

/* NCCL looks for channels at the speeds of a list (search.cc): the fastest first, and the most in all of them together. Rings
 * have at most 16 channels, which are doubled at half the speed when they are found. */
enum { SPEEDS = 12, RINGS_MAX = 16 };
static const double speeds_GBps[3][SPEEDS] = {
    {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4},
    {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
    {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18},
};

static const double *speeds_of(int32_t capability)
{
    return speeds_GBps[capability >= 100 ? 2 : capability >= 90 ? 1 : 0];
}

static void find_rings(struct nccl_system *s, double GBps)
{
    const double *speed = speeds_of(s->compute_capability);
    double best = 0;
    for (int i = 0; i < SPEEDS && speed[i] > 0; i++) {
        int32_t n = (int32_t)fmin(floor(GBps / speed[i]), RINGS_MAX);
        if (n * speed[i] <= best) continue;
        best = n * speed[i];
        s->channels = 2 * n;
    }
    s->near_Bps = best * 1e9;
}

/* A channel for each GPU, which leads it and carries it twice, the others' once; Hopper and later behind a switch. */
static void find_nvls(struct nccl_system *s, double GBps)
{
    const double *speed = speeds_of(s->compute_capability);
    if (s->compute_capability < 90 || s->n_nodes > 1 || s->n_ranks < 2) return;
    for (int i = 0; i < SPEEDS && speed[i] > 0 && !s->nvls_channels; i++)
        if ((s->n_ranks + 1) * speed[i] <= GBps) {
            s->nvls_channels = s->n_ranks;
            s->nvls_Bps = speed[i] * 1e9;
        }
}

/* 16 lanes: 12 GB/s of generation 3, twice as much of each that follows. */
static double pcie_GBps(int32_t capability)
{
    return capability >= 90 ? 48 : capability >= 80 ? 24 : 12;
}

enum status nccl_system_of(const char *catalogue, int32_t n_ranks, int32_t n_nodes,
                           double network_Bps, struct nccl_system *out, struct error *err)
{
    const struct catalogue_device *d = NULL;
    TRY(catalogue_find(catalogue, &d, err));
    if (d->compute_capability < 70)
        return error_set(err, ERR_INPUT, "NCCL's model knows nothing of %s", d->id);
    if (n_ranks < 1 || n_nodes < 1 || n_ranks % n_nodes)
        return error_set(err, ERR_INPUT, "%" PRId32 " ranks do not fill %" PRId32 " nodes evenly",
                         n_ranks, n_nodes);
    if (n_nodes > 1 && !(network_Bps > 0))
        return error_set(err, ERR_INPUT, "%" PRId32 " nodes need a network's bandwidth", n_nodes);
    int32_t cc = d->compute_capability, links = 0, per_node = n_ranks / n_nodes;
    double GBps = 0;
    links_of(cc, &links, &GBps);
    *out = (struct nccl_system){.n_ranks = n_ranks,
                                .n_nodes = n_nodes,
                                .compute_capability = cc,
                                .far_Bps = network_Bps,
                                .nvlink = d->scale_up_Bps.value > 0};
    if (out->nvlink && !strncmp(d->id, "V100-SXM2", 9) && per_node >= 2 && per_node <= 8) {
        out->channels = nccl_cube_mesh_rings(per_node);
        out->near_Bps = out->channels * GBps * 1e9;
    } else if (out->nvlink) {
        find_rings(out, links * GBps);
        find_nvls(out, links * GBps);
    } else { /* one ring, each channel twice: NCCL's least */
        out->channels = 2;
        out->near_Bps = 1e9 * pcie_GBps(cc);
    }
    return OK;
}

/* --- the cube mesh --------------------------------------------------------------------------- */

/* Links between GPUs of a DGX-1V (NVIDIA's white paper WP-08437, figure 4): two quads, diagonals and sides, and the cube's edges. */
static const signed char cube[8][8] = {
    {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
    {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
    {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0},
};

struct packing {
    int32_t n, goal, tries;
    bool relays; /* two GPUs without a link may meet through a third that has one to each */
    signed char left[8][8]; /* of each direction */
    bool seen[8];
};
enum { TRIES_MAX = 2000000 }; /* of the search; the answers need far fewer */

/* Ways of a hop: 0: the direct link; r > 0: relayed by GPU r - 1. Takes it where it is free. */
static bool take(struct packing *p, int32_t from, int32_t to, int32_t via)
{
    int32_t r = via - 1;
    if (!via) return p->left[from][to] && p->left[from][to]--;
    if (!p->relays || cube[from][to] || !p->left[from][r] || !p->left[r][to]) return false;
    p->left[from][r]--, p->left[r][to]--;
    return true;
}

static void give_back(struct packing *p, int32_t from, int32_t to, int32_t via)
{
    if (via)
        p->left[from][via - 1]++, p->left[via - 1][to]++;
    else
        p->left[from][to]++;
}

static bool pack(struct packing *p, int32_t at, int32_t length, int32_t rings);

/* The ring is closed: the next one. */
static bool next_ring(struct packing *p, int32_t rings)
{
    bool seen[8];
    if (rings == p->goal) return true;
    memcpy(seen, p->seen, sizeof seen);
    memset(p->seen, 0, sizeof p->seen);
    p->seen[0] = true;
    bool found = pack(p, 0, 1, rings);
    memcpy(p->seen, seen, sizeof seen);
    return found;
}

/* Extends the ring that stands at `at` with `length` GPUs behind it, until the goal is reached. */
static bool pack(struct packing *p, int32_t at, int32_t length, int32_t rings)
{
    if (++p->tries > TRIES_MAX) return false;
    for (int32_t to = 0; to < p->n; to++) {
        if (length == p->n ? to != 0 : p->seen[to]) continue;
        for (int32_t via = 0; via <= p->n; via++) {
            if (!take(p, at, to, via)) continue;
            p->seen[to] = true;
            if (length == p->n ? next_ring(p, rings + 1) : pack(p, to, length + 1, rings))
                return true;
            p->seen[to] = length == p->n;
            give_back(p, at, to, via);
        }
    }
    return false;
}

int32_t nccl_cube_mesh_rings(int32_t n)
{
    if (n < 2 || n > 8) BUG("%d GPUs of a cube mesh of eight", (int)n);
    for (int relays = 0; relays < 2; relays++)
        for (int32_t goal = 6; goal > 0; goal--) {
            struct packing p = {.n = n, .goal = goal, .relays = relays, .seen = {true}};
            memcpy(p.left, cube, sizeof cube);
            if (pack(&p, 0, 1, 0)) return goal;
        }
    return 0;
}

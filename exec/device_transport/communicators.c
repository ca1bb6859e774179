/* exec/device_transport/communicators.c - communicators made one after the other, and a first word in each.
 *
 * Every rank takes the communicators in the same order and goes on when its own part in one is done, so the lowest one that is not
 * yet complete always has all its ranks on the way to it: no order of arrival can lock. The first word makes the library
 * connect whom it connects late, and shows before time 0 that what is sent is what arrives.
 */
#include "exec/device_transport/internal.h"

#include "exec/clock.h"
#include "exec/device_transport/nccl_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOOK_NS 50000 /* between two looks at what others have to do as well */
#define LOOKS 200     /* among which one is at who is still there */
#define WORD_ELEMENTS 2

static void rest(void) { clock_sleep_until(clock_wall_ns() + LOOK_NS); }

/* While a communicator is made the library may wait for one that has ended until the limit, and say nothing. */
static enum status all_there(struct device_transport *t, const struct communicator *c, int32_t look,
                             struct error *err)
{
    comm_alive(t->o.comm);
    if (look % LOOKS || comm_ended(t->o.comm) < 0) return OK;
    return error_set(err, ERR_RANK, "communicator %s: a peer is gone", c->talk->name);
}

/* ---- ids -------------------------------------------------------------------------------------- */

struct id { /* as ranks tell each other */
    int32_t talk;
    unsigned char bytes[DEVICE_COMM_ID_BYTES];
};

/* Each communicator's id is made by its rank 0, where the others will ask for it. */
static enum status make_mine(struct device_transport *t, struct id *ids, int32_t *n,
                             struct error *err)
{
    *n = 0;
    for (int32_t i = 0; i < t->talks.n; i++) {
        t->communicators[i] = (struct communicator){.talk = &t->talks.talk[i], .rank = -1};
        for (int32_t k = 0; k < t->talks.talk[i].n; k++)
            if (t->talks.talk[i].device[k] == t->o.rank) t->communicators[i].rank = k;
        if (t->communicators[i].rank != 0) continue;
        ids[*n].talk = i;
        TRY(t->comm->make_id(ids[*n].bytes, err));
        ++*n;
    }
    return OK;
}

static enum status exchange_ids(struct device_transport *t, struct id *all, struct error *err)
{
    struct arena *a = arena_new();
    struct id *mine = ARENA_ARRAY(a, struct id, (size_t)t->talks.n + 1);
    int32_t n = 0;
    int64_t bytes = 0;
    nccl_env_set(t->p, t->o.rank);
    enum status status = comm_agree(t->o.comm, make_mine(t, mine, &n, err), err);
    if (status == OK) {
        const struct id *gathered =
            comm_gather(t->o.comm, a, mine, n * (int64_t)sizeof *mine, &bytes);
        for (int64_t i = 0; gathered && i < bytes / (int64_t)sizeof *gathered; i++)
            all[gathered[i].talk] = gathered[i];
        comm_broadcast(t->o.comm, all, t->talks.n * (int64_t)sizeof *all);
    }
    arena_free(a);
    return status;
}

/* ---- a first word ----------------------------------------------------------------------------- */

struct word { /* buffers on the device: what is said, what comes of it */
    float *said, *heard;
    int32_t event;
};

static enum status wait_for(struct device_transport *t, const struct communicator *c, int32_t event,
                            struct error *err)
{
    int64_t until_ns = clock_wall_ns() + t->o.limit_ns;
    bool done = false;
    for (int32_t look = 1;; look++) {
        TRY(t->b->event_done(t->b, event, &done, err));
        if (done) return OK;
        TRY(all_there(t, c, look, err));
        TRY(t->comm->check(t->b, c->handle, err));
        if (clock_wall_ns() > until_ns)
            return error_set(err, ERR_RANK,
                             "communicator %s: its first word did not come in %.0f s",
                             c->talk->name, (double)t->o.limit_ns / 1e9);
        rest();
    }
}

/* From each to each: two floats apiece, at their ranks' places in heard. */
static enum status say_in_pairs(struct device_transport *t, const struct communicator *c,
                                const struct word *w, struct error *err)
{
    enum status status = t->comm->group_begin(t->b, err);
    if (status != OK) return status;
    bool one_way = !c->talk->pairs; /* a ordered channel group's: from 0 to 1 */
    for (int32_t k = 0; k < c->talk->n && status == OK; k++) {
        bool sends = one_way ? c->rank == 0 && k == 1 : k != c->rank,
             receives = one_way ? c->rank == 1 && k == 0 : k != c->rank;
        if (sends)
            status = t->comm->send(t->b, c->handle, t->collective, w->said, WORD_ELEMENTS,
                                   DTYPE_fp32, k, err);
        if (receives && status == OK)
            status = t->comm->receive(t->b, c->handle, t->collective, w->heard + k * WORD_ELEMENTS,
                                      WORD_ELEMENTS, DTYPE_fp32, k, err);
    }
    struct error first = {.code = OK};
    enum status ended = t->comm->group_end(t->b, status == OK ? err : &first);
    return status == OK ? ended : status;
}

/* Sums to heard[0 … 1]; the rest is there to have been asked for. */
static enum status say_together(struct device_transport *t, const struct communicator *c,
                                const struct word *w, struct error *err)
{
    void *x = c->handle;
    int32_t s = t->collective, n = c->talk->n;
    float *room = w->heard + WORD_ELEMENTS * (n + 1);
    if (c->talk->gathers) {
        TRY(t->comm->all_gather(t->b, x, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, err));
        TRY(t->comm->reduce_scatter(t->b, x, s, room, w->heard, WORD_ELEMENTS, DTYPE_fp32, 0, err));
    }
    for (int32_t k = 0; c->talk->roots && k < n; k++) {
        TRY(t->comm->broadcast(t->b, x, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, k, err));
        TRY(t->comm->reduce(t->b, x, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, 0, k, err));
    }
    return t->comm->all_reduce(t->b, x, s, w->said, w->heard, WORD_ELEMENTS, DTYPE_fp32, 0, err);
}

static enum status compare(const struct communicator *c, const float *heard, float wanted,
                           int32_t from, struct error *err)
{
    for (int i = 0; i < WORD_ELEMENTS; i++)
        if (heard[i] != wanted)
            return error_set(err, ERR_RANK,
                             "communicator %s: rank %" PRId32
                             " of it got %g where %g was sent by %s%" PRId32,
                             c->talk->name, c->rank, (double)heard[i], (double)wanted,
                             from < 0 ? "all " : "rank ", from < 0 ? c->talk->n : from);
    return OK;
}

static enum status check_words(struct device_transport *t, const struct communicator *c,
                               const struct word *w, bool together, struct error *err)
{
    struct arena *a = arena_new();
    int32_t n = c->talk->n;
    float *heard = ARENA_ARRAY(a, float, (size_t)n *WORD_ELEMENTS);
    enum status status =
        t->b->download(t->b, heard, w->heard, n * WORD_ELEMENTS * (int64_t)sizeof *heard, err);
    if (status == OK && together)
        status = compare(c, heard, (float)n * (float)(n + 1) / 2, -1, err);
    for (int32_t k = 0; !together && status == OK && k < n; k++)
        if (c->talk->pairs ? k != c->rank : c->rank == 1 && k == 0)
            status = compare(c, heard + k * WORD_ELEMENTS, (float)(k + 1), k, err);
    arena_free(a);
    return status;
}

static bool is_channel_group(const struct device_transport *t, int32_t talk)
{
    for (int32_t i = 0; i < t->talks.n_channel_groups; i++)
        if (t->talks.channel_group[i].talk == talk) return true;
    return false;
}

static enum status first_word(struct device_transport *t, int32_t talk, const struct word *w,
                              struct error *err)
{
    const struct communicator *c = &t->communicators[talk];
    float said[WORD_ELEMENTS] = {(float)(c->rank + 1), (float)(c->rank + 1)};
    TRY(t->b->upload(t->b, w->said, said, sizeof said, err));
    for (int together = 0; together < 2; together++) {
        bool channel_group = is_channel_group(t, talk);
        if (together ? channel_group : !channel_group && !c->talk->pairs) continue;
        TRY(together ? say_together(t, c, w, err) : say_in_pairs(t, c, w, err));
        TRY(t->b->event_record(t->b, w->event, t->collective, err));
        TRY(wait_for(t, c, w->event, err));
        TRY(check_words(t, c, w, together, err));
    }
    return OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

static enum status begin(struct device_transport *t, struct communicator *c, const struct id *id,
                         struct error *err)
{
    const struct communicator_options o = {.id = id->bytes,
                                           .n = c->talk->n,
                                           .rank = c->rank,
                                           .max_ctas = c->talk->max_ctas,
                                           .net_name = c->talk->net_name,
                                           .limit_ns = t->o.limit_ns,
                                           .name = c->talk->name};
    return c->rank < 0 ? OK : t->comm->open(t->b, &o, &c->handle, err);
}

static enum status join(struct device_transport *t, int32_t talk, const struct word *w,
                        struct error *err)
{
    const struct communicator *c = &t->communicators[talk];
    bool all = false;
    if (c->rank < 0) return OK;
    for (int32_t look = 1;; look++) {
        TRY(t->comm->joined(t->b, c->handle, &all, err));
        if (all) break;
        TRY(all_there(t, c, look, err));
        rest();
    }
    return first_word(t, talk, w, err);
}

static enum status make_room(struct device_transport *t, struct word *w, struct error *err)
{
    int32_t most = 0;
    void *said;
    for (int32_t i = 0; i < t->talks.n; i++)
        if (t->communicators[i].rank >= 0 && t->talks.talk[i].n > most) most = t->talks.talk[i].n;
    if (!most) return OK;
    TRY(t->b->event_make(t->b, false, &w->event, err));
    TRY(t->b->allocate(t->b, (int64_t)sizeof(float) * WORD_ELEMENTS * (2 * most + 4), &said, err));
    w->said = said, w->heard = w->said + WORD_ELEMENTS;
    return OK;
}

/* Nobody waits in a communicator for one that could not even begin: all agree before. Who fails later gives up what it has, which its
 * peers' own looks tell them, and everybody hears of it at the next agreement. */
static enum status open_all(struct device_transport *t, const struct id *ids, struct word *w,
                            struct error *err)
{
    struct error own;
    if (!err) err = &own;
    enum status mine = make_room(t, w, err);
    for (int32_t i = 0; i < t->talks.n; i++) {
        comm_phase(t->o.comm, t->talks.talk[i].phase);
        if (mine == OK) mine = begin(t, &t->communicators[i], &ids[i], err);
        TRY(comm_agree(t->o.comm, mine, err));
        mine = join(t, i, w, err);
        if (mine == OK) continue;
        device_peer_lost(t, err);
        device_transport_give_up(t);
    }
    return comm_agree(t->o.comm, mine, err);
}

enum status device_communicators_open(struct device_transport *t, struct error *err)
{
    struct id *ids = ARENA_ARRAY(t->a, struct id, (size_t)t->talks.n + 1);
    struct word w = {NULL, NULL, -1};
    if (!t->talks.n) return OK; /* on all ranks */
    TRY(exchange_ids(t, ids, err));
    enum status status = open_all(t, ids, &w, err);
    if (status != OK) device_transport_give_up(t);
    comm_phase(t->o.comm, "");
    if (w.said) t->b->release(t->b, w.said);
    return status;
}

void device_communicators_give_up(struct device_transport *t, int32_t first)
{
    void **all = ARENA_ARRAY(t->a, void *, (size_t)t->talks.n + 1);
    int32_t n = 0;
    for (int32_t i = first; i < t->talks.n; i++)
        if (t->communicators[i].handle) all[n++] = t->communicators[i].handle;
    if (n) t->comm->give_up(t->b, all, n);
}

/* Who does not part in time from one parts from none: the others are cut off. */
void device_communicators_close(struct device_transport *t)
{
    int64_t until_ns = clock_wall_ns() + t->o.limit_ns;
    bool late = false;
    for (int32_t i = 0; i < t->talks.n; i++) {
        if (!t->communicators[i].handle) continue;
        if (!late && clock_wall_ns() > until_ns) device_communicators_give_up(t, i), late = true;
        t->comm->close(t->b, t->communicators[i].handle);
        t->communicators[i].handle = NULL;
    }
}

/* exec/device_transport/communicators.c - creates communicators one after the other and sends a first message in
 * each.
 *
 * Every rank visits the communicators in the same order and goes on when its own part in one is done, so the lowest
 * incomplete one always has all its ranks on the way to it: no order of arrival can deadlock. The first message makes
 * the library create its lazy connections, and verifies before time 0 that received data equals sent data.
 */
#include "exec/device_transport/communicators.h"

#include "exec/clock.h"
#include "exec/device_transport/nccl_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOOK_NS 50000 /* between two polls */
#define LOOKS 200     /* polls per look at the board */
#define WORD_ELEMENTS 2

static void rest(void) { clock_sleep_until(clock_wall_ns() + LOOK_NS); }

/* While a communicator is created, the library may wait for a dead rank until the limit without an error. */
static enum status all_there(struct communicators *c, const struct communicator *x, int32_t look,
                             struct error *err)
{
    comm_alive(c->o->comm);
    if (look % LOOKS || comm_ended(c->o->comm) < 0) return OK;
    return error_set(err, ERR_RANK, "communicator %s: a peer is gone", x->talk->name);
}

/* ---- ids -------------------------------------------------------------------------------------- */

struct id { /* as exchanged between ranks */
    int32_t talk;
    unsigned char bytes[DEVICE_COMM_ID_BYTES];
};

/* Rank 0 of each communicator creates its id. */
static enum status make_mine(struct communicators *c, struct id *ids, int32_t *n, struct error *err)
{
    *n = 0;
    for (int32_t i = 0; i < c->talks->n; i++) {
        c->at[i] = (struct communicator){.talk = &c->talks->talk[i], .rank = -1};
        for (int32_t k = 0; k < c->talks->talk[i].n; k++)
            if (c->talks->talk[i].device[k] == c->o->rank) c->at[i].rank = k;
        if (c->at[i].rank != 0) continue;
        ids[*n].talk = i;
        TRY(c->library->make_id(ids[*n].bytes, err));
        ++*n;
    }
    return OK;
}

static enum status exchange_ids(struct communicators *c, struct id *all, struct error *err)
{
    struct arena *a = arena_new();
    struct id *mine = ARENA_ARRAY(a, struct id, (size_t)c->talks->n + 1);
    int32_t n = 0;
    int64_t bytes = 0;
    nccl_env_set(c->o->p, c->o->rank);
    enum status status = comm_agree(c->o->comm, make_mine(c, mine, &n, err), err);
    if (status == OK) {
        const struct id *gathered =
            comm_gather(c->o->comm, a, mine, n * (int64_t)sizeof *mine, &bytes);
        for (int64_t i = 0; gathered && i < bytes / (int64_t)sizeof *gathered; i++)
            all[gathered[i].talk] = gathered[i];
        comm_broadcast(c->o->comm, all, c->talks->n * (int64_t)sizeof *all);
    }
    arena_free(a);
    return status;
}

/* ---- a first word ----------------------------------------------------------------------------- */

struct word { /* device buffers: sent and received */
    float *said, *heard;
    int32_t event;
};

static enum status wait_for(struct communicators *c, const struct communicator *x, int32_t event,
                            struct error *err)
{
    int64_t until_ns = clock_wall_ns() + c->o->limit_ns;
    bool done = false;
    for (int32_t look = 1;; look++) {
        TRY(c->b->event_done(c->b, event, &done, err));
        if (done) return OK;
        TRY(all_there(c, x, look, err));
        TRY(c->library->check(c->b, x->handle, err));
        if (clock_wall_ns() > until_ns)
            return error_set(err, ERR_RANK,
                             "communicator %s: its first message did not arrive within %.0f s",
                             x->talk->name, (double)c->o->limit_ns / 1e9);
        rest();
    }
}

/* From each to each: two floats, at the sender's rank in `heard`. */
static enum status check_in_pairs(struct communicators *c, const struct communicator *x,
                                  const struct word *w, struct error *err)
{
    enum status status = c->library->group_begin(c->b, err);
    if (status != OK) return status;
    bool one_direction = !x->talk->pairs; /* an ordered channel group: from 0 to 1 */
    for (int32_t k = 0; k < x->talk->n && status == OK; k++) {
        bool sends = one_direction ? x->rank == 0 && k == 1 : k != x->rank,
             receives = one_direction ? x->rank == 1 && k == 0 : k != x->rank;
        if (sends)
            status = c->library->send(c->b, x->handle, c->stream, w->said, WORD_ELEMENTS,
                                      DTYPE_fp32, k, err);
        if (receives && status == OK)
            status = c->library->receive(c->b, x->handle, c->stream, w->heard + k * WORD_ELEMENTS,
                                         WORD_ELEMENTS, DTYPE_fp32, k, err);
    }
    struct error first = {.code = OK};
    enum status ended = c->library->group_end(c->b, status == OK ? err : &first);
    return status == OK ? ended : status;
}

/* Sums into heard[0 … 1]; the other calls are made only to create connections. */
static enum status check_together(struct communicators *c, const struct communicator *x,
                                  const struct word *w, struct error *err)
{
    void *h = x->handle;
    int32_t s = c->stream, n = x->talk->n;
    float *room = w->heard + WORD_ELEMENTS * (n + 1);
    if (x->talk->gathers) {
        TRY(c->library->all_gather(c->b, h, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, err));
        TRY(c->library->reduce_scatter(c->b, h, s, room, w->heard, WORD_ELEMENTS, DTYPE_fp32, 0,
                                       err));
    }
    for (int32_t k = 0; x->talk->roots && k < n; k++) {
        TRY(c->library->broadcast(c->b, h, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, k, err));
        TRY(c->library->reduce(c->b, h, s, w->said, room, WORD_ELEMENTS, DTYPE_fp32, 0, k, err));
    }
    return c->library->all_reduce(c->b, h, s, w->said, w->heard, WORD_ELEMENTS, DTYPE_fp32, 0, err);
}

static enum status compare(const struct communicator *x, const float *heard, float wanted,
                           int32_t from, struct error *err)
{
    for (int i = 0; i < WORD_ELEMENTS; i++)
        if (heard[i] != wanted)
            return error_set(err, ERR_RANK,
                             "communicator %s: rank %" PRId32
                             " received %g instead of %g from %s%" PRId32,
                             x->talk->name, x->rank, (double)heard[i], (double)wanted,
                             from < 0 ? "all " : "rank ", from < 0 ? x->talk->n : from);
    return OK;
}

static enum status check_words(struct communicators *c, const struct communicator *x,
                               const struct word *w, bool together, struct error *err)
{
    struct arena *a = arena_new();
    int32_t n = x->talk->n;
    float *heard = ARENA_ARRAY(a, float, (size_t)n *WORD_ELEMENTS);
    enum status status =
        c->b->download(c->b, heard, w->heard, n * WORD_ELEMENTS * (int64_t)sizeof *heard, err);
    if (status == OK && together)
        status = compare(x, heard, (float)n * (float)(n + 1) / 2, -1, err);
    for (int32_t k = 0; !together && status == OK && k < n; k++)
        if (x->talk->pairs ? k != x->rank : x->rank == 1 && k == 0)
            status = compare(x, heard + k * WORD_ELEMENTS, (float)(k + 1), k, err);
    arena_free(a);
    return status;
}

static bool is_channel_group(const struct communicators *c, int32_t talk)
{
    for (int32_t i = 0; i < c->talks->n_channel_groups; i++)
        if (c->talks->channel_group[i].talk == talk) return true;
    return false;
}

static enum status first_word(struct communicators *c, int32_t talk, const struct word *w,
                              struct error *err)
{
    const struct communicator *x = &c->at[talk];
    float said[WORD_ELEMENTS] = {(float)(x->rank + 1), (float)(x->rank + 1)};
    TRY(c->b->upload(c->b, w->said, said, sizeof said, err));
    for (int together = 0; together < 2; together++) {
        bool channel_group = is_channel_group(c, talk);
        if (together ? channel_group : !channel_group && !x->talk->pairs) continue;
        TRY(together ? check_together(c, x, w, err) : check_in_pairs(c, x, w, err));
        TRY(c->b->event_record(c->b, w->event, c->stream, err));
        TRY(wait_for(c, x, w->event, err));
        TRY(check_words(c, x, w, together, err));
    }
    return OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

static enum status begin(struct communicators *c, struct communicator *x, const struct id *id,
                         struct error *err)
{
    const struct communicator_options o = {.id = id->bytes,
                                           .n = x->talk->n,
                                           .rank = x->rank,
                                           .max_ctas = x->talk->max_ctas,
                                           .net_name = x->talk->net_name,
                                           .limit_ns = c->o->limit_ns,
                                           .name = x->talk->name};
    return x->rank < 0 ? OK : c->library->open(c->b, &o, &x->handle, err);
}

static enum status join(struct communicators *c, int32_t talk, const struct word *w,
                        struct error *err)
{
    const struct communicator *x = &c->at[talk];
    bool all = false;
    if (x->rank < 0) return OK;
    for (int32_t look = 1;; look++) {
        TRY(c->library->joined(c->b, x->handle, &all, err));
        if (all) break;
        TRY(all_there(c, x, look, err));
        rest();
    }
    return first_word(c, talk, w, err);
}

static enum status make_room(struct communicators *c, struct word *w, struct error *err)
{
    int32_t most = 0;
    void *said;
    for (int32_t i = 0; i < c->talks->n; i++)
        if (c->at[i].rank >= 0 && c->talks->talk[i].n > most) most = c->talks->talk[i].n;
    if (!most) return OK;
    TRY(c->b->event_make(c->b, false, &w->event, err));
    TRY(c->b->allocate(c->b, (int64_t)sizeof(float) * WORD_ELEMENTS * (2 * most + 4), &said, err));
    w->said = said, w->heard = w->said + WORD_ELEMENTS;
    return OK;
}

/* All ranks agree before, so that no rank waits in a communicator for one that could not begin. A rank that fails
 * later aborts its communicators; its peers notice by their polls, and all ranks learn it at the next agreement. */
static enum status open_all(struct communicators *c, const struct id *ids, struct word *w,
                            struct error *err)
{
    struct error own;
    if (!err) err = &own;
    enum status mine = make_room(c, w, err);
    for (int32_t i = 0; i < c->talks->n; i++) {
        comm_phase(c->o->comm, c->talks->talk[i].phase);
        if (mine == OK) mine = begin(c, &c->at[i], &ids[i], err);
        TRY(comm_agree(c->o->comm, mine, err));
        mine = join(c, i, w, err);
        if (mine == OK) continue;
        communicators_peer_lost(c, err);
        communicators_give_up(c, NULL);
    }
    return comm_agree(c->o->comm, mine, err);
}

void communicators_init(struct communicators *c, struct arena *a,
                        const struct device_transport_options *o, const struct talks *talks)
{
    *c = (struct communicators){.a = a, .o = o, .b = o->backend, .talks = talks, .stream = -1};
    c->at = ARENA_ARRAY(a, struct communicator, (size_t)talks->n + 1);
}

enum status communicators_open(struct communicators *c, const struct device_comm *library,
                               int32_t stream, struct error *err)
{
    c->library = library, c->stream = stream;
    struct id *ids = ARENA_ARRAY(c->a, struct id, (size_t)c->talks->n + 1);
    struct word w = {NULL, NULL, -1};
    if (!c->talks->n) return OK; /* on all ranks */
    TRY(exchange_ids(c, ids, err));
    enum status status = open_all(c, ids, &w, err);
    if (status != OK) communicators_give_up(c, NULL);
    comm_phase(c->o->comm, "");
    if (w.said) c->b->release(c->b, w.said);
    return status;
}

/* ---- watched and given up --------------------------------------------------------------------- */

enum status communicators_live(const struct communicators *c, struct error *err)
{
    if (!c->given_up) return OK;
    if (c->why.code != OK) return error_set(err, c->why.code, "%s", c->why.text);
    return error_set(err, ERR_RANK, "messages between devices were aborted");
}

void communicators_check(struct communicators *c, struct error *why)
{
    for (int32_t i = 0; i < c->talks->n && why->code == OK; i++)
        if (c->at[i].handle) (void)c->library->check(c->b, c->at[i].handle, why);
}

void communicators_peer_lost(const struct communicators *c, struct error *err)
{
    char who[160], said[sizeof err->text];
    if (err->code != ERR_RANK) return;
    if (comm_lost(c->o->comm, c->o->limit_ns / 2, who, sizeof who) < 0) return;
    snprintf(said, sizeof said, "%s", err->text);
    error_set(err, ERR_RANK, "%s; %s", said, who);
}

/* Aborts the open ones from `first` on, together. */
static void give_up_from(struct communicators *c, int32_t first)
{
    void **all = ARENA_ARRAY(c->a, void *, (size_t)c->talks->n + 1);
    int32_t n = 0;
    for (int32_t i = first; i < c->talks->n; i++)
        if (c->at[i].handle) all[n++] = c->at[i].handle;
    if (n) c->library->give_up(c->b, all, n);
}

void communicators_give_up(struct communicators *c, const struct error *why)
{
    if (c->given_up) return;
    c->given_up = true;
    if (why) c->why = *why;
    give_up_from(c, 0);
}

/* If one communicator does not close in time, all remaining ones are aborted. */
void communicators_close(struct communicators *c)
{
    int64_t until_ns = clock_wall_ns() + c->o->limit_ns;
    bool late = false;
    for (int32_t i = 0; i < c->talks->n; i++) {
        if (!c->at[i].handle) continue;
        if (!late && clock_wall_ns() > until_ns) give_up_from(c, i), late = true;
        c->library->close(c->b, c->at[i].handle);
        c->at[i].handle = NULL;
    }
}

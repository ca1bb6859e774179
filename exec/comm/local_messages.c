/* exec/comm/local_messages.c - messages over byte pipes between two ranks.
 *
 * A message is a header (tag, bytes) and its payload; messages of one pipe are consecutive. The receiver stores
 * messages without a posted receive aside, so that no message waits for one with another tag. A pipe moves when
 * either end polls; the end that moved bytes rings the other end's bell.
 */
#include "exec/comm/local_internal.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <string.h>

/* ---- bytes ------------------------------------------------------------------------------------ */

static void pass(unsigned char *buffer_ring, uint64_t at, void *p, size_t bytes, bool in)
{
    size_t first = (size_t)(at % LOCAL_PIPE_BYTES), n = LOCAL_PIPE_BYTES - first;
    unsigned char *other = p;
    if (n > bytes) n = bytes;
    memcpy(in ? buffer_ring + first : other, in ? other : buffer_ring + first, n);
    if (bytes > n) memcpy(in ? buffer_ring : other + n, in ? other + n : buffer_ring, bytes - n);
}

static int64_t put(struct comm *c, int32_t to, const void *p, int64_t bytes)
{
    struct pipe *x = &local_of(c)->room->pipe[c->rank * c->size + to];
    uint64_t at = atomic_load_explicit(&x->put, memory_order_relaxed);
    int64_t room = LOCAL_PIPE_BYTES - (int64_t)(at - atomic_load(&x->taken));
    if (bytes > room) bytes = room;
    if (bytes <= 0) return 0;
    pass(x->bytes, at, (void *)(uintptr_t)p, (size_t)bytes, true);
    atomic_store(&x->put, at + (uint64_t)bytes);
    comm_ring(c, to);
    return bytes;
}

static int64_t take(struct comm *c, int32_t from, void *p, int64_t bytes)
{
    struct pipe *x = &local_of(c)->room->pipe[from * c->size + c->rank];
    uint64_t at = atomic_load_explicit(&x->taken, memory_order_relaxed);
    int64_t there = (int64_t)(atomic_load(&x->put) - at);
    if (bytes > there) bytes = there;
    if (bytes <= 0) return 0;
    pass(x->bytes, at, p, (size_t)bytes, false);
    atomic_store(&x->taken, at + (uint64_t)bytes);
    comm_ring(c, from);
    return bytes;
}

/* ---- messages --------------------------------------------------------------------------------- */

static void notify(struct local *x, struct comm_ended what)
{
    if (x->ended_first == x->ended_n) x->ended_first = x->ended_n = 0;
    x->ended = arena_grow(x->a, x->ended, x->ended_n, &x->ended_capacity, sizeof *x->ended);
    x->ended[x->ended_n++] = what;
}

/* true: some bytes moved */
static bool push(struct comm *c, int32_t to)
{
    struct local *x = local_of(c);
    struct peer *p = &x->peers[to];
    const int64_t head = sizeof(struct header);
    bool any = false;
    for (struct out *m; (m = p->first);) {
        int64_t n = m->done < head
                        ? put(c, to, (const char *)&m->header + m->done, head - m->done)
                        : put(c, to, m->data + (m->done - head), head + m->header.bytes - m->done);
        m->done += n;
        any |= n > 0;
        if (m->done < head || m->done < head + m->header.bytes) {
            if (n == 0) return any;
            continue;
        }
        if (m->notified) notify(x, m->what);
        p->first = m->next;
        if (!p->first) p->last = &p->first;
        m->next = x->spare_out;
        x->spare_out = m;
    }
    return any;
}

void local_drop(struct comm *c, int32_t to)
{
    struct local *x = local_of(c);
    struct peer *p = &x->peers[to];
    for (struct out *m; (m = p->first);) {
        if (m->notified) notify(x, m->what);
        p->first = m->next;
        m->next = x->spare_out;
        x->spare_out = m;
    }
    p->last = &p->first;
}

static struct aside *new_aside(struct local *x, int64_t bytes)
{
    for (struct aside **at = &x->spare_aside; *at; at = &(*at)->next)
        if ((*at)->capacity >= bytes) {
            struct aside *found = *at;
            *at = found->next;
            return found;
        }
    struct aside *made = ARENA_ARRAY(x->a, struct aside, 1);
    made->data = ARENA_ARRAY(x->a, unsigned char, (size_t)bytes + 1);
    made->capacity = bytes;
    return made;
}

static void receive_over(struct local *x, struct posted *r)
{
    if (r->notified) notify(x, r->what);
    if (r->over) *r->over = true;
    r->next = x->spare_posted;
    x->spare_posted = r;
}

/* Removes the first receive with this tag from the list; NULL: none. */
static struct posted *find_posted(struct peer *p, int32_t tag)
{
    for (struct posted **at = &p->posted; *at; at = &(*at)->next) {
        struct posted *r = *at;
        if (r->tag != tag) continue;
        *at = r->next;
        if (p->posted_last == &r->next) p->posted_last = at;
        return r;
    }
    return NULL;
}

static void check_length(const struct header *h, const struct posted *r)
{
    if (h->bytes != r->bytes)
        BUG("a message of %" PRId64 " bytes where %" PRId64 " were asked for", h->bytes, r->bytes);
}

static void message_begins(struct local *x, struct peer *p)
{
    p->into = find_posted(p, p->coming.tag);
    if (p->into) {
        check_length(&p->coming, p->into);
        return;
    }
    p->arriving = new_aside(x, p->coming.bytes);
    p->arriving->header = p->coming;
}

static void message_over(struct local *x, struct peer *p)
{
    if (p->into) {
        receive_over(x, p->into);
    } else { /* its receive may have been posted meanwhile */
        struct posted *r = find_posted(p, p->coming.tag);
        p->arriving->next = NULL;
        if (r) {
            check_length(&p->coming, r);
            memcpy(r->data, p->arriving->data, (size_t)p->coming.bytes);
            receive_over(x, r);
            p->arriving->next = x->spare_aside;
            x->spare_aside = p->arriving;
        } else {
            *p->aside_last = p->arriving;
            p->aside_last = &p->arriving->next;
        }
    }
    p->into = NULL;
    p->arriving = NULL;
    p->done = 0;
}

static bool pull(struct comm *c, int32_t from)
{
    struct local *x = local_of(c);
    struct peer *p = &x->peers[from];
    const int64_t head = sizeof(struct header);
    bool any = false;
    for (;;) {
        int64_t n;
        if (p->done < head) {
            n = take(c, from, (char *)&p->coming + p->done, head - p->done);
            p->done += n;
            if (p->done == head) message_begins(x, p);
        } else {
            unsigned char *to = p->into ? p->into->data : p->arriving->data;
            n = take(c, from, to + (p->done - head), head + p->coming.bytes - p->done);
            p->done += n;
        }
        any |= n > 0;
        if (p->done >= head && p->done == head + p->coming.bytes)
            message_over(x, p);
        else if (n == 0)
            return any;
    }
}

bool local_progress(struct comm *c)
{
    bool any = false;
    for (int32_t i = 0; i < c->size; i++) {
        any |= push(c, i);
        any |= pull(c, i);
    }
    return any;
}

void local_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                const struct comm_ended *what)
{
    struct local *x = local_of(c);
    struct out *m = x->spare_out;
    if (m)
        x->spare_out = m->next;
    else
        m = ARENA_ARRAY(x->a, struct out, 1);
    *m = (struct out){.header = {.tag = tag, .bytes = bytes}, .data = p, .notified = what != NULL};
    if (what) m->what = *what;
    m->next = NULL;
    *x->peers[to].last = m;
    x->peers[to].last = &m->next;
    if (comm_gone(c, to))
        local_drop(c, to);
    else
        push(c, to);
}

void local_receive(struct comm *c, void *to, int64_t bytes, int32_t from, int32_t tag,
                   const struct comm_ended *what, bool *over)
{
    struct local *x = local_of(c);
    struct peer *p = &x->peers[from];
    struct posted *r = x->spare_posted;
    if (r)
        x->spare_posted = r->next;
    else
        r = ARENA_ARRAY(x->a, struct posted, 1);
    *r = (struct posted){
        .tag = tag, .data = to, .bytes = bytes, .notified = what != NULL, .over = over};
    if (what) r->what = *what;
    for (struct aside **at = &p->aside; *at; at = &(*at)->next) {
        struct aside *m = *at;
        if (m->header.tag != tag) continue;
        check_length(&m->header, r);
        if (bytes) memcpy(to, m->data, (size_t)bytes);
        *at = m->next;
        if (p->aside_last == &m->next) p->aside_last = at;
        m->next = x->spare_aside;
        x->spare_aside = m;
        receive_over(x, r);
        return;
    }
    *p->posted_last = r;
    p->posted_last = &r->next;
}

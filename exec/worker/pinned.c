#include "exec/worker/pinned.h"

#include "core/base/log.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/inputs.h"
#include "exec/worker/rank.h"
#include "exec/worker/staging.h"
#include "exec/worker/transports.h"

enum { ALIGN = 64 };
static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Bytes of each part. */
struct parts_bytes {
    int64_t channels, scratch, staging, async_issue, inputs;
};

static void add_groups(const struct program *p, const struct transports *t, int32_t device,
                       struct parts_bytes *out)
{
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t i = 0; i < p->collectives[g].n_members; i++) {
            const struct collective_member *m = &p->collectives[g].members[i];
            const struct program_stage *s = &p->stages[m->stage];
            if (s->device != device || t->group[g] != TRANSPORT_HOST) continue;
            int64_t staging = staging_bytes(p, g, i),
                    scratch = align(program_collective_staging_bytes(&p->collectives[g], m, s));
            if (staging > out->staging) out->staging = staging;
            if (scratch > out->scratch) out->scratch = scratch;
        }
}

static struct parts_bytes bytes_of(const struct rank *r, const struct transports *t, int32_t device)
{
    struct parts_bytes x = {.channels = transports_pinned_bytes(t, r->p, device),
                            .async_issue =
                                align(async_issue_pinned_bytes(r->p, r->o->keep_trace, device)),
                            .inputs = inputs_pinned_bytes(r->p, device)};
    add_groups(r->p, t, device, &x);
    return x;
}

static int64_t all(const struct parts_bytes *x)
{
    return x->channels + x->scratch + x->staging + x->async_issue + x->inputs;
}

int64_t pinned_bytes(const struct rank *r, const struct transports *t, int32_t device)
{
    struct parts_bytes x = bytes_of(r, t, device);
    return all(&x);
}

enum status pinned_open(struct pinned *x, struct rank *r, const struct transports *t,
                        struct error *err)
{
    struct parts_bytes bytes = bytes_of(r, t, r->index);
    void *memory = NULL;
    if (all(&bytes)) TRY(r->backend.allocate_pinned(&r->backend, all(&bytes), &memory, err));
    char *at = x->all = memory;
    log_debug("%s: %.1f MiB of pinned memory", rank_device(r)->name,
              (double)all(&bytes) / (1 << 20));
    x->channels = at, at += bytes.channels;
    x->scratch = at, at += bytes.scratch;
    x->staging = at, at += bytes.staging;
    x->async_issue = at, at += bytes.async_issue;
    x->inputs = at;
    return OK;
}

void pinned_close(struct pinned *x, struct rank *r)
{
    if (x->all) r->backend.release_pinned(&r->backend, x->all);
    *x = (struct pinned){0};
}

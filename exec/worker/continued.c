#include "exec/worker/continued.h"

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/rank.h"

struct found {
    struct arena *a;
    const char *folder;
    int64_t step; /* 0: no checkpoint */
};

static enum status find(void *owner, struct error *err)
{
    struct found *f = owner;
    struct checkpoint c;
    bool found;
    checkpoint_clear(f->folder);
    TRY(checkpoint_find_any(f->a, f->folder, &found, &c, err));
    f->step = found ? c.step : 0;
    return OK;
}

enum status continued_from(struct rank *r, struct run_options *own, bool *complete, int64_t *step, struct error *err)
{
    struct found f = {.a = arena_new(), .folder = r->o->save};
    enum status status = comm_at_root(r->comm, find, &f, err);
    if (status == OK) comm_broadcast(r->comm, &f.step, sizeof f.step);
    arena_free(f.a);
    TRY(status);
    *step = f.step;
    *own = *r->o;
    own->resume = f.step ? own->save : NULL;
    own->steps -= f.step;
    *complete = own->steps < 1;
    r->o = own;
    return OK;
}

#include "exec/worker/faults.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "exec/checkpoint/files.h"
#include "exec/clock.h"
#include "exec/comm/launch_local.h"
#include "exec/host_transport/wire.h"
#include "exec/worker/run_board.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS INT64_C(2000000) /* between looks for the end of another rank */

static bool lasts(const struct fault *x) { return x->kind == FAULT_slow || x->kind == FAULT_link_slow || x->kind == FAULT_disk_full; }

static bool active(const struct faults *f, int32_t i) { return lasts(&f->script->faults[i]) && f->state[i].left != 0; }

static bool by_time(const struct fault *x, const struct run_board *b)
{
    return !x->at_step && b->begun_ns && clock_wall_ns() - b->zero_ns >= x->at_ns;
}

static void happen(struct faults *f, int32_t i, int64_t step)
{
    struct arena *a = arena_new();
    struct fault_state *s = &f->state[i];
    s->step = step;
    s->ns = clock_wall_ns();
    s->phase = FAULT_HAPPENED;
    if (fault_ends_ranks(&f->script->faults[i]) && !f->death_ns) {
        f->death_step = step;
        f->death_ns = s->ns;
    }
    log_warn("fault: %s at step %" PRId64, fault_text(a, &f->script->faults[i]), step);
    arena_free(a);
}

/* ---- ranks ------------------------------------------------------------------------------------ */

/* The launcher's signal ends or stops this process. If another fault has ended a rank, this one waits for the next start. */
__attribute__((noreturn)) static void ask(struct faults *f, struct fault_state *s, int64_t number)
{
    int pending = FAULT_PENDING, asked = FAULT_ASKED;
    s->step = number;
    (void)atomic_compare_exchange_strong(&s->phase, &pending, FAULT_ASKED);
    launch_local_wake();
    for (;;) {
        if (f->death_ns && (s->phase == FAULT_PENDING || atomic_compare_exchange_strong(&s->phase, &asked, FAULT_PENDING))) _exit(ERR_RANK);
        asked = FAULT_ASKED;
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
}

static void begin(const struct fault_side *s, int32_t i, int64_t number)
{
    const struct fault *x = &s->f->script->faults[i];
    bool here = fault_hits(x, s->p->devices[s->rank].name);
    if (fault_ends_ranks(x) && x->kind != FAULT_exit) {
        if (here && x->at_step && !s->f->death_ns) ask(s->f, &s->f->state[i], number);
        return;
    }
    if (x->kind == FAULT_exit && here && !s->f->death_ns) {
        happen(s->f, i, number);
        fflush(NULL);
        _exit((int)x->code);
    }
    if (!lasts(x) || !(x->kind == FAULT_slow ? here : s->rank == 0)) return;
    s->f->state[i].left = x->steps ? x->steps : -1;
    happen(s->f, i, number);
}

/* The rank that counts the steps of a fault that lasts. */
static void count(const struct fault_side *s, int32_t i)
{
    const struct fault *x = &s->f->script->faults[i];
    struct fault_state *t = &s->f->state[i];
    if (t->left > 0 && (x->kind == FAULT_slow ? fault_hits(x, s->p->devices[s->rank].name) : s->rank == 0)) t->left--;
}

static void apply(const struct fault_side *s)
{
    double device = s->p->devices[s->rank].slowdown;
    bool full = false;
    for (int32_t i = 0; i < s->f->script->n; i++) {
        const struct fault *x = &s->f->script->faults[i];
        if (!active(s->f, i)) continue;
        full |= x->kind == FAULT_disk_full;
        if (fault_hits(x, s->p->devices[s->rank].name)) device *= x->factor;
    }
    s->clock->slowdown = device;
    checkpoint_fail(full ? ENOSPC : 0);
    for (int32_t l = 0; l < s->p->n_links; l++) {
        double factor = 1;
        for (int32_t i = 0; i < s->f->script->n; i++) {
            const struct fault *x = &s->f->script->faults[i];
            if (x->kind == FAULT_link_slow && active(s->f, i) && !strcmp(x->place, s->p->links[l].name)) factor *= x->factor;
        }
        wires_slow(s->wires, l, factor);
    }
}

void faults_before_step(const struct fault_side *s, int64_t number)
{
    if (!s->f) return;
    for (int32_t i = 0; i < s->f->script->n; i++) {
        const struct fault *x = &s->f->script->faults[i];
        if (s->f->state[i].phase == FAULT_HAPPENED) {
            count(s, i);
            if (s->rank == 0 && x->back_at_step && number >= x->back_at_step) launch_local_wake();
        } else if (s->f->state[i].phase == FAULT_PENDING && (x->at_step ? number >= x->at_step : by_time(x, s->board))) {
            begin(s, i, number);
        }
    }
    apply(s);
}

bool faults_disturb(const struct faults *f)
{
    for (int32_t i = 0; f && i < f->script->n; i++)
        if (f->script->faults[i].kind != FAULT_disk_full && active(f, i)) return true;
    return false;
}

void faults_saved(struct faults *f, bool written)
{
    for (int32_t i = 0; f && !written && i < f->script->n; i++)
        if (f->state[i].left < 0) f->state[i].left = 0;
}

/* ---- the launcher ----------------------------------------------------------------------------- */

void faults_send(struct faults *f, const struct program *p, const struct run_board *board, const pid_t *pid)
{
    for (int32_t i = 0; f->script && i < f->script->n; i++) {
        const struct fault *x = &f->script->faults[i];
        bool asked = f->state[i].phase == FAULT_ASKED, sent = false;
        if (!fault_ends_ranks(x) || x->kind == FAULT_exit) continue;
        if (f->death_ns || (!asked && (f->state[i].phase != FAULT_PENDING || !by_time(x, board)))) continue;
        for (int32_t rank = 0; rank < p->n_devices; rank++)
            if (pid[rank] && fault_hits(x, p->devices[rank].name)) sent |= !kill(pid[rank], x->kind == FAULT_stop ? SIGSTOP : SIGKILL);
        if (sent) happen(f, i, asked ? f->state[i].step : board->ended + 1);
    }
}

int64_t faults_due(const struct faults *f, const struct run_board *board)
{
    int64_t due_ns = 0;
    for (int32_t i = 0; f->script && board->begun_ns && i < f->script->n; i++) {
        const struct fault *x = &f->script->faults[i];
        int64_t at_ns = 0;
        if (f->state[i].phase == FAULT_PENDING && !f->death_ns && !x->at_step && fault_ends_ranks(x)) at_ns = board->zero_ns + x->at_ns;
        if (f->state[i].phase == FAULT_HAPPENED && x->back_ns) at_ns = f->state[i].ns + x->back_ns;
        if (at_ns && (!due_ns || at_ns < due_ns)) due_ns = at_ns;
    }
    return due_ns;
}

int32_t faults_return(struct faults *f, const struct run_board *board)
{
    for (int32_t i = 0; f->script && i < f->script->n; i++) {
        const struct fault *x = &f->script->faults[i];
        if (x->kind != FAULT_host_lost || f->state[i].phase != FAULT_HAPPENED || !board->begun_ns || !(x->back_ns || x->back_at_step)) continue;
        if (x->back_at_step ? board->ended + 1 < x->back_at_step : clock_wall_ns() - f->state[i].ns < x->back_ns) continue;
        f->state[i].phase = FAULT_OVER;
        log_warn("fault: node %s is back", x->place);
        return i;
    }
    return -1;
}

int64_t faults_await_nodes(struct faults *f)
{
    int64_t begin_ns = clock_wall_ns();
    bool waited = false;
    for (int32_t i = 0; f->script && i < f->script->n; i++) {
        const struct fault *x = &f->script->faults[i];
        if (x->kind != FAULT_host_lost || f->state[i].phase != FAULT_HAPPENED || !x->back_ns) continue;
        waited = true;
        clock_sleep_until(f->state[i].ns + x->back_ns);
        f->state[i].phase = FAULT_OVER;
        log_warn("fault: node %s is back", x->place);
    }
    return waited ? clock_wall_ns() - begin_ns : 0;
}

void faults_report_missed(struct arena *a, const struct faults *f)
{
    int32_t drawn = 0;
    for (int32_t i = 0; f->script && i < f->script->n; i++) {
        if (f->state[i].phase >= FAULT_HAPPENED) continue;
        if (f->script->faults[i].drawn)
            drawn++;
        else
            log_warn("this fault did not happen, because the run began behind its step or ended before, or its place was no longer in use: %s",
                     fault_text(a, &f->script->faults[i]));
    }
    if (drawn) log_info("%" PRId32 " faults drawn at random did not happen, because the run ended before", drawn);
}

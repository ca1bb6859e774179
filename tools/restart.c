#include "tools/restart.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "planner/search.h"
#include "profiles/device_speed.h"
#include "tools/common.h"
#include "tools/team/edit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { EVALUATIONS = 1250 }; /* the first round of a search (planner/search.h) */

/* The keys of a plan that a search does not write. */
const char *restart_trains_differently(const struct plan *p)
{
    if (p->servers.rule.n) return "parameter_server";
    if (p->local_sgd.outer.every) return "local_sgd";
    if (plan_delays_gradients(p)) return "weight_versions";
    if (p->compression.gradients.kind || p->compression.forward.kind || p->compression.backward.kind) return "compression";
    return NULL;
}

enum status restart_check_script(const struct fault_script *s, const char *path, bool elastic, int64_t save_every, struct error *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        const struct fault *f = &s->faults[i];
        if (f->back_at_step && !elastic)
            return error_set(err, ERR_INPUT, "%s: back_at_step needs --elastic, because without the node no step is run; write back: TIME", path);
        if (f->kind == FAULT_disk_full && !save_every)
            return error_set(err, ERR_INPUT, "%s: disk_full needs --save-every, because only checkpoints between steps may fail", path);
    }
    return OK;
}

/* ---- devices that the run may use ------------------------------------------------------------ */

/* Of the first plan's cluster. */
static bool is_away(const struct restart *r, int32_t d) { return r->failed[d] || (r->hostfile && !r->hosts.listed[d]); }

static int32_t devices_left(const struct restart *r)
{
    int32_t n = 0;
    for (int32_t d = 0; r->failed && d < r->plan.cluster.n_devices; d++) n += !is_away(r, d);
    return n;
}

enum status restart_cluster(const struct restart *r, struct arena *a, struct cluster *out, struct error *err)
{
    const struct cluster *c = &r->plan.cluster;
    bool *keep = ARENA_ARRAY(a, bool, (size_t)c->n_devices + 1);
    if (!r->failed || devices_left(r) == c->n_devices) return *out = *c, OK;
    if (!devices_left(r)) return error_set(err, ERR_INFEASIBLE, "no device is left");
    for (int32_t d = 0; d < c->n_devices; d++) keep[d] = !is_away(r, d);
    team_part(a, c, keep, out);
    return OK;
}

/* The devices of the program that are away; NULL: none. */
static const char *used_and_away(const struct restart *r, const struct program *p)
{
    const char *names = NULL;
    for (int32_t i = 0; r->failed && i < p->n_devices; i++) {
        int32_t d = cluster_device(&r->plan.cluster, p->devices[i].name);
        if (d >= 0 && is_away(r, d)) names = names ? arena_printf(r->a, "%s, %s", names, p->devices[i].name) : p->devices[i].name;
    }
    return names;
}

/* The devices of a node are back, or listed again. */
static void arrive(struct restart *r, const char *what)
{
    r->arrived = r->arrived ? arena_printf(r->a, "%s; %s", r->arrived, what) : what;
}

static void look_at_hosts(struct restart *r, const struct program *program)
{
    const struct cluster *c = &r->plan.cluster;
    bool *before = r->listed;
    const char *came = NULL;
    if (!r->hostfile || !hostfile_look(&r->hosts)) return;
    for (int32_t d = 0; d < c->n_devices; d++) {
        bool comes = r->hosts.listed[d] && !before[d];
        before[d] = r->hosts.listed[d];
        if (!comes) continue;
        r->failed[d] = false;
        came = came ? arena_printf(r->a, "%s, %s", came, c->devices[d].name) : c->devices[d].name;
    }
    if (came) {
        arrive(r, arena_printf(r->a, "%s lists %s", r->hostfile, came));
        log_warn("%s", r->arrived);
    }
    const char *gone = used_and_away(r, program);
    if (!gone || r->leaves) return;
    r->leaves = arena_printf(r->a, "%s no longer lists %s", r->hostfile, gone);
    log_warn("%s: the ranks end after this step, with a checkpoint", r->leaves);
}

/* ---- plans ----------------------------------------------------------------------------------- */
enum status restart_search(struct arena *a, const struct restart_question *q, struct plan *plan, struct program *program, int64_t *out_ns, struct error *err)
{
    const struct plan *old = q->old;
    struct search_options o = {
        .top = 1, .evaluations = EVALUATIONS, .from = old, .deterministic = old->deterministic, .stop = q->stop};
    struct search_result found;
    struct profile profile;
    TRY(common_profile(a, q->profiled, q->db, 0, &profile, err));
    struct job job = old->job;
    if (old->deterministic) job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = old->microbatch; /* others round differently */
    struct cluster now;
    device_speed_apply(a, &profile, q->searched, &now);
    TRY(search_plans(a, &job, &now, &profile, &o, &found, err));
    struct plan next = found.plans[0].plan;
    next.name = old->name;
    next.gradient_noise_scale = old->gradient_noise_scale;
    next.steps = old->steps;
    next.seed = old->seed;
    next.job = old->job;
    next.cluster = *q->used;
    TRY(common_lower(a, &next, true, program, err));
    *plan = next;
    *out_ns = found.plans[0].iteration_ns;
    return OK;
}

enum status restart_plan(struct arena *a, const char *db, const struct cluster *profiled, const char *without, struct plan *plan, struct program *program,
                         struct error *err)
{
    struct team_change change = {.kind = TEAM_WITHOUT, .text = without};
    const struct plan old = *plan;
    struct cluster left;
    int64_t ns;
    TRY(team_edit(a, &plan->cluster, &change, &left, err));
    const struct restart_question q = {.db = db, .profiled = profiled, .searched = &left, .used = &left, .old = &old};
    return restart_search(a, &q, plan, program, &ns, err);
}

static enum status plan_again(struct restart *r, struct plan *plan, struct program *program, struct error *err)
{
    struct cluster left, now;
    int64_t ns;
    TRY(restart_cluster(r, r->a, &left, err));
    now = left;
    if (r->speeds) TRY(r->speeds(r->speeds_owner, r->a, &now, err));
    const struct plan old = *plan;
    const struct restart_question q = {.db = r->db, .profiled = &r->plan.cluster, .searched = &now, .used = &left, .old = &old};
    return restart_search(r->a, &q, plan, program, &ns, err);
}

/* Where a run that gives up goes on: a newer checkpoint in memory is written. o NULL: no rank was started. */
static const char *where(struct restart *r, const struct run_options *o)
{
    int64_t step, lost;
    struct error why;
    if (!o) return "no rank was started";
    restart_memory_write(&r->memory, r->a, &r->faults, &r->shared->faults, o, &step, &lost, &why);
    const char *text = step ? arena_printf(r->a, "the newest checkpoint, of step %" PRId64 ", is in %s: start again with --continue", step, o->save)
                            : "there is no checkpoint on disk";
    return lost ? arena_printf(r->a, "%s; the one in memory, of step %" PRId64 ", could not be written there: %s", text, lost, why.text) : text;
}

static enum status too_few(struct restart *r, const struct run_options *o, struct error *err)
{
    int32_t n = devices_left(r);
    if (n >= r->min_devices) return OK;
    return error_set(err, ERR_LIMIT, "%" PRId32 " device%s left, fewer than --min-devices %" PRId64 "; %s", n, n == 1 ? " is" : "s are", r->min_devices, where(r, o));
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* The first start is on the listed devices. */
static enum status open_hosts(struct restart *r, struct plan *plan, struct program *program, struct error *err)
{
    const struct cluster *c = &r->plan.cluster;
    r->failed = ARENA_ARRAY(r->a, bool, (size_t)c->n_devices + 1);
    r->listed = ARENA_ARRAY(r->a, bool, (size_t)c->n_devices + 1);
    if (r->hostfile) {
        TRY(hostfile_open(r->a, r->hostfile, c, &r->hosts, err));
        memcpy(r->listed, r->hosts.listed, (size_t)c->n_devices * sizeof(bool));
    }
    TRY(too_few(r, NULL, err));
    const char *gone = used_and_away(r, program);
    if (!gone) return OK;
    if (plan_again(r, plan, program, err) != OK) return error_wrap(err, err->code, "%s does not list %s, without which there is no plan", r->hostfile, gone);
    log_warn("%s does not list %s; planned for %" PRId32 " device%s: %s", r->hostfile, gone, program->n_devices, program->n_devices == 1 ? "" : "s", plan_describe(r->a, plan));
    return OK;
}

enum status restart_begin(struct restart *r, struct plan *plan, struct program *program, struct run_options *o, struct error *err)
{
    struct checkpoint c = {0};
    bool found;
    const char *key = plan && r->elastic ? restart_trains_differently(plan) : NULL;
    if (r->elastic && !plan) return error_set(err, ERR_USAGE, "--elastic plans again, and a program file has no plan: pass the plan");
    if (key)
        return error_set(err, ERR_INPUT, "--elastic: the plan has %s, and new plans are of synchronous training: leave --elastic out, --max-restarts starts the same plan again", key);
    if (r->script && parameter_server_by_arrival(&program->server))
        return error_set(err, ERR_INPUT, "--faults: steps of a parameter server that handles gradients by arrival have no common begin");
    r->resume = o->resume;
    bool counts = r->max || r->script || r->counts;
    if (counts && o->continues) {
        TRY(checkpoint_find_any(r->a, o->save, &found, &c, err));
    } else if (counts && o->resume) {
        TRY(checkpoint_find(r->a, o->resume, &c, err));
    }
    r->begin = c.step;
    r->end = o->continues ? o->steps : c.step + o->steps;
    if (plan) r->plan = *plan;
    r->program = *program;
    if (r->max_lost) TRY(common_duration("max-lost", r->max_lost, &r->max_lost_ns, err));
    if (r->script) TRY(fault_script_read(r->a, r->script, program, &r->faults, err));
    TRY(restart_check_script(&r->faults, r->script, r->elastic, o->save_auto ? 1 : o->save_every, err));
    if (r->elastic) TRY(open_hosts(r, plan, program, err));
    r->first_hash = program->plan_hash;
    for (int32_t i = 0; i < r->faults.n && o->save_mode != SAVE_SYNC; i++)
        if (r->faults.faults[i].kind == FAULT_disk_full) {
            log_warn("disk_full: training waits for checkpoints (--save-mode sync), so that the steps of the fault are exact");
            o->save_mode = SAVE_SYNC;
        }
    void *shared = mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return error_set(err, ERR_RESOURCE, "cannot share memory with the ranks: %s", strerror(errno));
    r->shared = shared;
    r->shared->board.ended = r->begin;
    if (r->script) r->shared->faults.script = &r->faults;
    for (int32_t i = 0; i < r->faults.n; i++)
        if (r->faults.faults[i].at_step && r->faults.faults[i].at_step <= r->begin) r->shared->faults.state[i].phase = FAULT_MISSED;
    o->board = &r->shared->board;
    o->faults = r->script ? &r->shared->faults : NULL;
    o->survives = r->max > 0;
    return OK;
}

void restart_start(struct restart *r, const struct program *program)
{
    r->shared->faults.death_ns = 0;
    r->leaves = NULL;
    run_board_start(&r->shared->board, program->plan_hash != r->first_hash);
}

bool restart_watches(const struct restart *r) { return r->script || r->hostfile; }

bool restart_look(struct restart *r, const struct program *program, const pid_t *pid, int64_t *due_ns)
{
    if (r->script) faults_send(&r->shared->faults, program, &r->shared->board, pid);
    int32_t back = r->script && r->elastic ? faults_return(&r->shared->faults, &r->shared->board) : -1;
    if (back >= 0) {
        const struct fault *f = &r->faults.faults[back];
        for (int32_t d = 0; d < r->plan.cluster.n_devices; d++) r->failed[d] &= !fault_hits(f, r->plan.cluster.devices[d].name);
        arrive(r, arena_printf(r->a, "node %s is back", f->place));
    }
    look_at_hosts(r, program);
    *due_ns = r->script ? faults_due(&r->shared->faults, &r->shared->board) : 0;
    return r->leaves != NULL;
}

void restart_end(struct restart *r)
{
    if (!r->shared) return;
    if (r->script && r->shared->board.zero_ns) faults_report_missed(r->a, &r->shared->faults);
    munmap(r->shared, sizeof *r->shared);
    r->shared = NULL;
}

/* ---- starts ---------------------------------------------------------------------------------- */

/* Time and steps behind the checkpoint of step `kept`. */
static void note_loss(struct restart *r, const struct launch_faults *faults, bool failed, int64_t kept, struct restart_event *e)
{
    struct run_board *b = &r->shared->board;
    int64_t now_ns = clock_wall_ns(), death_ns = r->shared->faults.death_ns ? r->shared->faults.death_ns : faults->first_ns;
    if (!failed && b->last_ns) death_ns = b->last_ns;
    if (!death_ns) death_ns = now_ns;
    e->detection_ns = now_ns - death_ns;
    if (b->begun_ns) {
        int64_t ended = r->shared->faults.death_ns ? r->shared->faults.death_step - 1 : 0; /* rank 0 may be behind */
        if (b->ended > ended) ended = b->ended;
        e->lost_steps = ended > kept ? ended - kept : 0;
        e->lost_ns = run_board_time(b, kept, b->ended) + (death_ns > b->last_ns ? death_ns - b->last_ns : 0);
    }
    b->ended = kept;
}

static void add_span(struct restart *r, enum span_kind kind, int64_t begin_ns, int64_t end_ns, const char *text)
{
    r->spans = arena_grow(r->a, r->spans, (size_t)r->n_spans, &r->spans_capacity, sizeof *r->spans);
    r->spans[r->n_spans++] = (struct restart_span){kind, begin_ns, end_ns, text};
}

/* What the start that has ended did, for the trace. */
static void note_spans(struct restart *r, int32_t n_devices, int64_t ended, int64_t death_ns, const char *why)
{
    const struct run_board *b = &r->shared->board;
    int64_t now_ns = clock_wall_ns(), begun_ns = b->begun_ns ? b->begun_ns : now_ns;
    if (r->n) add_span(r, SPAN_RESTART, b->forked_ns, begun_ns, r->events[r->n - 1].why);
    if (!b->begun_ns) return;
    int64_t from = r->n ? r->events[r->n - 1].step : r->begin, until_ns = death_ns > begun_ns ? death_ns : begun_ns;
    add_span(r, SPAN_TRAIN, begun_ns, until_ns, restart_span_text(r->a, from, ended, n_devices));
    add_span(r, SPAN_IDLE, until_ns, now_ns, arena_printf(r->a, "until all ranks have ended: %s", why));
}

/* The loss of all restarts so far, which later ones only add to. */
static enum status too_much_lost(struct restart *r, const struct restart_event *last, const struct run_options *o, struct error *err)
{
    char lost[32], limit[32];
    int64_t ns = 0;
    if (!r->max_lost) return OK;
    for (int32_t i = 0; i <= r->n; i++) {
        const struct restart_event *e = i < r->n ? &r->events[i] : last;
        ns += e->lost_ns + e->detection_ns + e->waiting_ns + e->replan_ns + e->launch_ns + e->load_ns;
    }
    if (ns <= r->max_lost_ns) return OK;
    units_print_ns(lost, ns), units_print_ns(limit, r->max_lost_ns);
    return error_set(err, ERR_LIMIT, "%s; %s were lost by failures and changes, more than --max-lost %s; %s", last->why, lost, limit, where(r, o));
}

/* Marks what is away and plans again. */
static enum status replace_plan(struct restart *r, const struct launch_faults *faults, bool failed, const struct run_options *o, struct restart_event *e,
                                struct plan *plan, struct program *program, struct error *err)
{
    int64_t begin_ns = clock_wall_ns();
    for (int32_t i = 0; failed && i < faults->n; i++) {
        int32_t d = cluster_device(&r->plan.cluster, program->devices[faults->rank[i]].name);
        if (d >= 0) r->failed[d] = true;
    }
    look_at_hosts(r, program);
    e->without = used_and_away(r, program);
    if (too_few(r, o, err) != OK) return error_wrap(err, ERR_LIMIT, "%s", e->why);
    if (plan_again(r, plan, program, err) != OK)
        return error_wrap(err, failed ? ERR_RANK : err->code, "%s; without %s there is no other plan", e->why, e->without);
    r->arrived = NULL;
    e->replan_ns = clock_wall_ns() - begin_ns;
    e->plan = plan_describe(r->a, plan);
    add_span(r, SPAN_REPLAN, begin_ns, begin_ns + e->replan_ns, arena_printf(r->a, "without %s: %s", e->without, e->plan));
    return OK;
}

/* The reason of another start; sets its plan. */
static enum status prepare_next(struct restart *r, const struct launch_faults *faults, bool failed, struct restart_event *e, const struct run_options *o, struct plan *plan,
                                struct program *program, struct error *err)
{
    int64_t begin_ns = clock_wall_ns();
    if (failed) TRY(too_much_lost(r, e, o, err));
    r->took = false;
    if (!failed && !r->leaves) {
        *plan = *r->next;
        *program = *r->next_program;
        e->plan = plan_describe(r->a, plan);
        r->took = true;
    } else if (r->elastic && (r->leaves || faults->n)) {
        TRY(replace_plan(r, faults, failed, o, e, plan, program, err));
    } else if (r->script) {
        e->waiting_ns = faults_await_nodes(&r->shared->faults);
        add_span(r, SPAN_IDLE, begin_ns, begin_ns + e->waiting_ns, "waiting for a lost node");
    }
    e->n_devices = program->n_devices;
    return OK;
}

static void log_start(const struct restart *r, const struct restart_event *e)
{
    const char *without = e->without ? arena_printf(r->a, ", without %s", e->without) : "";
    const char *plan = e->plan ? arena_printf(r->a, "; %" PRId32 " device%s: %s", e->n_devices, e->n_devices == 1 ? "" : "s", e->plan) : "";
    if (e->failed)
        log_warn("%s; restart %" PRId32 " of %" PRId64 " after step %" PRId64 "%s%s", e->why, r->failures, r->max, e->step, without, plan);
    else
        log_warn("%s; start again after step %" PRId64 "%s%s", e->why, e->step, without, plan);
}

static bool again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan, struct program *program,
                  struct run_options *o, struct error *err)
{
    struct checkpoint c = {0};
    struct error none;
    bool failed = failure->code == ERR_RANK, changes = failure->code == ERR_INTERRUPTED && (r->leaves || r->next) && !faults->signalled;
    *err = *failure;
    restart_note_start(r);
    if (!changes && (!failed || r->failures == r->max)) return false;
    if (faults->signalled) {
        error_set(err, ERR_INTERRUPTED, "interrupted while the run ended: %s; the newest checkpoint is in %s", failure->text, o->save);
        return false;
    }
    bool found = false;
    int32_t copies;
    int64_t memory = restart_memory_step(&r->memory, r->a, &r->faults, &r->shared->faults, o->save, &copies);
    if (checkpoint_find_any(r->a, o->save, &found, &c, &none) != OK && !memory) {
        error_set(err, failure->code, "%s; there is no restart: %s", failure->text, none.text);
        return false;
    }
    if (!memory && found && c.step >= r->end) return false;
    r->events = arena_grow(r->a, r->events, (size_t)r->n, &r->capacity, sizeof *r->events);
    struct restart_event e = {.step = memory ? memory : found ? c.step : r->begin, .memory = memory, .copies = copies, .failed = failed, .at_ns = clock_wall_ns()};
    e.why = failed ? arena_strdup(r->a, failure->text) : r->leaves ? r->leaves : r->why_next;
    int64_t ended = r->shared->board.ended;
    note_loss(r, faults, failed, e.step, &e);
    note_spans(r, program->n_devices, ended, e.at_ns - e.detection_ns, e.why);
    if (prepare_next(r, faults, failed, &e, o, plan, program, err) != OK) return false;
    r->next = NULL;
    o->resume = found || memory ? o->save : r->resume;
    o->memory_step = memory;
    o->continues = false;
    o->steps = r->end - e.step;
    r->events[r->n++] = e;
    r->failures += failed;
    log_start(r, &e);
    return true;
}

bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err)
{
    int64_t before, step, lost;
    struct error why;
    if (again(r, faults, failure, plan, program, o, err)) return true;
    if (!r->memory.shared) return false;
    before = checkpoint_newest(r->a, o->save);
    restart_memory_write(&r->memory, r->a, &r->faults, &r->shared->faults, o, &step, &lost, &why);
    if (lost && !strstr(err->text, why.text))
        log_warn("the checkpoint in memory, of step %" PRId64 ", ends with the run: %s", lost, why.text);
    else if (step > before)
        log_warn("the checkpoint in memory, of step %" PRId64 ", is in %s now: start again with --continue", step, o->save);
    return false;
}

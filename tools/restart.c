#include "tools/restart.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "planner/search.h"
#include "tools/common.h"
#include "tools/team/edit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { EVALUATIONS = 1250 }; /* the first round of a search (planner/search.h) */
enum { TRIED = 32 };         /* plans from which a deterministic one is taken, best first */

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

enum status restart_begin(struct restart *r, const struct plan *plan, const struct program *program, struct run_options *o, struct error *err)
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
    r->returned = -1;
    if (plan) r->plan = *plan;
    r->program = *program;
    if (r->script) TRY(fault_script_read(r->a, r->script, program, &r->faults, err));
    TRY(restart_check_script(&r->faults, r->script, r->elastic, o->save_auto ? 1 : o->save_every, err));
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

void restart_start(struct restart *r)
{
    r->shared->faults.death_ns = 0;
    run_board_start(&r->shared->board, r->n_away > 0);
}

bool restart_look(struct restart *r, const struct program *program, const pid_t *pid)
{
    if (!r->script) return false;
    faults_send(&r->shared->faults, program, &r->shared->board, pid);
    int32_t back = r->elastic ? faults_return(&r->shared->faults, &r->shared->board) : -1;
    if (back >= 0) r->returned = back;
    return back >= 0;
}

void restart_end(struct restart *r)
{
    if (!r->shared) return;
    if (r->script) faults_report_missed(r->a, &r->shared->faults);
    munmap(r->shared, sizeof *r->shared);
    r->shared = NULL;
}

static const char *names_of(struct arena *a, const struct program *p, const struct launch_faults *f, const char *between)
{
    const char *names = "";
    for (int32_t i = 0; i < f->n; i++) names = arena_printf(a, "%s%s%s", names, i ? between : "", p->devices[f->rank[i]].name);
    return names;
}

enum status restart_search(struct arena *a, const char *db, const struct cluster *searched, const struct cluster *used, const struct plan *old,
                           const volatile sig_atomic_t *stop, struct plan *plan, struct program *program, int64_t *out_ns, struct error *err)
{
    struct search_options o = {
        .top = old->deterministic ? TRIED : 1, .evaluations = EVALUATIONS, .from = old, .no_sharding = old->deterministic, .stop = stop};
    struct search_result found;
    struct profile profile;
    TRY(common_profile(a, &old->cluster, db, 0, &profile, err));
    struct job job = old->job;
    if (old->deterministic) job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = old->microbatch; /* others round differently */
    TRY(search_plans(a, &job, searched, &profile, &o, &found, err));
    enum status status = OK;
    for (int32_t i = 0; i < found.n_plans; i++) {
        struct plan next = found.plans[i].plan;
        next.name = old->name;
        next.deterministic = old->deterministic;
        next.gradient_noise_scale = old->gradient_noise_scale;
        next.steps = old->steps;
        next.seed = old->seed;
        next.job = old->job;
        next.cluster = *used;
        status = common_lower(a, &next, true, program, err);
        if (status != OK) continue;
        *plan = next;
        *out_ns = found.plans[i].iteration_ns;
        return OK;
    }
    return status;
}

/* r NULL: at the speeds that the cluster states; else at those of now. */
static enum status plan_without(struct arena *a, const char *db, const struct restart *r, const char *without, struct plan *plan,
                                struct program *program, struct error *err)
{
    struct team_change change = {.kind = TEAM_WITHOUT, .text = without};
    struct plan old = *plan;
    struct cluster left, now;
    int64_t ns;
    TRY(team_edit(a, &plan->cluster, &change, &left, err));
    now = left;
    if (r && r->speeds) TRY(r->speeds(r->speeds_owner, a, &now, err));
    return restart_search(a, db, &now, &left, &old, NULL, plan, program, &ns, err);
}

enum status restart_plan(struct arena *a, const char *db, const char *without, struct plan *plan, struct program *program, struct error *err)
{
    return plan_without(a, db, NULL, without, plan, program, err);
}

/* The devices of the node are no longer away. */
static void welcome(struct restart *r, const struct fault *f)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_away; i++)
        if (!fault_hits(f, r->away[i])) r->away[n++] = r->away[i];
    r->n_away = n;
}

/* From the plan in use without those that failed; once a node is back, from the first plan without all that are away. */
static enum status plan_again(struct restart *r, const struct launch_faults *faults, bool failed, struct plan *plan, struct program *program,
                              struct error *err)
{
    const char *without = failed ? names_of(r->a, program, faults, ",") : "";
    for (int32_t i = 0; failed && i < faults->n && r->n_away < LOCAL_RANKS_MAX; i++) r->away[r->n_away++] = program->devices[faults->rank[i]].name;
    r->at_first_speeds = false;
    if (r->returned < 0) return plan_without(r->a, r->db, r, without, plan, program, err);
    welcome(r, &r->faults.faults[r->returned]);
    *plan = r->plan;
    *program = r->program;
    r->at_first_speeds = !r->n_away;
    if (!r->n_away) return OK;
    without = r->away[0];
    for (int32_t i = 1; i < r->n_away; i++) without = arena_printf(r->a, "%s,%s", without, r->away[i]);
    return plan_without(r->a, r->db, r, without, plan, program, err);
}

/* The phases of the last start so far. */
static void note_start(struct restart *r)
{
    const struct run_board *b = &r->shared->board;
    struct restart_event none, *e = r->n ? &r->events[r->n - 1] : &none;
    e->launch_ns = e->load_ns = e->first_step_ns = 0;
    if (b->loaded_ns) e->load_ns = b->loaded_ns - b->joined_ns;
    if (b->begun_ns) e->launch_ns = b->joined_ns - b->forked_ns + b->begun_ns - b->loaded_ns;
    if (b->first_ns) e->first_step_ns = b->first_ns - b->begun_ns;
    if (!r->n) r->launch_ns = e->launch_ns;
}

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

bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err)
{
    struct checkpoint c = {0};
    struct error none;
    bool failed = failure->code == ERR_RANK, changes = failure->code == ERR_INTERRUPTED && (r->returned >= 0 || r->next) && !faults->signalled;
    *err = *failure;
    note_start(r);
    if (!changes && (!failed || r->failures == r->max)) return false;
    if (faults->signalled) {
        error_set(err, ERR_INTERRUPTED, "interrupted while the run ended: %s; the newest checkpoint is in %s", failure->text, o->save);
        return false;
    }
    bool found;
    if (checkpoint_find_any(r->a, o->save, &found, &c, &none) != OK) {
        error_set(err, failure->code, "%s; there is no restart: %s", failure->text, none.text);
        return false;
    }
    if (found && c.step >= r->end) return false;
    r->events = arena_grow(r->a, r->events, (size_t)r->n, &r->capacity, sizeof *r->events);
    struct restart_event *e = &r->events[r->n];
    *e = (struct restart_event){.step = found ? c.step : r->begin, .failed = failed};
    e->why = !changes           ? arena_strdup(r->a, failure->text)
             : r->returned >= 0 ? arena_printf(r->a, "node %s is back", r->faults.faults[r->returned].place)
                                : r->why_next;
    note_loss(r, faults, failed, e->step, e);
    const struct plan *taken = NULL;
    if (changes && r->returned < 0) {
        taken = r->next;
        *plan = *r->next;
        *program = *r->next_program;
    } else if (r->elastic && (changes || faults->n)) {
        int64_t begin_ns = clock_wall_ns();
        if (failed) e->without = names_of(r->a, program, faults, ", ");
        if (plan_again(r, faults, failed, plan, program, err) != OK) {
            error_wrap(err, ERR_RANK, "%s; without %s there is no other plan", e->why, e->without ? e->without : "the lost devices");
            return false;
        }
        e->replan_ns = clock_wall_ns() - begin_ns;
    } else if (r->script) {
        e->waiting_ns = faults_await_nodes(&r->shared->faults);
    }
    r->returned = -1;
    r->took = taken != NULL;
    r->next = NULL;
    o->resume = found ? o->save : r->resume;
    o->continues = false;
    o->steps = r->end - e->step;
    r->n++;
    r->failures += failed;
    if (changes)
        log_warn("%s; start again after step %" PRId64, e->why, e->step);
    else
        log_warn("%s; restart %" PRId32 " of %" PRId64 " after step %" PRId64 "%s%s", e->why, r->failures, r->max, e->step,
                 e->without ? ", without " : "", e->without ? e->without : "");
    return true;
}

/* --- report ----------------------------------------------------------------------------------- */

/* Where the time from the first step of the first start to the end of the last checkpoint went. */
struct summary {
    int64_t elapsed_ns, step_ns, steps, lost_steps;
    int64_t useful_ns, slow_ns, lost_ns, checkpoint_ns, detection_ns, waiting_ns, replan_ns, restart_ns;
    int32_t resumed;   /* restarts after failures that reached their first new step */
    int64_t found_ns, resume_ns; /* sums over these: detection; from its end to the end of the first new step, without waiting for nodes */
};

static void add_up(struct restart *r, struct summary *s)
{
    const struct run_board *b = &r->shared->board;
    *s = (struct summary){.elapsed_ns = b->last_ns - b->zero_ns, .step_ns = run_board_median(r->a, b), .steps = b->ended - b->before};
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        s->lost_steps += e->lost_steps;
        s->lost_ns += e->lost_ns;
        s->detection_ns += e->detection_ns;
        s->waiting_ns += e->waiting_ns;
        s->replan_ns += e->replan_ns;
        s->restart_ns += e->launch_ns + e->load_ns;
        if (!e->first_step_ns || !e->failed) continue;
        s->resumed++;
        s->found_ns += e->detection_ns;
        s->resume_ns += e->replan_ns + e->launch_ns + e->load_ns + e->first_step_ns;
    }
    s->checkpoint_ns = b->saves_ns;
    s->useful_ns = s->steps * s->step_ns;
    s->slow_ns = s->elapsed_ns - s->useful_ns - s->lost_ns - s->checkpoint_ns - s->detection_ns - s->waiting_ns - s->replan_ns - s->restart_ns;
    if (s->slow_ns < 0) { /* the mean of few steps may be below their median */
        s->useful_ns += s->slow_ns;
        s->slow_ns = 0;
    }
}

/* name of a part, its time in the summary */
#define PARTS(X)                                                                                                                           \
    X(useful, "useful training steps")                                                                                                     \
    X(slow, "slower steps than the median")                                                                                                \
    X(lost, "steps lost")                                                                                                                  \
    X(checkpoint, "checkpoints")                                                                                                           \
    X(detection, "detection")                                                                                                              \
    X(waiting, "waiting for nodes")                                                                                                        \
    X(replan, "planning again")                                                                                                            \
    X(restart, "launch and load")

static void print_faults_json(const struct restart *r, struct json *j)
{
    if (!r->script) return;
    json_put_list(j, "faults");
    for (int32_t i = 0; i < r->faults.n; i++) {
        const struct fault *f = &r->faults.faults[i];
        const struct fault_state *s = &r->shared->faults.state[i];
        bool happened = s->phase >= FAULT_HAPPENED;
        json_put_object_line(j, NULL);
        json_put_text(j, "kind", fault_kind_name(f->kind));
        if (*f->place) json_put_text(j, "place", f->place);
        json_put_bool(j, "happened", happened);
        if (happened) json_put_int(j, "step", s->step);
        if (happened) json_put_int(j, "at_ns", s->ns - r->shared->board.zero_ns);
        json_close(j);
    }
    json_close(j);
}

static void print_json(const struct restart *r, const struct summary *s, struct json *j)
{
    const struct run_board *b = &r->shared->board;
    json_put_object(j, "goodput");
    json_put_double(j, "goodput", (double)s->useful_ns / (double)s->elapsed_ns);
    json_put_int(j, "elapsed_ns", s->elapsed_ns);
    json_put_int(j, "step_ns", s->step_ns);
    json_put_int(j, "steps", s->steps);
    json_put_int(j, "restarts", r->n);
    json_put_int(j, "lost_steps", s->lost_steps);
    json_put_int(j, "launch_ns", r->launch_ns);
    json_put_int(j, "checkpoints", b->saves);
    if (b->saves) json_put_int(j, "checkpoint_ns", b->saves_ns / b->saves);
    if (s->resumed) json_put_int(j, "resume_ns", s->resume_ns / s->resumed);
    json_put_object(j, "parts_ns");
#define X(name, help) json_put_int(j, #name, s->name##_ns);
    PARTS(X)
#undef X
    json_close(j);
    json_close(j);
    print_faults_json(r, j);
    if (r->n) json_put_list(j, "restarts");
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        json_put_object(j, NULL);
        json_put_int(j, "step", e->step);
        json_put_bool(j, "failed", e->failed);
        json_put_text(j, "why", e->why);
        if (e->without) json_put_text(j, "without", e->without);
        json_put_int(j, "lost_steps", e->lost_steps);
        json_put_int(j, "detection_ns", e->detection_ns);
        if (e->waiting_ns) json_put_int(j, "waiting_ns", e->waiting_ns);
        if (e->replan_ns) json_put_int(j, "replan_ns", e->replan_ns);
        json_put_int(j, "launch_ns", e->launch_ns);
        json_put_int(j, "load_ns", e->load_ns);
        json_put_int(j, "first_step_ns", e->first_step_ns);
        json_close(j);
    }
    if (r->n) json_close(j);
}

static void print_text(const struct restart *r, const struct summary *s)
{
    char x[32], y[32], z[32], u[32], v[32];
    if (!r->max && !r->script) return;
    printf("  goodput    %.2f %%: %" PRId64 " steps of %s in %s; %" PRId32 " restart%s, %" PRId64 " step%s lost\n",
           100 * (double)s->useful_ns / (double)s->elapsed_ns, s->steps, units_print_ns(x, s->step_ns), units_print_ns(y, s->elapsed_ns), r->n,
           r->n == 1 ? "" : "s", s->lost_steps, s->lost_steps == 1 ? "" : "s");
#define X(name, help) \
    if (s->name##_ns) printf("    %-31s %6.2f %%\n", help, 100 * (double)s->name##_ns / (double)s->elapsed_ns);
    PARTS(X)
#undef X
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        printf("  restart    after step %" PRId64 ": %s", e->step, e->why);
        if (e->without) printf("; without %s, planned in %s", e->without, units_print_ns(x, e->replan_ns));
        printf("\n    detection %s, launch %s, load %s, first step %s; %" PRId64 " step%s lost\n", units_print_ns(x, e->detection_ns),
               units_print_ns(y, e->launch_ns), units_print_ns(z, e->load_ns), units_print_ns(u, e->first_step_ns), e->lost_steps,
               e->lost_steps == 1 ? "" : "s");
    }
    if (s->resumed)
        printf("  mean time to the first new step, beyond %s of detection: %s\n", units_print_ns(u, s->found_ns / s->resumed),
               units_print_ns(v, s->resume_ns / s->resumed));
}

void restart_print(struct restart *r, struct json *json)
{
    struct summary s;
    if (!r->shared || !r->shared->board.steps) return;
    note_start(r);
    add_up(r, &s);
    if (json)
        print_json(r, &s, json);
    else
        print_text(r, &s);
}

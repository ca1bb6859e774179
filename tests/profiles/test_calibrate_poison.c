/* Calibration on poisoned runs: wrong units, outliers, clock jumps, repeated feedback. Each is refused, or changes no coefficient by
 * more than a factor of 10 (gate R23). */
#include "profiles/calibrate.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#include <math.h>
#include <string.h>

static struct arena *a;
static struct error err;
static struct device_type types[] = {{.name = "fast", .catalogue = "host", .slowdown = 1}, {.name = "slow", .catalogue = "host", .slowdown = 1}};
static struct link links[] = {{.name = "lan", .bandwidth_Bps = 1e9, .latency_s = 1e-5, .stated = true}};
static struct cluster cluster = {.name = "team", .n_types = 2, .types = types, .n_links = 1, .links = links};
/* keys 1 … 4: products, 5: an addition of 0.4 % of the time, 6: an activation, 7: gating */
static struct op_row rows[] = {{.base = "host", .key = 1, .kind = OP_matmul, .seconds = 100e-6, .flops = 1},
                               {.base = "host", .key = 2, .kind = OP_matmul, .seconds = 200e-6, .flops = 1},
                               {.base = "host", .key = 3, .kind = OP_matmul, .seconds = 400e-6, .flops = 1},
                               {.base = "host", .key = 4, .kind = OP_matmul, .seconds = 300e-6, .flops = 1},
                               {.base = "host", .key = 5, .kind = OP_add, .seconds = 5e-6, .flops = 1},
                               {.base = "host", .key = 6, .kind = OP_gelu, .seconds = 50e-6, .flops = 1},
                               {.base = "host", .key = 7, .kind = OP_gating, .seconds = 30e-6, .flops = 1}};
static struct link_row link_rows[] = {{"lan", {1e-5, 1e9, 0, 0, 1, SOURCE_MEASURED, 0, {{0, 0}}}}};
static struct routing_row routing[] = {{"experts", 1, 8, "run"}};
static struct skew_row skew[] = {{"collectives", 0.1, 8, "run"}};
static struct profile parent;

enum { STEPS = 21, KEYS = 7, SENDS = 8 };
#define STEP_NS INT64_C(1200000)

static void set_up(void)
{
    a = arena_new();
    parent = (struct profile){.id = 4, .parent = 3, .cluster = "team", .machine = "m", .note = "n", .calibrated_on = "", .pace = 1,
                              .n_ops = KEYS, .ops = rows, .n_links = 1, .links = link_rows, .n_routings = 1, .routings = routing,
                              .n_skews = 1, .skews = skew};
}
static void tear_down(void) { arena_free(a); }

static void put(struct trace *t, struct span s)
{
    s.peer = -1;
    trace_add(t, s);
}

/* Every operator takes 1.1 times its row on both devices, with a deterministic jitter of 2 %; a collective after the third. */
static struct trace *clean(void)
{
    static struct program_device devices[] = {{.name = "a.0", .type = "fast"}, {.name = "a.1", .type = "slow"}};
    struct program p = {.name = "plan", .n_devices = 2, .devices = devices, .n_stages = 2};
    struct trace *t = trace_new(a, "host", &p);
    t->iteration_ns = STEP_NS;
    for (int32_t step = 0; step < STEPS; step++) {
        for (int32_t d = 0; d < 2; d++) {
            int64_t at = step * STEP_NS;
            for (int i = 0; i < KEYS; i++) {
                double jitter = 1 + 0.02 * ((step * 7 + i * 3 + d) % 5 - 2) / 2;
                int64_t ns = (int64_t)(rows[i].seconds * 1.1e9 * jitter);
                put(t, (struct span){.kind = SPAN_COMPUTE, .device = d, .stage = d, .phase = PHASE_F, .step = step, .begin_ns = at, .end_ns = at + ns,
                                     .key = rows[i].key, .bytes = 8, .uneven_ppm = i == 6 ? 1000000 : 0, .name = op_kind_name(rows[i].kind)});
                at += ns;
                if (i == 2)
                    put(t, (struct span){.kind = SPAN_REDUCE, .stream = STREAM_collective, .device = d, .stage = d, .phase = PHASE_F, .step = step,
                                         .op = 3, .collective = 1, .begin_ns = at, .end_ns = at + 1, .name = "lan"});
            }
            put(t, (struct span){.kind = SPAN_STEP, .stream = STREAM_step, .device = d, .stage = -1, .phase = PHASE_SEND, .step = step, .op = -1,
                                 .begin_ns = (step + 1) * STEP_NS, .end_ns = (step + 1) * STEP_NS, .name = "step"});
        }
        for (int i = 0; i < SENDS; i++) {
            int64_t bytes = 4000 << i % 4, at = step * STEP_NS;
            put(t, (struct span){.kind = SPAN_SEND, .stream = STREAM_send, .phase = PHASE_F, .step = step, .op = i, .begin_ns = at,
                                 .end_ns = at + 10000 + bytes, .bytes = bytes, .name = "lan"});
        }
    }
    return t;
}

/* The simulator in small: both devices run all operators of the profile; messages are negligible. */
static enum status predict(void *user, size_t run, const struct profile *p, int64_t *ns, struct error *e)
{
    double s = 0;
    (void)user, (void)run, (void)e;
    for (int i = 0; i < KEYS; i++) {
        const struct op_row *own = profile_row(p, "type:fast", rows[i].key);
        s += own ? own->seconds : rows[i].seconds;
    }
    *ns = (int64_t)(s * 1e9 * p->pace + 0.5);
    return OK;
}

/* ---- poison ------------------------------------------------------------------------------------- */

enum select { ALL = -1 };
enum what { SPAN_TIMES, OUTLIERS, HEADER, HEADER_AND_STEPS, LINK_TIMES, LINK_OUTLIERS, LINK_LATENCY, CLOCK, DRIFT, JUMP, BACKWARDS, ZERO, NAMES,
            UNEVEN, SLOWDOWN, TYPE, LATE_STEPS };
enum verdict { TAKEN, REFUSED };
struct poison {
    const char *name;
    enum what what;
    int32_t device, key; /* of SPAN_TIMES, OUTLIERS: ALL, or one */
    double factor, share; /* share: of the spans, from the first counted one */
    enum verdict verdict;
    int left_out; /* at least so many rows and kinds */
};

static bool chosen(const struct poison *p, const struct span *x, int64_t *nth)
{
    if (x->kind != SPAN_COMPUTE || (p->device != ALL && x->device != p->device) || (p->key != ALL && x->key != (uint64_t)p->key) || !x->step)
        return false;
    /* share of the steps, spread evenly */
    ++*nth;
    return p->share >= 1 || floor(x->step * p->share) > floor((x->step - 1) * p->share);
}

static void poison_span(const struct poison *p, struct span *x, int64_t *nth)
{
    int64_t ns = x->end_ns - x->begin_ns;
    bool link = x->kind == SPAN_SEND;
    switch (p->what) {
    case SPAN_TIMES:
    case OUTLIERS:
    case JUMP:
        if (chosen(p, x, nth)) x->end_ns = x->begin_ns + (int64_t)((double)ns * p->factor);
        break;
    case ZERO:
        if (chosen(p, x, nth)) x->end_ns = x->begin_ns;
        break;
    case BACKWARDS:
        if (chosen(p, x, nth)) x->end_ns = x->begin_ns - ns;
        break;
    case NAMES:
        if (chosen(p, x, nth)) x->name = "polka";
        break;
    case UNEVEN:
        if (chosen(p, x, nth) && x->uneven_ppm) x->uneven_ppm = (int32_t)p->factor;
        break;
    case LATE_STEPS:
        if (x->kind == SPAN_COMPUTE && x->step) x->step = INT32_MAX;
        break;
    case HEADER_AND_STEPS:
        if (x->kind == SPAN_STEP) x->begin_ns = x->end_ns = (int64_t)((double)x->end_ns * p->factor);
        break;
    case LINK_TIMES:
        if (link) x->end_ns = x->begin_ns + (int64_t)((double)ns * p->factor);
        break;
    case LINK_OUTLIERS:
        if (link && floor(x->step * p->share) > floor((x->step - 1) * p->share)) x->end_ns = x->begin_ns + (int64_t)((double)ns * p->factor);
        break;
    case LINK_LATENCY:
        if (link) x->end_ns += (int64_t)p->factor;
        break;
    case CLOCK:
        if (x->device == 1) x->begin_ns += (int64_t)p->factor, x->end_ns += (int64_t)p->factor;
        break;
    case DRIFT:
        if (x->device == 1 && x->kind != SPAN_STEP)
            x->begin_ns = (int64_t)((double)x->begin_ns * p->factor), x->end_ns = x->begin_ns + (int64_t)((double)ns * p->factor);
        break;
    default: break;
    }
}

static struct trace *poisoned(const struct poison *p)
{
    struct trace *t = clean();
    int64_t nth = 0;
    for (size_t i = 0; i < t->n_spans; i++) poison_span(p, &t->spans[i], &nth);
    if (p->what == HEADER || p->what == HEADER_AND_STEPS) t->iteration_ns = (int64_t)((double)t->iteration_ns * p->factor);
    if (p->what == SLOWDOWN) t->devices[p->device].slowdown = p->factor;
    if (p->what == TYPE) t->devices[p->device].type = "other";
    return t;
}

static const struct poison poisons[] = {
    /* units: the whole run, one type, one operator kind, one operator */
    {"all times in us instead of ns", SPAN_TIMES, ALL, ALL, 1e-3, 1, REFUSED, 0},
    {"all times in ps instead of ns", SPAN_TIMES, ALL, ALL, 1e3, 1, REFUSED, 0},
    {"all times in ms instead of ns", SPAN_TIMES, ALL, ALL, 1e6, 1, REFUSED, 0},
    {"all operators 11 times as slow", SPAN_TIMES, ALL, ALL, 11, 1, REFUSED, 0},
    {"all operators a twelfth", SPAN_TIMES, ALL, ALL, 1. / 12, 1, REFUSED, 0},
    {"all operators 8 times as slow", SPAN_TIMES, ALL, ALL, 8, 1, TAKEN, 0},
    {"all operators a fifth", SPAN_TIMES, ALL, ALL, 0.2, 1, TAKEN, 0},
    {"one type in another unit", SPAN_TIMES, 0, ALL, 1e3, 1, REFUSED, 0},
    {"the other type in another unit", SPAN_TIMES, 1, ALL, 1e-3, 1, REFUSED, 0},
    {"one operator in another unit", SPAN_TIMES, ALL, 3, 1e3, 1, TAKEN, 2},
    {"one operator 12 times as slow on one type", SPAN_TIMES, 0, 2, 12, 1, TAKEN, 1},
    {"one operator a hundredth", SPAN_TIMES, ALL, 1, 0.01, 1, TAKEN, 2},
    {"a small kind in another unit", SPAN_TIMES, ALL, 5, 1e-3, 1, TAKEN, 2},
    {"a kind in another unit", SPAN_TIMES, ALL, 6, 1e3, 1, REFUSED, 0},
    {"a kind that costs nothing", SPAN_TIMES, ALL, 6, 1e-3, 1, TAKEN, 2},
    /* outliers */
    {"a twentieth of the spans a million times", OUTLIERS, ALL, ALL, 1e6, 0.05, TAKEN, 0},
    {"a tenth of the spans a thousand times", OUTLIERS, ALL, ALL, 1e3, 0.1, TAKEN, 0},
    {"four tenths of the spans a hundred times", OUTLIERS, ALL, ALL, 100, 0.4, TAKEN, 0},
    {"six tenths of the spans a hundred times", OUTLIERS, ALL, ALL, 100, 0.6, REFUSED, 0},
    {"four tenths of the spans a thousandth", OUTLIERS, ALL, ALL, 1e-3, 0.4, TAKEN, 0},
    {"a tenth of one operator a billion times", OUTLIERS, ALL, 4, 1e9, 0.1, TAKEN, 0},
    {"a tenth of the spans of no time", ZERO, ALL, ALL, 0, 0.1, TAKEN, 0},
    {"all spans of no time", ZERO, ALL, ALL, 0, 1, REFUSED, 0},
    {"six tenths of the spans of no time", ZERO, ALL, ALL, 0, 0.6, REFUSED, 0},
    {"four tenths of the spans of no time", ZERO, ALL, ALL, 0, 0.4, TAKEN, 0},
    {"a tenth of the spans of unknown operators", NAMES, ALL, ALL, 0, 0.1, TAKEN, 0},
    {"all spans in one step", LATE_STEPS, ALL, ALL, 0, 1, TAKEN, 0},
    /* iterations */
    {"a header in us instead of ns", HEADER, ALL, ALL, 1e-3, 1, REFUSED, 0},
    {"a header in ps instead of ns", HEADER, ALL, ALL, 1e3, 1, REFUSED, 0},
    {"a header of no time", HEADER, ALL, ALL, 0, 1, REFUSED, 0},
    {"a negative header", HEADER, ALL, ALL, -1, 1, REFUSED, 0},
    {"an iteration that nothing explains", HEADER_AND_STEPS, ALL, ALL, 50, 1, REFUSED, 0},
    {"an iteration in us instead of ns", HEADER_AND_STEPS, ALL, ALL, 1e-3, 1, REFUSED, 0},
    {"an iteration three times what is explained", HEADER_AND_STEPS, ALL, ALL, 3, 1, TAKEN, 0},
    /* links */
    {"messages in us instead of ns", LINK_TIMES, ALL, ALL, 1e-3, 1, REFUSED, 0},
    {"messages in ps instead of ns", LINK_TIMES, ALL, ALL, 1e3, 1, REFUSED, 0},
    {"messages 12 times as slow", LINK_TIMES, ALL, ALL, 12, 1, REFUSED, 0},
    {"messages twice as slow", LINK_TIMES, ALL, ALL, 2, 1, TAKEN, 0},
    {"three tenths of the messages a hundred times", LINK_OUTLIERS, ALL, ALL, 100, 0.3, TAKEN, 0},
    {"a latency of a second", LINK_LATENCY, ALL, ALL, 1e9, 1, REFUSED, 0},
    /* clocks */
    {"a clock an hour ahead", CLOCK, 1, ALL, 3.6e12, 1, TAKEN, 0},
    {"a clock that gains a tenth", DRIFT, 1, ALL, 1.1, 1, TAKEN, 0},
    {"a clock in another unit", DRIFT, 1, ALL, 1e3, 1, REFUSED, 0},
    {"a clock that jumps forward in a tenth of the steps", JUMP, 1, 2, 1e7, 0.1, TAKEN, 0},
    {"a clock that jumps back in a tenth of the steps", BACKWARDS, 1, ALL, 0, 0.1, TAKEN, 0},
    {"a clock that runs backwards", BACKWARDS, ALL, ALL, 0, 1, REFUSED, 0},
    /* experts and headers of devices */
    {"a twentieth of the gatings quite uneven", UNEVEN, ALL, ALL, INT32_MAX - 100, 0.05, TAKEN, 0},
    {"all gatings quite uneven", UNEVEN, ALL, ALL, INT32_MAX - 100, 1, TAKEN, 1},
    {"a slowdown of a thousand", SLOWDOWN, 0, ALL, 1e3, 1, REFUSED, 0},
    {"a slowdown of a millionth", SLOWDOWN, 1, ALL, 1e-6, 1, REFUSED, 0},
    {"a device of another type", TYPE, 0, ALL, 0, 1, REFUSED, 0},
};
enum { N_POISONS = sizeof poisons / sizeof *poisons };

/* ---- rules ---------------------------------------------------------------------------------------- */

static double far(double now, double before) { return now > before ? now / before : before / now; }

/* The largest movement of a coefficient. */
static double moved(const struct profile *p)
{
    double most = far(p->pace, parent.pace);
    for (size_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < KEYS; k++)
            if (p->ops[i].key == rows[k].key) most = fmax(most, far(p->ops[i].seconds, rows[k].seconds));
    for (size_t i = 0; i < p->n_factors; i++) most = fmax(most, far(p->factors[i].factor, 1));
    const struct link_model *m = &p->links[0].model;
    for (int i = 0; i < 2; i++) {
        double bytes = i ? 32000 : 4000;
        most = fmax(most, far(m->latency_s + bytes / m->bandwidth_Bps, 1e-5 + bytes / 1e9));
    }
    most = fmax(most, far(p->routings[0].spread, routing[0].spread));
    return fmax(most, p->skews[0].spread / skew[0].spread);
}

START_TEST(a_poisoned_run_moves_nothing_far)
{
    const struct poison *p = &poisons[_i];
    struct trace *t = poisoned(p);
    struct calibration c;
    enum status st = calibrate(a, &parent, &cluster, &t, 1, false, predict, NULL, &c, &err);
    ck_assert_msg((st == OK) == (p->verdict == TAKEN), "%s: exit code %d: %s", p->name, (int)st, err.text);
    ck_assert_msg(st == OK || (st == ERR_INPUT && err.text[0]), "%s", p->name);
    if (st == OK) {
        ck_assert_msg(moved(&c.next) <= 10.0001, "%s: %g", p->name, moved(&c.next));
        ck_assert_msg(c.n_rows_left_out + c.n_kinds_left_out >= p->left_out, "%s: %d, %d", p->name, (int)c.n_rows_left_out, (int)c.n_kinds_left_out);
    }
    ck_assert_uint_eq(parent.n_ops, KEYS); /* the generation before is as it was */
    ck_assert_double_eq(parent.ops[0].seconds, 100e-6);
}
END_TEST

/* Outliers below half of the spans change a row by less than the jitter. */
START_TEST(outliers_do_not_move_the_medians)
{
    struct trace *t = clean();
    struct calibration good, c;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, NULL, &good, &err), OK);
    ck_assert_int_eq(good.n_rows_left_out, 0);
    for (int i = 0; i < N_POISONS; i++) {
        const struct poison *p = &poisons[i];
        if (p->share >= 0.4 || p->what == UNEVEN) continue;
        t = poisoned(p);
        ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, NULL, &c, &err), OK);
        for (int k = 0; k < KEYS; k++)
            ck_assert_double_eq_tol(profile_row(&c.next, "type:slow", rows[k].key)->seconds / profile_row(&good.next, "type:slow", rows[k].key)->seconds,
                                    1, 0.03);
    }
}
END_TEST

/* Feedback that arrives twice counts once; the fifth generation on the same run has the values of the first. */
START_TEST(repeated_feedback_changes_nothing)
{
    struct trace *twice[] = {clean(), clean()};
    struct calibration once, c;
    struct profile generation;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, twice, 1, false, predict, NULL, &once, &err), OK);
    ck_assert_int_eq(calibrate(a, &parent, &cluster, twice, 2, false, predict, NULL, &c, &err), OK);
    generation = once.next;
    for (int g = 0; g < 5; g++) {
        generation.id = 5 + g;
        for (size_t i = 0; i < once.next.n_ops; i++) ck_assert_double_eq(c.next.ops[i].seconds, once.next.ops[i].seconds);
        for (size_t i = 0; i < once.next.n_factors; i++) ck_assert_double_eq(c.next.factors[i].factor, once.next.factors[i].factor);
        ck_assert_double_eq(c.next.pace, once.next.pace);
        ck_assert_int_eq(calibrate(a, &generation, &cluster, twice, 1, false, predict, NULL, &c, &err), OK);
        generation = c.next;
    }
}
END_TEST

/* A feedback loop that multiplies every time by 4 is stopped at ten times the measured base, not at ten times the last generation. */
START_TEST(small_steps_do_not_add_up)
{
    struct poison p = {"x", SPAN_TIMES, ALL, ALL, 1, 1, TAKEN, 0};
    struct profile generation = parent;
    struct calibration c;
    int accepted = 0;
    for (int g = 0; g < 4; g++) {
        p.factor *= 4;
        struct trace *t = poisoned(&p);
        if (calibrate(a, &generation, &cluster, &t, 1, false, predict, NULL, &c, &err) != OK) break;
        generation = c.next;
        accepted++;
        ck_assert(moved(&generation) <= 10.0001);
    }
    ck_assert_int_eq(accepted, 1);
    /* 16 times the base, 4 times the last generation: the message names the one that counts */
    ck_assert_msg(strstr(err.text, "took 17.6 times the cost measured on host before any calibration") != NULL, "%s", err.text);
}
END_TEST

START_TEST(what_is_forced_is_taken)
{
    struct poison p = {"x", SPAN_TIMES, ALL, ALL, 1e3, 1, REFUSED, 0};
    struct trace *t = poisoned(&p);
    struct calibration c;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, true, predict, NULL, &c, &err), OK);
    ck_assert(moved(&c.next) > 900);
}
END_TEST

Suite *calibrate_poison_suite(void)
{
    Suite *s = suite_create("profiles/calibrate_poison");
    TCase *t = tcase_create("poison");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_poisoned_run_moves_nothing_far, 0, N_POISONS);
    tcase_add_test(t, outliers_do_not_move_the_medians);
    tcase_add_test(t, repeated_feedback_changes_nothing);
    tcase_add_test(t, small_steps_do_not_add_up);
    tcase_add_test(t, what_is_forced_is_taken);
    suite_add_tcase(s, t);
    return s;
}

/* Messages between devices along a line of stages and back. Ranks are forked; each has a stand-in GPU. */
#include "tests/support/made_programs.h"

#include "exec/device_transport/plan.h"

/* ---- messages --------------------------------------------------------------------------------- */

enum { MESSAGE = 3000, STEPS = 3 }; /* floats; more than a pipe holds */

/* Two activations forwards, their receives in another order than their sends, and a gradient back. */
struct line {
    struct made_program *m;
    int32_t in[RANKS_MAX][2], out[RANKS_MAX][2], grad_in[RANKS_MAX], grad_out[RANKS_MAX];
    int32_t kept[RANKS_MAX]; /* slot of all that came back */
};

static int32_t add_channel(struct made_program *m, int32_t from, int32_t from_slot, int32_t to,
                           int32_t to_slot, int32_t ahead, bool gradient)
{
    struct program *p = &m->p;
    p->stages[from].buffer_rings[p->stages[from].slots[from_slot].buffer_ring].sent = p->n_channels;
    p->stages[to].buffer_rings[p->stages[to].slots[to_slot].buffer_ring].received = p->n_channels;
    p->channels[p->n_channels] = (struct channel){.from_stage = from,
                                                  .to_stage = to,
                                                  .from_slot = from_slot,
                                                  .to_slot = to_slot,
                                                  .bytes = MESSAGE * 4,
                                                  .receive_ahead = ahead,
                                                  .gradient = gradient};
    return p->n_channels++;
}

static void procedures(struct line *l, int32_t s)
{
    struct program_stage *x = &l->m->p.stages[s];
    int32_t n = l->m->p.n_stages, f = 0, b = 0;
    struct instr *list = ARENA_ARRAY(l->m->a, struct instr, 8), *back = list + 5;
    for (int k = 1; s && k >= 0; k--) list[f++] = (struct instr){INSTR_RECEIVE, l->in[s][k]};
    for (int k = 0; s + 1 < n && k < 2; k++) list[f++] = (struct instr){INSTR_SEND, l->out[s][k]};
    if (s + 1 < n) back[b++] = (struct instr){INSTR_RECEIVE, l->grad_in[s]};
    if (s) back[b++] = (struct instr){INSTR_SEND, l->grad_out[s]};
    x->procedures = ARENA_ARRAY(l->m->a, struct procedure, 2);
    x->n_procedures = 2;
    x->procedures[0] = (struct procedure){'F', "", 0, 0, f, list};
    x->procedures[1] = (struct procedure){'B', "", 0, 0, b, back};
}

static void make_line(struct line *l, struct arena *a, uint64_t seed, int32_t n)
{
    struct made_program *m = l->m = made_program_make(a, seed, n);
    for (int32_t s = 0; s + 1 < n; s++) {
        int32_t ahead = (int32_t)made_program_draw(m, 1, 3),
                count = (int32_t)made_program_draw(m, 1, 3);
        for (int k = 0; k < 2; k++) {
            int32_t from = made_program_slot(m, s, SLOT_BUFFER_RING, DTYPE_fp32, MESSAGE, count),
                    to = made_program_slot(m, s + 1, SLOT_BUFFER_RING, DTYPE_fp32, MESSAGE, 3);
            l->out[s][k] = l->in[s + 1][k] = add_channel(m, s, from, s + 1, to, ahead, false);
        }
        ahead = (int32_t)made_program_draw(m, 1, 3);
        int32_t from = made_program_slot(m, s + 1, SLOT_BUFFER_RING, DTYPE_fp32, MESSAGE,
                                         (int32_t)made_program_draw(m, 1, 3)),
                to = made_program_slot(m, s, SLOT_BUFFER_RING, DTYPE_fp32, MESSAGE, 3);
        l->grad_out[s + 1] = l->grad_in[s] = add_channel(m, s + 1, from, s, to, ahead, true);
    }
    for (int32_t s = 0; s < n; s++) {
        l->kept[s] = made_program_slot(m, s, SLOT_STATE, DTYPE_fp32, MESSAGE * 3 * STEPS, 0);
        procedures(l, s);
    }
}

static float *at(const struct device_rank *r, int32_t s, int32_t slot_number, int64_t seq)
{
    return lane_memory_slot(&r->memory[s], slot_number, seq);
}

/* y = x + x on the compute stream. */
static void twice(struct device_rank *r, float *y, const float *x)
{
    static const struct op_attrs none;
    static struct op_shapes shapes;
    shapes = (struct op_shapes){.n_inputs = 2,
                                .input = {{1, {MESSAGE}}, {1, {MESSAGE}}},
                                .n_outputs = 1,
                                .output = {{1, {MESSAGE}}}};
    const struct op_call c = {.kind = OP_add,
                              .dtype = DTYPE_fp32,
                              .attrs = &none,
                              .shapes = &shapes,
                              .input = {x, x},
                              .output = {y}};
    NEED(r->backend.run(&r->backend, STREAM_COMPUTE, &c, &r->err) == OK, "%s", r->err.text);
}

#define ASK(call) NEED((call) == OK, "%s", r->err.text)

static void room(struct device_rank *r, int32_t channel, int64_t seq)
{
    const struct channel *c = &r->p->channels[channel];
    const struct program_stage *s = &r->p->stages[c->from_stage];
    int64_t count = s->buffer_rings[s->slots[c->from_slot].buffer_ring].count;
    if (seq >= count) ASK(device_transport_room(r->t, channel, seq - count, &r->err));
}

static void post(struct device_rank *r, int32_t channel, int64_t seq)
{
    if (seq < 3 * STEPS) ASK(device_transport_post(r->t, channel, seq, &r->err));
}

/* The first stage sends what it has kept, the others twice what came, of both. */
static void forward(struct device_rank *r, const struct line *l, int64_t seq)
{
    const struct channel *c = r->p->channels;
    int32_t s = r->rank, n = r->p->n_stages;
    for (int k = 0; s + 1 < n && k < 2; k++) room(r, l->out[s][k], seq);
    for (int k = 1; s && k >= 0; k--)
        ASK(device_transport_receive(r->t, l->in[s][k], seq, &r->err));
    for (int k = 0; s + 1 < n && k < 2; k++) {
        float *out = at(r, s, c[l->out[s][k]].from_slot, seq);
        if (s)
            twice(r, out, at(r, s, c[l->in[s][k]].to_slot, seq));
        else
            ASK(r->backend.copy(&r->backend, STREAM_COMPUTE, out,
                                at(r, s, l->kept[s], 0) + seq * MESSAGE + k, (MESSAGE - 1) * 4,
                                &r->err));
        ASK(device_transport_send(r->t, l->out[s][k], seq, &r->err));
    }
    for (int k = 0; s && s + 1 < n && k < 2; k++)
        post(r, l->in[s][k], seq + c[l->in[s][k]].receive_ahead);
}

/* The last stage sends twice the second activation back. */
static void backward(struct device_rank *r, const struct line *l, int64_t seq)
{
    const struct channel *c = r->p->channels;
    int32_t s = r->rank, n = r->p->n_stages;
    if (s) room(r, l->grad_out[s], seq);
    if (s + 1 < n) ASK(device_transport_receive(r->t, l->grad_in[s], seq, &r->err));
    const float *in = at(r, s, s + 1 < n ? c[l->grad_in[s]].to_slot : c[l->in[s][1]].to_slot, seq);
    if (s)
        twice(r, at(r, s, c[l->grad_out[s]].from_slot, seq), in);
    else
        ASK(r->backend.copy(&r->backend, STREAM_COMPUTE, at(r, s, l->kept[s], 0) + seq * MESSAGE,
                            in, (MESSAGE - 1) * 4, &r->err));
    if (s) ASK(device_transport_send(r->t, l->grad_out[s], seq, &r->err));
    if (s + 1 < n) post(r, l->grad_in[s], seq + c[l->grad_in[s]].receive_ahead);
    for (int k = 0; s && s + 1 == n && k < 2; k++)
        post(r, l->in[s][k], seq + c[l->in[s][k]].receive_ahead);
}

static float word(int64_t seq, int64_t i) { return (float)((seq * 7919 + i * 31) % 1000); }

static int along_the_line(void *owner, int32_t rank)
{
    struct line *l = owner;
    struct arena *a = arena_new();
    struct device_rank space, *r = &space;
    const struct program *p = &l->m->p;
    int32_t n = p->n_stages, warm = n - 1 - rank;
    float *host = ARENA_ARRAY(a, float, (size_t)MESSAGE * 3 * STEPS);
    ASK(device_rank_open(r, a, p, p->devices[rank].index));
    for (int64_t seq = 0; seq < 3 * STEPS; seq++)
        for (int64_t i = 0; i < MESSAGE; i++) host[seq * MESSAGE + i] = word(seq, i);
    if (rank == 0)
        ASK(r->backend.upload(&r->backend, at(r, 0, l->kept[0], 0), host,
                              (int64_t)MESSAGE * 3 * STEPS * 4, &r->err));
    struct device_transport_options o = device_rank_options(r);
    o.timed = true;
    ASK(device_transport_open(a, &o, &r->t, &r->err));
    for (int32_t c = 0; c < p->n_channels; c++)
        for (int64_t seq = 0; seq < p->channels[c].receive_ahead; seq++)
            if (p->channels[c].to_stage == rank) post(r, c, seq);
    for (int64_t step = 0; step < STEPS; step++)
        for (int64_t i = 0; i < 3 + warm; i++) { /* one forward, one backward */
            if (i < 3) forward(r, l, 3 * step + i);
            if (i >= warm) backward(r, l, 3 * step + i - warm);
        }
    ASK(device_rank_wait(r));
    ASK(r->backend.finish(&r->backend, &r->err));
    struct span_list spans = {.a = a};
    ASK(device_transport_spans(r->t, STEPS - 1, 0, &spans, &r->err));
    size_t ends = (rank ? 3U : 0U) + (rank + 1 < n ? 3U : 0U);
    NEED(spans.n == ends * 3 * STEPS, "%zu spans", spans.n);
    for (size_t i = 0; i < spans.n; i++)
        NEED(spans.spans[i].end_ns >= spans.spans[i].begin_ns &&
                 spans.spans[i].bytes == MESSAGE * 4,
             "span %zu", i);
    if (rank == 0)
        ASK(r->backend.download(&r->backend, host, at(r, 0, l->kept[0], 0),
                                (int64_t)MESSAGE * 3 * STEPS * 4, &r->err));
    float times = 1;
    for (int32_t s = 0; s < 2 * n - 3; s++) times *= 2;
    for (int64_t seq = 0; rank == 0 && seq < 3 * STEPS; seq++)
        for (int64_t i = 0; i + 1 < MESSAGE; i++)
            NEED(host[seq * MESSAGE + i] == times * word(seq, i + 1),
                 "message %" PRId64 " element %" PRId64 ": %g, not %g", seq, i,
                 (double)host[seq * MESSAGE + i], (double)(times * word(seq, i + 1)));
    device_rank_close(r);
    arena_free(a);
    return 0;
}

START_TEST(messages_pass_along_a_line_and_back_with_receives_ahead)
{
    struct arena *a = arena_new();
    struct line l = {0};
    int32_t n = 2 + _i % 3;
    make_line(&l, a, 900 + (uint64_t)_i, n);
    device_ranks_run(along_the_line, &l, n);
    arena_free(a);
}
END_TEST

/* The twin refuses two ranks of one GPU on one host, as the library does. */
START_TEST(ranks_that_share_a_gpu_pass_for_hosts_of_their_own)
{
    struct arena *a = arena_new();
    struct line l = {0};
    make_line(&l, a, 31, 3);
    for (int32_t i = 0; i < 3; i++) l.m->p.devices[i].index = 0;
    device_ranks_run(along_the_line, &l, 3);
    arena_free(a);
}
END_TEST

START_TEST(channels_that_are_sent_and_received_alike_share_a_communicator)
{
    struct arena *a = arena_new();
    struct line l = {0};
    struct talks t;
    unsigned char channel[16], group[GROUPS_MAX];
    make_line(&l, a, 7, 3);
    memset(channel, TRANSPORT_DEVICE, sizeof channel);
    memset(group, TRANSPORT_DEVICE, sizeof group);
    plan_talks(a, &l.m->p, channel, group, &t);
    ck_assert_int_eq(t.n_channel_groups, 4); /* forwards and backwards, twice */
    ck_assert_int_eq(t.channel_group_of[l.out[0][0]], t.channel_group_of[l.out[0][1]]);
    ck_assert_int_lt(t.place[l.out[0][0]], t.place[l.out[0][1]]);
    l.m->p.channels[l.out[0][1]].receive_ahead += 1;
    plan_talks(a, &l.m->p, channel, group, &t);
    ck_assert_int_eq(t.n_channel_groups, 5);
    ck_assert_int_ne(t.channel_group_of[l.out[0][0]], t.channel_group_of[l.out[0][1]]);
    arena_free(a);
}
END_TEST

/* The least blocks that any link of a communicator allows; a network only where no two links say another. */
START_TEST(a_communicator_goes_as_the_links_that_it_crosses_say)
{
    struct arena *a = arena_new();
    struct line l = {0};
    struct talks t;
    unsigned char channel[16], group[GROUPS_MAX];
    int32_t first[3] = {0, 1, 0}, none[3] = {0};
    struct program_link links[2] = {{.name = "wide", .max_ctas = 8, .net_name = "IB"},
                                    {.name = "slow", .max_ctas = 2}};
    make_line(&l, a, 7, 3);
    struct program *p = &l.m->p;
    p->links = links, p->n_links = 2;
    for (int32_t c = 0; c < p->n_channels; c++)
        p->channels[c].link = p->channels[c].from_stage == 2 || p->channels[c].to_stage == 2;
    struct collective_member members[3] = {{.stage = 0}, {.stage = 1}, {.stage = 2}};
    p->collectives[p->n_collectives++] = (struct collective){.name = "all",
                                                             .n_members = 3,
                                                             .members = members,
                                                             .dtype = DTYPE_fp32,
                                                             .link = first,
                                                             .direction = none};
    memset(channel, TRANSPORT_DEVICE, sizeof channel);
    memset(group, TRANSPORT_DEVICE, sizeof group);
    plan_talks(a, p, channel, group, &t);
    const struct talk *wide = &t.talk[t.channel_group[t.channel_group_of[l.out[0][0]]].talk],
                      *slow = &t.talk[t.channel_group[t.channel_group_of[l.out[1][0]]].talk],
                      *all = &t.talk[t.talk_of[0]];
    ck_assert(wide->max_ctas == 8 && !strcmp(wide->net_name, "IB"));
    ck_assert(slow->max_ctas == 2 && !slow->net_name);
    ck_assert(all->max_ctas == 2 && !strcmp(all->net_name, "IB"));
    links[1].net_name = "Socket";
    plan_talks(a, p, channel, group, &t);
    ck_assert(t.talk[t.talk_of[0]].clash && !t.talk[t.talk_of[0]].net_name);
    arena_free(a);
}
END_TEST

Suite *device_transport_suite(void)
{
    Suite *s = suite_create("device_transport");
    TCase *t = tcase_create("device_transport");
    tcase_add_loop_test(t, messages_pass_along_a_line_and_back_with_receives_ahead, 0,
                        suites_long() ? 30 : 6);
    tcase_add_test(t, ranks_that_share_a_gpu_pass_for_hosts_of_their_own);
    tcase_add_test(t, channels_that_are_sent_and_received_alike_share_a_communicator);
    tcase_add_test(t, a_communicator_goes_as_the_links_that_it_crosses_say);
    suite_add_tcase(s, t);
    return s;
}

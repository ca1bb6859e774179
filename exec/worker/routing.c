#include "exec/worker/routing.h"

#include "core/base/arena.h"
#include "core/program/program.h"
#include "exec/comm/comm.h"

#include <stdlib.h>
#include <string.h>

struct routing_count {
    int32_t stage, block; /* of the program; from 0 */
    int64_t rows;
    int64_t *chosen; /* (experts) by place */
};

static bool is_zero(const void *x, enum dtype t, int64_t i)
{
    if (dtype_is_half(t)) return !(((const uint16_t *)x)[i] & 0x7fff);
    return t == DTYPE_fp64 ? ((const double *)x)[i] == 0 : ((const float *)x)[i] == 0;
}

static void count_rows(const void *gates, enum dtype t, int64_t rows, int64_t experts,
                       int64_t *chosen)
{
    for (int64_t i = 0; i < rows * experts; i++) chosen[i % experts] += !is_zero(gates, t, i);
}

static int32_t uneven_ppm(const int64_t *chosen, int64_t experts)
{
    double sum = 0, squares = 0, n = (double)experts;
    for (int64_t k = 0; k < experts; k++) {
        sum += (double)chosen[k];
        squares += (double)chosen[k] * (double)chosen[k];
    }
    return sum > 0 ? (int32_t)(1e6 * (n * squares / (sum * sum) - 1) + 0.5) : 0;
}

void routing_open(struct routing *r, struct arena *a, const struct program *p)
{
    *r = (struct routing){.a = p->n_experts ? a : NULL, .p = p};
}

/* A device has few blocks. */
static struct routing_count *count_of(struct routing *r, int32_t stage, int32_t block)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->counts[i].stage == stage && r->counts[i].block == block) return &r->counts[i];
    r->counts = arena_grow(r->a, r->counts, r->n, &r->capacity, sizeof *r->counts);
    r->counts[r->n] = (struct routing_count){stage, block, 0, ARENA_ARRAY(r->a, int64_t, (size_t)r->p->n_experts)};
    return &r->counts[r->n++];
}

int32_t routing_count_call(struct routing *r, const struct span *s, const struct op_call *c, const void *gates)
{
    const struct shape *shape = &c->shapes->output[0];
    int64_t n = shape_elements(shape), experts = shape_last(shape);
    if (!n) return 0;
    struct arena *scratch = arena_new();
    int64_t *chosen = ARENA_ARRAY(scratch, int64_t, (size_t)experts);
    count_rows(gates, c->dtype, n / experts, experts, chosen);
    int32_t ppm = uneven_ppm(chosen, experts);
    if (r->a && s->phase == PHASE_F && c->attrs->block && experts == r->p->n_experts) {
        struct routing_count *of = count_of(r, s->stage, c->attrs->block - 1);
        of->rows += n / experts;
        for (int64_t k = 0; k < experts; k++) of->chosen[k] += chosen[k];
    }
    arena_free(scratch);
    return ppm;
}

enum status routing_measure(struct routing *r, struct backend *b, const struct span *s, const struct op_call *c,
                            int32_t *out_ppm, struct error *err)
{
    int64_t bytes = shape_elements(&c->shapes->output[0]) * dtype_bytes(c->dtype);
    struct arena *scratch = arena_new();
    char *gates = ARENA_ARRAY(scratch, char, (size_t)bytes + 1);
    enum status st = b->download(b, gates, c->output[0], bytes, err);
    if (st == OK) *out_ppm = routing_count_call(r, s, c, gates);
    arena_free(scratch);
    return st;
}

/* --- all ranks ---------------------------------------------------------------------------------- */

/* A row for each count: block, replica, stage of the plan, rows, chosen by expert. */
enum { ROW_BLOCK, ROW_REPLICA, ROW_STAGE, ROW_ROWS, ROW_CHOSEN };

static const int32_t *order_of(const struct program *p, int32_t block)
{
    for (int32_t i = 0; i < p->n_expert_blocks; i++)
        if (p->expert_blocks[i].block == block) return p->expert_blocks[i].order;
    return NULL;
}

static int by_place(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    for (int i = ROW_BLOCK; i <= ROW_STAGE; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int64_t *rows_of(const struct routing *r, struct arena *a, size_t width)
{
    int64_t *rows = ARENA_ARRAY(a, int64_t, r->n * width + 1);
    for (size_t i = 0; i < r->n; i++) {
        const struct routing_count *x = &r->counts[i];
        const int32_t *order = order_of(r->p, x->block);
        int64_t *row = rows + i * width;
        row[ROW_BLOCK] = x->block, row[ROW_ROWS] = x->rows;
        row[ROW_REPLICA] = r->p->stages[x->stage].replica, row[ROW_STAGE] = r->p->stages[x->stage].stage;
        for (int32_t k = 0; k < r->p->n_experts; k++) row[ROW_CHOSEN + (order ? order[k] : k)] = x->chosen[k];
    }
    return rows;
}

/* Positions that a replica's gates have in these steps. */
static int64_t positions(const struct program *p, int64_t replica, int64_t steps)
{
    for (int32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].replica == replica && !p->stages[i].server)
            return steps * p->stages[i].microbatches * p->microbatch * p->sequence_length;
    return 0;
}

/* Adds the n rows of one block, replica and stage: how many devices computed each gate follows from their number of rows. */
static void add_stage(const struct program *p, const int64_t *row, size_t n, size_t width, int64_t steps, int64_t *tokens)
{
    int64_t rows = 0, all = positions(p, row[ROW_REPLICA], steps);
    for (size_t i = 0; i < n; i++) rows += row[i * width + ROW_ROWS];
    int64_t copies = all ? (rows + all / 2) / all : 1;
    for (int32_t k = 0; k < p->n_experts; k++) {
        int64_t sum = 0;
        for (size_t i = 0; i < n; i++) sum += row[i * width + ROW_CHOSEN + (size_t)k];
        tokens[k] += sum / (copies > 1 ? copies : 1);
    }
}

static void put(const struct routing *r, struct arena *a, const int64_t *rows, size_t n, size_t width, int64_t steps, struct trace *t)
{
    struct trace_routing *out = ARENA_ARRAY(a, struct trace_routing, n);
    int64_t *tokens = NULL;
    for (size_t i = 0, k; i < n; i = k) {
        const int64_t *row = rows + i * width;
        for (k = i + 1; k < n && !by_place(row, rows + k * width);) k++;
        if (!i || row[ROW_BLOCK] != row[ROW_BLOCK - (int64_t)width]) {
            tokens = ARENA_ARRAY(a, int64_t, (size_t)r->p->n_experts);
            out[t->n_routings++] = (struct trace_routing){(int32_t)row[ROW_BLOCK], r->p->n_experts, tokens};
        }
        add_stage(r->p, row, k - i, width, steps, tokens);
    }
    t->routings = out;
}

void routing_gather(const struct routing *r, struct arena *a, struct comm *c, int64_t steps, struct trace *t)
{
    if (!r->a) return;
    size_t width = ROW_CHOSEN + (size_t)r->p->n_experts;
    int64_t bytes, *mine = rows_of(r, r->a, width);
    int64_t *rows = comm_gather(c, a, mine, (int64_t)(r->n * width * sizeof *mine), &bytes);
    if (!t || !rows || !bytes) return;
    size_t n = (size_t)bytes / (width * sizeof *rows);
    qsort(rows, n, width * sizeof *rows, by_place);
    put(r, a, rows, n, width, steps, t);
}

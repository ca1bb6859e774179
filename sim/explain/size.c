/* Table sizes of an explanation, from the program alone. */
#include "sim/explain/internal.h"

/* Upper bound: a wait is recorded only if it takes time. */
static int64_t records_of_call(const struct program *p, const struct program_stage *s,
                               const struct procedure *f)
{
    int64_t n = 2; /* RECORD_END, the wait in front of OFFLOADs */
    for (int32_t r = 0; r < s->n_buffer_rings; r++) n += s->buffer_rings[r].sent >= 0;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct instr *x = &f->instrs[i];
        bool joins = x->kind == INSTR_COLLECTIVE && collective_of_tensor(&p->collectives[x->arg]);
        /* a collective: records of lateness, of its start and of its wait */
        n += joins ? 3 : x->kind != INSTR_LOAD && x->kind != INSTR_LOSS; /* OFFLOAD: the wait behind it */
    }
    return n;
}

double explain_records(const struct program *p, int32_t lane)
{
    const struct order *o = &p->orders[p->lanes[lane].order];
    double n = 0;
    for (int32_t r = 0; r < o->n_runs; r++)
        for (int32_t k = 0; k < o->runs[r].n_calls; k++) {
            const struct call *c = &o->runs[r].calls[k];
            const struct program_stage *s = program_called(p, lane, c);
            n += (double)o->runs[r].repeat *
                 (double)records_of_call(p, s, &s->procedures[c->procedure]);
        }
    return n;
}

double explain_bytes(const struct program *p, int32_t steps, double spans)
{
    double records = 0, longest = 0, messages = 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        double n = explain_records(p, i);
        records += n;
        if (n > longest) longest = n;
    }
    for (int32_t i = 0; i < p->n_channels; i++)
        messages += p->stages[p->channels[i].from_stage].microbatches;
    /* A span is an index in a lane's list, or a part and a run of a collective. Link queues are sorted with a copy. The path of
     * one step has about as many pieces as its longest lane has records; their array grows by doubling. */
    return spans * (double)(sizeof(struct explained_part) + sizeof(struct collective_run)) +
           steps * records * (double)sizeof(struct record) +
           steps * messages *
               (double)(sizeof(struct explained_message) + 2 * sizeof(struct on_resource)) +
           longest * (double)(4 * sizeof(struct explain_piece) + 2 * sizeof(struct explain_row));
}

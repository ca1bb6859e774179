/* core/program/servers.c - parameter servers in a program: their records, and what is valid. */
#include "core/program/servers.h"

#include "core/program/lines.h"
#include "core/program/valid.h"
#include "core/program/words.h"

#include <inttypes.h>
#include <string.h>

static const char *const modes[] = {"bsp", "ssp", "asp"}, *const rates[] = {"constant", "inverse"};

/* --- records --- */

enum status program_read_server(struct reader *r, struct parameter_server *x)
{
    int mode, rate;
    TRY(words_start(r, "parameter_server"));
    TRY(words_int(r, 1, PROGRAM_ITEMS_MAX, &x->n));
    TRY(words_choice(r, modes, 3, &mode));
    TRY(words_int(r, 0, mode == SERVER_SSP ? INT32_MAX : 0, &x->bound));
    TRY(words_choice(r, rates, 2, &rate));
    x->mode = (enum server_mode)mode, x->rate = (enum server_rate)rate;
    return words_int(r, -1, INT32_MAX, &x->drop_above);
}

void program_write_server(struct lines *out, const struct parameter_server *x)
{
    if (!x->n) return;
    lines_text(out, "\nparameter_server"), lines_int(out, x->n);
    lines_char(out, ' '), lines_text(out, modes[x->mode]), lines_int(out, x->bound);
    lines_char(out, ' '), lines_text(out, rates[x->rate]), lines_int(out, x->drop_above);
}

enum status program_read_server_stage(struct reader *r, const struct program *p, struct program_stage *s)
{
    if (!p->server.n) return OK;
    TRY(words_start(r, "server"));
    TRY(words_int(r, 0, p->server.n, &s->server));
    return words_int(r, 0, INT32_MAX, &s->island);
}

void program_write_server_stage(struct lines *out, const struct program *p, const struct program_stage *s)
{
    if (!p->server.n) return;
    lines_text(out, "server"), lines_int(out, s->server), lines_int(out, s->island), lines_char(out, '\n');
}

/* --- validity --- */

enum status valid_server_channel(struct valid *c, int32_t index)
{
    const struct channel *x = &c->p->channels[index];
    const struct program_stage *from = &c->p->stages[x->from_stage], *to = &c->p->stages[x->to_stage];
    NEED((from->server > 0) != (to->server > 0) && from->slots[x->from_slot].buffer_ring < 0 &&
             to->slots[x->to_slot].buffer_ring < 0 && x->receive_ahead == 1 && x->link >= 0,
         "channel %" PRId32 ": a message a step is between a worker and a parameter server, outside of buffer rings", index);
    return OK;
}

/* One of a server's two calls for a worker. */
static enum status check_call(const struct valid *c, int32_t stage, int32_t worker, bool push, const struct call *x)
{
    const struct program_stage *s = &c->p->stages[stage];
    const struct procedure *f = &s->procedures[x->procedure];
    const char *variant = push ? "push" : "pull";
    int32_t messages = 0;
    NEED(f->phase == PHASE_U && !strcmp(f->variant, variant), "server %" PRId32 ": no %s of worker %" PRId32, s->server, variant,
         worker);
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct instr *in = &f->instrs[i];
        bool message = in->kind == (push ? INSTR_RECEIVE : INSTR_SEND);
        NEED(message || in->kind == INSTR_COMPUTE, "server %" PRId32 ": a %s of worker %" PRId32 " with other instructions",
             s->server, variant, worker);
        if (!message) continue;
        const struct channel *k = &c->p->channels[in->arg];
        NEED((push ? k->from_stage : k->to_stage) == worker, "server %" PRId32 ": channel %" PRId32 " is not of worker %" PRId32,
             s->server, in->arg, worker);
        messages++;
    }
    int32_t n = 0;
    for (int32_t i = 0; push && i < c->p->n_channels; i++) n += c->p->channels[i].from_stage == worker && c->p->channels[i].to_stage == stage;
    NEED(!push || n == messages, "server %" PRId32 ": the push of worker %" PRId32 " receives %" PRId32 " of %" PRId32 " messages", s->server,
         worker, messages, n);
    NEED(messages > 0, "server %" PRId32 ": a %s of worker %" PRId32 " without messages", s->server, variant, worker);
    return OK;
}

/* The calls of a server that chooses among arrivals: a push and a pull for each worker in turn. */
static enum status check_lane(const struct valid *c, int32_t stage, int32_t n_workers)
{
    const struct program_stage *s = &c->p->stages[stage];
    const struct order *o = &c->p->orders[c->p->lanes[s->device].order];
    struct cursor cursor;
    struct call call;
    NEED(o->n_calls == 2 * (int64_t)n_workers, "server %" PRId32 ": %" PRId64 " calls for %" PRId32 " workers", s->server,
         o->n_calls, n_workers);
    cursor_start(&cursor, o);
    for (int32_t i = 0; cursor_next(&cursor, &call); i++) TRY(check_call(c, stage, i / 2, i % 2 == 0, &call));
    return OK;
}

enum status valid_servers(struct valid *c)
{
    const struct program *p = c->p;
    int32_t n = p->n_stages - p->server.n;
    if (!p->server.n) return OK;
    c->where = (struct program_place){SECTION_HEAD, 0, 0};
    NEED(n > 0 && p->server.mode <= SERVER_ASP && p->server.rate <= SERVER_INVERSE && p->server.drop_above >= -1,
         "parameter server: out of range");
    for (int32_t i = 0; i < p->n_stages; i++) {
        const struct program_stage *s = &p->stages[i];
        c->where = (struct program_place){SECTION_STAGE, i, 0};
        NEED(s->server == (i < n ? 0 : i - n + 1), "stage %" PRId32 ": servers are the last stages, in order", i);
        NEED(p->lanes[s->device].n_stages == 1 && (!s->server || s->microbatches == 1),
             "stage %" PRId32 ": a parameter server, or a worker, has its device alone", i);
        if (s->server && parameter_server_by_arrival(&p->server)) TRY(check_lane(c, i, n));
    }
    return OK;
}

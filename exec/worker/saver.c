#include "exec/worker/saver.h"

#include "core/base/log.h"
#include "core/base/units.h"
#include "core/collective/tensor_shard.h"
#include "exec/checkpoint/written.h"
#include "exec/clock.h"
#include "exec/worker/accumulated.h"
#include "exec/worker/chunks.h"
#include "exec/worker/inputs.h"
#include "exec/worker/peer_copy.h"
#include "exec/worker/progress.h"
#include "exec/worker/rank.h"
#include "exec/worker/run_board.h"
#include "exec/worker/saved_layout.h"
#include "exec/worker/saved_tensor.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/step_log.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Interval at which rank 0 looks for the notes of other ranks, and a rank for the end of its own write: a generation is complete, and a waiting
 * step goes on, that much late, and 500 looks a second cost less than 1 % of a processor. */
#define LOOK_NS INT64_C(2000000)

/* With --save-every auto the first two checkpoints are after so many steps each: the first step, which warms up, then is one of five, and the
 * cost is known after ten steps. */
#define FIRST_EVERY 5

/* Checkpoints whose memory is compared before the first step: two periods of local SGD that exchange every eighth checkpoint. */
#define RESERVE_LOOKS 16

/* ---- the start of a generation: all ranks together, nothing else under way -------------------- */

static enum status skip(const struct saver *v, int64_t step, const char *what)
{
    if (v->r->index == 0)
        log_warn("no checkpoint of step %" PRId64 ": %s not finite; '%s' keeps its earlier checkpoints", step, what,
                 v->in_memory ? "the memory" : v->r->o->save);
    return OK;
}

#define NOT_FINITE "parameters or optimizer state are"

/* In memory: generations take turns, beginning with the one that a restart does not need. */
static int32_t generation_of(const struct saver *v)
{
    return (v->r->o->memory->first + v->taken) % CHECKPOINT_MEMORY_GENERATIONS;
}

/* Path of the folder for the files of all ranks. */
static enum status begin(struct saver *v, struct arena *a, int64_t step, char *folder,
                         struct error *err)
{
    const char *temporary = "";
    enum status status = OK;
    if (v->r->index == 0) status = checkpoint_begin(a, &v->store, step, &temporary, err);
    if (status == OK) snprintf(folder, SAVER_FOLDER_BYTES, "%s", temporary);
    TRY(comm_agree(v->r->comm, status, err));
    comm_broadcast(v->r->comm, folder, SAVER_FOLDER_BYTES);
    return OK;
}

/* The same, and where each tensor goes. */
static enum status begin_files(struct saver *v, int64_t step, struct error *err)
{
    TRY(begin(v, v->a, step, v->folder, err));
    v->target = (struct checkpoint_target){v->folder, &v->layout};
    return comm_agree(v->r->comm, saved_layout_make(v->a, v->r->p, step, &v->layout, err), err);
}

static void note_islands(struct arena *a, const struct program *p, struct checkpoint *c)
{
    int32_t n = program_islands(p);
    if (n < 2) return;
    c->n_islands = n;
    c->island_sequences = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t s = 0; s < p->n_stages; s++) /* one stage of each replica */
        if (!s || p->stages[s].replica != p->stages[s - 1].replica)
            c->island_sequences[p->stages[s].island] += p->stages[s].microbatches * p->microbatch;
}

/* Copies what the generation needs. */
static enum status collect(struct saver *v, int64_t step, struct error *err)
{
    const struct program *p = v->r->p;
    int64_t before = v->progress->first_step;
    arena_reset(v->a);
    TRY(saving_collect(&v->mine, v->a, &v->snapshot, v->chunks, v->serve, step, err));
    v->about = (struct checkpoint){.step = step,
                                   .sequences = progress_sequences(v->progress, step - before),
                                   .global_batch = v->progress->global_batch,
                                   .data_bytes = v->inputs->data.n_bytes,
                                   .data_crc = v->inputs->crc,
                                   .seed = p->seed,
                                   .optimizer = p->optimizer.kind,
                                   .dtype = p->dtype};
    note_islands(v->a, p, &v->about);
    scale_log_after(v->scales, step - before, v->about.scale);
    return OK;
}

static enum status complete(struct saver *v, struct checkpoint_tensor *rows, int32_t n, struct error *err)
{
    v->about.tensors = rows, v->about.n_tensors = n;
    TRY(checkpoint_layout_write(v->a, &v->layout, v->folder, v->r->o->config, err));
    TRY(checkpoint_commit(v->a, &v->store, v->folder, &v->about, err));
    log_debug("checkpoint of step %" PRId64 " in '%s'", v->about.step, v->r->o->save);
    return OK;
}

/* ---- all ranks together write and wait -------------------------------------------------------- */

static enum status write_together(struct saver *v, int64_t step, struct error *err)
{
    struct comm *c = v->r->comm;
    enum status status = OK;
    int64_t bytes;
    if (!step_log_finite(v->log, v->r, v->progress->first_step)) return skip(v, step, "the loss is");
    TRY(collect(v, step, err));
    if (comm_max(c, !saving_finish(&v->mine))) return skip(v, step, NOT_FINITE);
    TRY(begin_files(v, step, err));
    TRY(saving_assemble(&v->mine, checkpoint_put_file, &v->target, err));
    comm_working(c, true);
    status = saving_write(&v->mine, checkpoint_put_file, &v->target, err);
    comm_working(c, false);
    TRY(comm_agree(c, status, err));
    struct checkpoint_tensor *rows = comm_gather(c, v->a, v->mine.tensors, (int64_t)sizeof *rows * v->mine.n, &bytes);
    comm_working(c, true);
    if (v->r->index == 0) status = complete(v, rows, (int32_t)(bytes / (int64_t)sizeof *rows), err);
    comm_working(c, false);
    return comm_agree(c, status, err);
}

static enum status failed(const struct saver *v, int64_t step, enum status status, struct error *err)
{
    if (v->r->index == 0 && *v->folder) checkpoint_discard(&v->store, v->folder);
    return error_wrap(err, status, "checkpoint of step %" PRId64 "%s", step, v->in_memory ? " in memory" : "");
}

enum status saver_save(struct saver *v, int64_t step, struct error *err)
{
    *v->folder = 0;
    comm_phase(v->r->comm, "saving a checkpoint");
    enum status status = write_together(v, step, err);
    comm_phase(v->r->comm, "");
    return status == OK ? OK : failed(v, step, status, err);
}

/* ---- a thread of each rank writes ------------------------------------------------------------- */

/* Rows of the manifest of all ranks, in the order of ranks, without those of ranks that are gone. */
struct rows {
    struct checkpoint_tensor *all;
    int32_t n;
    bool finite;
};

static enum status await_rows(struct saver *v, int32_t rank, struct rows *to, struct error *err)
{
    const struct run_board *board = v->r->o->board;
    struct checkpoint_tensor *rows;
    bool finite;
    int32_t n;
    while (!checkpoint_has_written(v->a, v->folder, rank)) {
        if (comm_gone(v->r->comm, rank)) return OK;
        if (board && board->unwritten[rank] == v->about.step)
            return error_set(err, ERR_RESOURCE, "rank %" PRId32 " could not write its part", rank);
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
    TRY(checkpoint_take_written(v->a, v->folder, rank, &finite, &rows, &n, err));
    struct checkpoint_tensor *all = ARENA_ARRAY(v->a, struct checkpoint_tensor, (size_t)(to->n + n) + 1);
    if (to->n) memcpy(all, to->all, (size_t)to->n * sizeof *all);
    if (n) memcpy(all + to->n, rows, (size_t)n * sizeof *all);
    *to = (struct rows){all, to->n + n, to->finite && finite};
    return OK;
}

static enum status write_mine(struct saver *v, bool *finite, struct error *err)
{
    *finite = saving_finish(&v->mine);
    if (*finite) TRY(saving_write(&v->mine, checkpoint_put_file, &v->target, err));
    if (v->r->index == 0) return OK;
    return checkpoint_note_written(v->a, v->folder, v->r->index, *finite, v->mine.tensors, *finite ? v->mine.n : 0, err);
}

/* If the run survives a failure, rank 0 removes the folder when no rank writes into it any more. */
static enum status write_apart(struct saver *v, struct error *err)
{
    struct rows all = {0};
    struct error later;
    const struct run_options *o = v->r->o;
    enum status status = write_mine(v, &all.finite, err);
    if (status != OK && o->board) o->board->unwritten[v->r->index] = v->about.step;
    if (v->r->index != 0 || (status != OK && !o->survives)) return status;
    all.all = v->mine.tensors, all.n = v->mine.n;
    for (int32_t i = 1; i < comm_size(v->r->comm); i++) {
        enum status other = await_rows(v, i, &all, status == OK ? err : &later);
        if (other != OK && !o->survives) return other;
        if (status == OK) status = other;
    }
    if (status != OK) return status;
    if (all.finite) return complete(v, all.all, all.n, err);
    checkpoint_discard(&v->store, v->folder);
    return skip(v, v->about.step, NOT_FINITE);
}

/* Without a file or a message; a part that is not finite makes the generation unusable. */
static enum status write_memory(struct saver *v, struct error *err)
{
    struct checkpoint_memory *m = v->r->o->memory;
    if (!saving_finish(&v->mine)) return v->writer.part = NULL, OK;
    TRY(saving_write(&v->mine, checkpoint_memory_put, &v->writer, err));
    TRY(checkpoint_memory_end(&v->writer, v->about.step, err));
    if (v->r->index == 0) checkpoint_memory_describe(m, generation_of(v), &v->about, comm_size(v->r->comm));
    return v->writer.part->peer ? peer_copy(v->r, v->wires, &v->writer, v->about.step, err) : OK;
}

static void *thread_main(void *saver)
{
    struct saver *v = saver;
    v->status = v->in_memory ? write_memory(v, &v->error) : write_apart(v, &v->error);
    v->written_ns = clock_wall_ns();
    atomic_store(&v->done, true);
    return NULL;
}

/* Signals are for the other threads, whose handlers end the run. */
static enum status start_thread(struct saver *v, struct error *err)
{
    sigset_t all, before;
    atomic_store(&v->done, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&v->thread, NULL, thread_main, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    v->running = !why;
    return why ? error_set(err, ERR_RESOURCE, "cannot start a thread that writes checkpoints: %s", strerror(why)) : OK;
}

/* Parts of the generation are empty on all ranks before the first thread writes, because saving_assemble is collective. */
static enum status snapshot_for_memory(struct saver *v, int64_t step, struct error *err)
{
    uint64_t home, peer;
    if (!step_log_finite(v->log, v->r, v->progress->first_step)) return skip(v, step, "the loss is");
    TRY(collect(v, step, err));
    peer_copy_nodes(v->r->p, v->r->index, &home, &peer);
    TRY(comm_agree(v->r->comm, checkpoint_memory_begin(&v->writer, v->a, v->r->o->memory, generation_of(v), v->r->index, home, peer, err), err));
    TRY(saving_assemble(&v->mine, NULL, NULL, err));
    return comm_agree(v->r->comm, start_thread(v, err), err);
}

static enum status snapshot(struct saver *v, int64_t step, struct error *err)
{
    if (v->in_memory) return snapshot_for_memory(v, step, err);
    if (!step_log_finite(v->log, v->r, v->progress->first_step)) return skip(v, step, "the loss is");
    TRY(collect(v, step, err));
    TRY(begin_files(v, step, err));
    TRY(saving_assemble(&v->mine, NULL, NULL, err));
    return comm_agree(v->r->comm, start_thread(v, err), err);
}

enum status saver_survive(const struct saver *v, enum status status, const struct error *err)
{
    const struct run_options *o = v->r->o;
    if (status != ERR_RESOURCE || !o->survives) return status;
    if (v->r->index == 0) log_warn("%s; the run goes on, and '%s' keeps its earlier checkpoints", err->text, o->save);
    return OK;
}

enum status saver_snapshot(struct saver *v, int64_t step, bool *missed, struct error *err)
{
    *v->folder = 0;
    comm_phase(v->r->comm, "copying a checkpoint");
    enum status status = snapshot(v, step, err);
    comm_phase(v->r->comm, "");
    *missed = status != OK && !*v->folder; /* else a thread may write */
    if (status != OK) status = failed(v, step, status, err);
    return *missed ? saver_survive(v, status, err) : status;
}

static int64_t host_bytes(const struct saver *v) { return snapshot_bytes(&v->snapshot) + (int64_t)arena_bytes(v->a); }

static void add_span(struct saver *v, enum span_kind kind, enum stream stream, int64_t begin_ns, int64_t end_ns)
{
    span_list_add(&v->spans, (struct span){.kind = kind,
                                           .stream = stream,
                                           .device = v->r->index,
                                           .peer = -1,
                                           .stage = -1,
                                           .phase = PHASE_SEND,
                                           .step = (int32_t)v->progress->step,
                                           .microbatch = -1,
                                           .op = -1,
                                           .begin_ns = begin_ns,
                                           .end_ns = end_ns,
                                           .bytes = host_bytes(v)});
}

/* The thread has written what was copied in the last pause. */
static void note_written(struct saver *v)
{
    v->taken++;
    struct saves_one *x = &v->saves.all[v->saves.n - 1];
    x->written_ns = v->written_ns - v->zero_ns;
    if (x->written_ns < x->end_ns) x->written_ns = x->end_ns; /* a small one is written before the pause ends */
    add_span(v, SPAN_SAVE, STREAM_save, x->end_ns, x->written_ns);
}

enum status saver_wait(struct saver *v, struct error *err)
{
    char who[160];
    int64_t limit_ns = comm_limit_ns(), begin_ns = clock_wall_ns();
    v->waited_ns = 0;
    if (!v->running) return OK;
    while (!atomic_load(&v->done)) {
        comm_alive(v->r->comm);
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
        if (clock_wall_ns() - begin_ns > limit_ns && comm_lost(v->r->comm, limit_ns / 2, who, sizeof who) >= 0)
            return error_set(err, ERR_RANK, "checkpoint of step %" PRId64 " is not complete: %s", v->about.step, who);
    }
    pthread_join(v->thread, NULL);
    v->running = false;
    v->waited_ns = clock_wall_ns() - begin_ns;
    if (v->status == OK) {
        note_written(v);
        return OK;
    }
    *err = v->error;
    enum status status = saver_survive(v, failed(v, v->about.step, v->status, err), err);
    if (status == OK && v->r->index != 0) log_warn("rank %" PRId32 ": %s", v->r->index, err->text);
    return status;
}

enum status saver_look(struct saver *v, struct error *err)
{
    if (!v->running || !atomic_load(&v->done)) return OK;
    return saver_wait(v, err);
}

/* ---- when and at which cost -------------------------------------------------------------------- */

int64_t saver_next(const struct saver *v) { return v->every > 0 ? v->next : INT64_MAX; }

/* The interval of --save-every auto, from the checkpoints that are complete. */
static void choose_interval(struct saver *v, int64_t done)
{
    const struct run_options *o = v->r->o;
    bool stopped = v->stops;
    char each[32], write[32], fail[32];
    int64_t every = saves_every(&v->saves, v->log->end_ns, done, stopped, o->mtbf_s, v->every);
    comm_broadcast(v->r->comm, &every, sizeof every);
    if (v->r->index == 0 && every != v->every) {
        struct saves_cost x = saves_measure(&v->saves, v->log->end_ns, done, stopped);
        log_info("step %" PRId64 ": the next checkpoint is %" PRId64 " step%s later (Daly 2006, or the time of a write): one takes %s of the training, "
                 "is written in %s, and a failure is expected every %s", v->progress->first_step + done, every, every > 1 ? "s" : "",
                 units_print_ns(each, x.snapshot_ns + x.slowdown_ns), units_print_ns(write, x.write_ns),
                 isfinite(o->mtbf_s) ? units_print_ns(fail, units_ns_from_s(o->mtbf_s)) : "infinity");
    }
    v->every = every;
}

void saver_paused(struct saver *v, int64_t zero_ns, int64_t begin_ns, int64_t end_ns)
{
    struct saves_one x = {begin_ns - zero_ns, end_ns - zero_ns, 0, v->waited_ns};
    int64_t done = v->progress->step + 1;
    bool stopped = v->stops;
    if (stopped) x.written_ns = x.end_ns;
    v->zero_ns = zero_ns;
    if (!stopped) add_span(v, SPAN_SNAPSHOT, STREAM_snapshot, x.begin_ns, x.end_ns);
    saves_add(&v->saves, v->r->run, x);
    if (v->automatic) choose_interval(v, done);
    v->next = done + v->every;
}

void saver_missed(struct saver *v) { v->next = v->progress->step + 1 + v->every; }

void saver_report(struct saver *v, struct saver_costs *out)
{
    out->cost = saves_measure(&v->saves, v->log->end_ns, v->r->o->steps, v->stops);
    out->every = v->every;
    out->bytes = comm_max(v->r->comm, v->a ? host_bytes(v) : 0);
}

/* ---- before the first step, and afterwards ---------------------------------------------------- */

static enum status write_probe(const struct saver *v, struct arena *a, const char *folder,
                               struct error *err)
{
    static const char zeros[4096];
    char file[CHECKPOINT_FILE_BYTES];
    const void *data = zeros;
    struct checkpoint_tensor t = {.name = "probe", .shape = {1, {sizeof zeros / 4}}, .dtype = DTYPE_fp32, .bytes = sizeof zeros};
    snprintf(file, sizeof file, "probe-%04" PRId32 ".safetensors", v->r->index);
    return checkpoint_write(a, folder, file, &t, &data, 1, err);
}

/* Every rank writes and removes a probe file, so that an error of the folder is known before the first step. */
static enum status probe(struct saver *v, struct error *err)
{
    struct arena *a = arena_new();
    char folder[SAVER_FOLDER_BYTES] = "";
    enum status status = begin(v, a, 0, folder, err);
    if (status == OK) status = comm_agree(v->r->comm, write_probe(v, a, folder, err), err);
    if (v->r->index == 0 && *folder) checkpoint_discard(&v->store, folder);
    arena_free(a);
    if (status == OK) return OK;
    return error_wrap(err, status, "checkpoint folder '%s' cannot be written", v->r->o->save);
}

enum status saver_enter(struct saver *v, struct error *err)
{
    enum status status = OK;
    if (v->r->index == 0 && !v->in_memory) status = checkpoint_enter(v->r->run, v->r->o->save, &v->store, err);
    TRY(comm_agree(v->r->comm, status, err));
    if (v->r->o->save_keep > 0) v->store.keep = (int32_t)v->r->o->save_keep;
    if (!v->in_memory) TRY(probe(v, err));
    v->a = arena_new();
    snapshot_init(&v->snapshot, v->r);
    v->stops = v->r->o->save_mode == SAVE_SYNC && !v->in_memory;
    v->automatic = v->r->o->save_auto && !v->in_memory;
    v->every = v->next = v->in_memory ? v->r->o->memory_every : v->automatic ? FIRST_EVERY : v->r->o->save_every;
    if (v->r->o->keep_trace && !v->in_memory) v->spans.a = v->r->run;
    if (v->r->index == 0 && !v->in_memory) checkpoint_fits(&v->store, saved_layout_bytes(v->r->p));
    return OK;
}

/* The largest of the first checkpoints, because what is saved differs with the step; none between steps needs no memory. */
static enum status reserve(struct saver *v, struct error *err)
{
    int64_t most = 0, bytes;
    for (int64_t k = 1; v->every > 0 && k <= RESERVE_LOOKS; k++) {
        TRY(saving_bytes(&v->snapshot, v->chunks, v->serve, v->progress->first_step + k * v->every, &bytes, err));
        if (bytes > most) most = bytes;
    }
    return snapshot_reserve(&v->snapshot, most, err);
}

enum status saver_follow(struct saver *v, struct error *err)
{
    const struct run_options *o = v->r->o;
    enum status status = OK;
    if (v->r->index == 0 && !v->in_memory) {
        int64_t had = o->memory_step ? checkpoint_newest(v->r->run, o->save) : v->progress->first_step;
        status = checkpoint_follow(v->r->run, &v->store, o->memory_step ? (had ? o->save : NULL) : o->resume, had, err);
    }
    if (status == OK) status = reserve(v, err);
    return comm_agree(v->r->comm, status, err);
}

void saver_init(struct saver *s, struct rank *r, const struct chunks *c, const struct progress *g,
                const struct inputs *inputs, const struct scale_log *scales, struct step_log *log,
                struct serve *serve, struct wires *wires)
{
    *s = (struct saver){.r = r,
                        .in_memory = wires != NULL,
                        .wires = wires,
                        .chunks = c,
                        .progress = g,
                        .inputs = inputs,
                        .scales = scales,
                        .log = log,
                        .serve = serve,
                        .store = {.lock = -1}};
}

void saver_leave(struct saver *v)
{
    if (v->running) pthread_join(v->thread, NULL);
    v->running = false;
    arena_free(v->a);
    v->a = NULL;
    checkpoint_leave(&v->store);
}

void saver_close(struct saver *v) { snapshot_close(&v->snapshot); }

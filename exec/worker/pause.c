/* exec/worker/pause.c - the run's clock, and pauses between steps in which checkpoints are copied or written. */
#include "exec/worker/internal.h"

#include "exec/worker/early_stop.h"
#include "exec/worker/faults.h"
#include "exec/worker/run_board.h"

#define START_DELAY_NS 20000000 /* from the barrier to time 0: long enough for every rank to be asleep */
#define PRIORITY 1

struct run_board *worker_board(const struct worker *w)
{
    return w->rank.index || parameter_server_by_arrival(&w->rank.p->server) ? NULL : w->rank.o->board;
}

/* All ranks agree on the instant at which the run's clock shows now_ns. */
int64_t worker_agree_on_zero(struct worker *w, int64_t offset_ns, int64_t now_ns)
{
    int64_t zero = 0;
    comm_barrier(w->rank.comm);
    if (w->rank.index == 0) zero = clock_wall_ns() + START_DELAY_NS - now_ns;
    comm_broadcast(w->rank.comm, &zero, sizeof zero);
    return zero + offset_ns;
}

void worker_take_priority(struct worker *w, bool wanted)
{
    if (!w->rank.p->emulated) return;
    bool granted = clock_real_time(wanted, PRIORITY);
    if (wanted) w->real_time = granted;
}

enum status worker_stop_lane(struct worker *w, struct error *err)
{
    if (w->rank.discrete) TRY(worker_await_sums(w, err));
    if (w->rank.discrete) TRY(async_issue_drain(&w->ahead, err));
    return comm_thread_pause(&w->transports.comm_thread, err);
}

/* An error of the thread that writes a checkpoint ends the run after the step; the message names the file. */
static enum status look(struct worker *w, struct saver *saver, bool wait, struct error *err)
{
    enum status status = wait ? saver_wait(saver, err) : saver_look(saver, err);
    w->agreed |= status == ERR_RESOURCE && saver == &w->saver;
    return status;
}

enum status worker_look_at_save(struct worker *w, bool wait, struct error *err)
{
    TRY(look(w, &w->memory, wait, err));
    return look(w, &w->saver, wait, err);
}

/* The run's clock stops: all ranks wait behind a step. */
enum status worker_begin_pause(struct worker *w, int64_t *now_ns, struct error *err)
{
    TRY(worker_stop_lane(w, err));
    worker_take_priority(w, false);
    *now_ns = comm_max(w->rank.comm, device_clock_now(&w->clock));
    return OK;
}

void worker_end_pause(struct worker *w, int64_t offset_ns, int64_t now_ns)
{
    w->clock.zero_ns = worker_agree_on_zero(w, offset_ns, now_ns);
    comm_thread_resume(&w->transports.comm_thread, w->clock.zero_ns);
    worker_take_priority(w, true);
    device_clock_waited(&w->clock, 0);
    clock_sleep_until(w->clock.zero_ns + now_ns);
}

/* All ranks write, and have the same status. *written: false with OK if the run survives a failure. */
static enum status save(struct worker *w, int64_t step, bool *written, struct error *err)
{
    enum status status = saver_save(&w->saver, step, err);
    *written = status == OK;
    if (w->rank.index == 0) faults_saved(w->rank.o->faults, *written);
    if (!*written) status = saver_survive(&w->saver, status, err);
    w->agreed = status != OK;
    return status;
}

enum status worker_save_between(struct worker *w, int64_t offset_ns, struct error *err)
{
    int64_t begin_ns = clock_wall_ns(), zero_ns = w->clock.zero_ns, now_ns;
    bool written;
    TRY(look(w, &w->memory, true, err)); /* its thread uses the time 0 of the links */
    TRY(worker_begin_pause(w, &now_ns, err));
    enum status status = save(w, progress_number(&w->progress), &written, err);
    if (written) saver_paused(&w->saver, zero_ns, begin_ns, clock_wall_ns());
    if (!written && status == OK) saver_missed(&w->saver);
    worker_end_pause(w, offset_ns, now_ns);
    run_board_saved(worker_board(w), false, clock_wall_ns() - begin_ns);
    return status;
}

enum status worker_save_to_end(struct worker *w, int64_t offset_ns, bool *ends, struct error *err)
{
    int64_t begin_ns = clock_wall_ns(), now_ns, goes_on = 0;
    TRY(worker_look_at_save(w, true, err));
    TRY(worker_begin_pause(w, &now_ns, err));
    enum status status = save(w, progress_number(&w->progress) - 1, &w->saved, err);
    if (!w->saved && status == OK) {
        if (w->rank.index == 0) goes_on = early_stop_cancel(w->rank.o->stop, w->rank.p->n_devices);
        comm_broadcast(w->rank.comm, &goes_on, sizeof goes_on);
    }
    *ends = !goes_on;
    worker_end_pause(w, offset_ns, now_ns);
    run_board_saved(worker_board(w), false, clock_wall_ns() - begin_ns);
    return status;
}

/* The run's clock goes on; that of an emulated device by the time of the pause. */
enum status worker_snapshot_between(struct worker *w, struct saver *to, struct error *err)
{
    int64_t before_ns = clock_wall_ns(), now_ns = device_clock_now(&w->clock);
    TRY(look(w, to, true, err));
    int64_t begin_ns = clock_wall_ns();
    TRY(worker_stop_lane(w, err));
    worker_take_priority(w, false);
    bool missed;
    enum status status = saver_snapshot(to, progress_number(&w->progress), &missed, err);
    w->agreed = status != OK;
    int64_t end_ns = clock_wall_ns();
    if (missed) saver_missed(to);
    if (status == OK && !missed) saver_paused(to, w->clock.zero_ns, begin_ns, end_ns);
    comm_thread_resume(&w->transports.comm_thread, w->clock.zero_ns);
    worker_take_priority(w, true);
    device_clock_waited(&w->clock, now_ns + end_ns - before_ns);
    run_board_saved(worker_board(w), to->in_memory, clock_wall_ns() - before_ns);
    return status;
}

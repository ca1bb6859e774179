#include "tools/early_end.h"

#include "exec/worker/early_stop.h"
#include "exec/worker/worker.h"
#include "tools/common.h"

#include <signal.h>
#include <unistd.h>

static struct early_stop alone;

static void stop_alone(int signal_number)
{
    static const char text[] = "musher: interrupted: the run ends after this step with a checkpoint; a second signal ends it at once\n";
    if (alone.requested) raise(SIGQUIT);
    early_stop_request(&alone, 1, true);
    (void)signal_number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

void early_end_alone(struct run_options *o)
{
    struct sigaction old;
    if (!o->save) return;
    sigaction(SIGTERM, NULL, &old);
    sigaction(SIGQUIT, &old, NULL);
    o->stop = &alone;
    common_on_end_signals(stop_alone);
}

static void stop_rank(int signal_number) { (void)signal_number, early_stop_request(&alone, 1, true); }

void early_end_rank(struct run_options *o)
{
    const struct sigaction act = {.sa_handler = stop_rank, .sa_flags = SA_RESTART};
    if (!o->save) return;
    o->stop = &alone;
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGUSR1, &act, NULL);
}

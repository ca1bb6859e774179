#include "exec/comm/end_signals.h"

#include "exec/comm/launch_local.h"

#include <stddef.h>

static volatile sig_atomic_t caught;
static void catch_signal(int signal_number) { (void)signal_number, caught = caught + 1, launch_local_wake(); }
enum { TERM = 1 };
static const int end_signals[END_SIGNALS] = {SIGINT, [TERM] = SIGTERM, SIGHUP, SIGUSR1};

int end_signals_caught(void) { return caught; }

void end_signals_unwatch(const struct sigaction old[END_SIGNALS])
{
    for (int i = 0; i < END_SIGNALS; i++) sigaction(end_signals[i], &old[i], NULL);
}

void end_signals_inherit(const struct sigaction old[END_SIGNALS], bool ignore)
{
    sigaction(SIGQUIT, &old[TERM], NULL);
    if (!ignore) end_signals_unwatch(old);
    for (int i = 0; i < END_SIGNALS && ignore; i++) signal(end_signals[i], SIG_IGN);
}

void end_signals_watch(struct sigaction old[END_SIGNALS])
{
    struct sigaction act = {.sa_handler = catch_signal};
    caught = 0;
    for (int i = 0; i < END_SIGNALS; i++) {
        sigaction(end_signals[i], NULL, &old[i]);
        if (end_signals[i] != SIGHUP || old[i].sa_handler != SIG_IGN) sigaction(end_signals[i], &act, NULL);
    }
}

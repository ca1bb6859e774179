/* tests/standin/fiber.h - stacks that one OS thread switches between; known to the sanitizers. */
#ifndef TESTS_STANDIN_FIBER_H
#define TESTS_STANDIN_FIBER_H

#include <stddef.h>
#include <ucontext.h>

enum { FIBER_STACK_BYTES = 256 << 10 };

struct fiber {
    unsigned char *
        stack; /* FIBER_STACK_BYTES above a page that nobody may touch; NULL: the OS thread's own */
    const void *bottom;
    size_t bytes;
    void *sp;           /* where it left off */
    ucontext_t context; /* where the machine has no switch of ours */
    void *fake_stack;   /* of the address sanitizer */
    void *shadow;       /* of the thread sanitizer */
    void (*main)(void);
};

/* The running OS thread as a fiber, so that others can switch back to it. */
void fiber_adopt(struct fiber *f);
/* A new one begins in main, which must never return. */
void fiber_make(struct fiber *f, void (*main)(void));
void fiber_free(struct fiber *f);
/* Begins anew in main the next time it is switched to, whatever it was doing. */
void fiber_restart(struct fiber *f);
/* Returns when someone switches back. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif

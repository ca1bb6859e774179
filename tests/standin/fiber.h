/* tests/standin/fiber.h - fibers: stacks that one OS thread switches between; the sanitizers are informed of each
 * switch. */
#ifndef TESTS_STANDIN_FIBER_H
#define TESTS_STANDIN_FIBER_H

#include <stddef.h>
#include <ucontext.h>

enum { FIBER_STACK_BYTES = 256 << 10 };

struct fiber {
    unsigned char *
        stack; /* FIBER_STACK_BYTES above a guard page; NULL: the OS thread's own */
    const void *bottom;
    size_t bytes;
    void *sp;           /* saved stack pointer */
    ucontext_t context; /* on processors without an assembly switch */
    void *fake_stack;   /* of the address sanitizer */
    void *shadow;       /* of the thread sanitizer */
    void (*main)(void);
};

/* Makes the running OS thread a fiber, so that others can switch back to it. */
void fiber_adopt(struct fiber *f);
/* Creates a fiber that begins in main, which must never return. */
void fiber_make(struct fiber *f, void (*main)(void));
void fiber_free(struct fiber *f);
/* The next switch to it begins in main again, whatever it was doing. */
void fiber_restart(struct fiber *f);
/* Returns after a switch back. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif

/* tests/standin/fiber.c - stacks that one OS thread switches between.
 *
 * A switch stores six registers and takes six others, a few nanoseconds; swapcontext asks the kernel for its signal mask
 * each time, a hundred times dearer, and serves only machines other than x86-64. The address sanitizer must be told which
 * stack is in use, the thread sanitizer which of its shadow threads.
 */
#include "tests/standin/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#elif __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

#ifdef ASAN
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *bytes);
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
#endif
#ifdef TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

/* The one that was switched to last, and is about to begin. */
static __thread struct fiber *beginning;

static void begin(void)
{
    struct fiber *f = beginning;
#ifdef ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    f->main();
    abort();
}

#ifdef __x86_64__
void standin_switch_stack(void **save, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden standin_switch_stack\n"
        ".globl standin_switch_stack\n"
        ".type standin_switch_stack, @function\n"
        "standin_switch_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size standin_switch_stack, . - standin_switch_stack\n");

static void prepare(struct fiber *f)
{
    /* Stacks begin at different offsets in a page: at the same one the switches of a block miss the cache, in one set of which all tops would lie. */
    size_t offset = (uintptr_t)f->stack / 4096 % 64 * 64;
    /* As if begin had been called: the stack is 8 past a multiple of 16 when it starts. */
    void **top = (void **)(void *)(f->stack + FIBER_STACK_BYTES - offset);
    *--top = NULL;
    *--top = (void *)(uintptr_t)begin;
    for (int i = 0; i < 6; i++) *--top = NULL;
    f->sp = top;
}

static void change(struct fiber *from, struct fiber *to)
{
    standin_switch_stack(&from->sp, to->sp);
}
#else
static void prepare(struct fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = FIBER_STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, begin, 0);
}

static void change(struct fiber *from, struct fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

void fiber_adopt(struct fiber *f)
{
    *f = (struct fiber){0};
    pthread_attr_t a;
    void *low = NULL;
    if (pthread_getattr_np(pthread_self(), &a) == 0) {
        pthread_attr_getstack(&a, &low, &f->bytes);
        pthread_attr_destroy(&a);
    }
    f->bottom = low;
#ifdef TSAN
    f->shadow = __tsan_get_current_fiber();
#endif
}

void fiber_make(struct fiber *f, void (*main)(void))
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mmap(NULL, page + FIBER_STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, page, PROT_NONE)) {
        fprintf(stderr, "stand-in: no memory for the stack of a kernel's thread\n");
        abort();
    }
    *f = (struct fiber){.stack = p + page, .main = main};
    f->bottom = f->stack;
    f->bytes = FIBER_STACK_BYTES;
#ifdef TSAN
    f->shadow = __tsan_create_fiber(0);
#endif
    prepare(f);
}

void fiber_free(struct fiber *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef TSAN
    __tsan_destroy_fiber(f->shadow);
#endif
    munmap(f->stack - page, page + FIBER_STACK_BYTES);
    *f = (struct fiber){0};
}

void fiber_restart(struct fiber *f)
{
#ifdef ASAN
    __asan_unpoison_memory_region(f->stack, FIBER_STACK_BYTES);
#endif
#ifdef TSAN
    __tsan_destroy_fiber(f->shadow);
    f->shadow = __tsan_create_fiber(0);
#endif
    prepare(f);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    beginning = to;
#ifdef ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#ifdef TSAN
    __tsan_switch_to_fiber(to->shadow, 0);
#endif
    change(from, to);
#ifdef ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

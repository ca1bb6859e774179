/* tests/support/codes.h - encode and decode of a gradient by a backend's kernels, for the suites of codes. */
#ifndef TESTS_SUPPORT_CODES_H
#define TESTS_SUPPORT_CODES_H

#include "tests/support/calls.h"

struct coder { /* of n elements */
    struct op_attrs attrs;
    enum dtype t;
    int64_t n, step, device;
};

static inline struct coder coder_of(struct encoding code, enum dtype t, int64_t n)
{
    code.value_words = (int32_t)(dtype_bytes(dtype_master(t)) / 4);
    return (struct coder){{.code = code, .stream = 5}, t, n, 1, 0};
}

static inline int64_t coder_words(const struct coder *x) { return encoding_words(&x->attrs.code, x->n); }

typedef void coder_run(void *owner, struct op_call *c);

static inline void coder_on_host(void *owner, struct op_call *c)
{
    struct error err = {0};
    (void)owner;
    ck_assert_msg(kernels_host_run(&context, c, &err) == OK, "%s", err.text);
}

/* g, state -> words, state; state NULL: no feedback. */
static inline void coder_encode(const struct coder *x, coder_run *run, void *owner, const void *g, void *state, void *words)
{
    struct optimizer_step step = {.step = x->step, .device = x->device};
    struct op_shapes s = {.n_inputs = 1 + (state != NULL), .input = {{1, {x->n}}, {1, {x->n}}}};
    struct error err = {0};
    struct op_call c = {.kind = OP_encode, .dtype = x->t, .attrs = &x->attrs, .shapes = &s, .input = {g, state},
                        .output = {words, state}, .optimizer = &step, .seed = 3};
    ck_assert_msg(op_infer(OP_encode, &x->attrs, &s, &err) == OK, "%s", err.text);
    run(owner, &c);
}

/* members' words, sum -> g, sum; sum NULL unless EF21. */
static inline void coder_decode(const struct coder *x, coder_run *run, void *owner, const void *words, int64_t members,
                                void *sum, void *g)
{
    struct op_shapes s = {.n_inputs = 2 + (sum != NULL),
                          .input = {{1, {x->n}}, {1, {members * coder_words(x)}}, {1, {x->n}}}};
    struct error err = {0};
    struct op_call c = {.kind = OP_decode, .dtype = x->t, .attrs = &x->attrs, .shapes = &s, .input = {g, words, sum},
                        .output = {g, sum}};
    ck_assert_msg(op_infer(OP_decode, &x->attrs, &s, &err) == OK, "%s", err.text);
    run(owner, &c);
}

static inline double codes_squared(enum dtype t, const void *x, const void *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = calls_get(t, x, i) - (y ? calls_get(t, y, i) : 0);
        sum += d * d;
    }
    return sum;
}

#endif

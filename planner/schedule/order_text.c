#include "planner/schedule/order_text.h"

#include "core/base/arena.h"

static char *put_number(char *to, int32_t x)
{
    char digits[12];
    int n = 0;
    do digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n) *to++ = digits[--n];
    return to;
}

const char *order_text_of(struct arena *a, const struct schedule_lane *l)
{
    char *text = arena_alloc(a, 13 * (size_t)l->n_ops + 1, 1), *to = text;
    for (int64_t i = 0; i < l->n_ops; i++) {
        if (i) *to++ = ' ';
        *to++ = l->ops[i].phase;
        to = put_number(to, l->ops[i].microbatch);
    }
    return text;
}

void order_text_undivide(struct schedule_lane *l)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_ops; i++) {
        if (l->ops[i].phase == PHASE_W) continue;
        l->ops[n] = l->ops[i];
        if (l->ops[n].phase == PHASE_I) l->ops[n].phase = PHASE_B;
        n++;
    }
    l->n_ops = n;
}

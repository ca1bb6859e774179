#include "sim/stage/within.h"

void within_init(struct within *w, struct arena *a, int32_t n_layers)
{
    *w = (struct within){.arena = a, .n_layers = n_layers};
    w->point = ARENA_ARRAY(a, int64_t, (size_t)n_layers);
}

void within_add(struct within *w, int32_t first, int32_t last, int64_t amount)
{
    if (first == last) {
        w->point[first] += amount;
        return;
    }
    w->items = arena_grow(w->arena, w->items, (size_t)w->n_items, &w->capacity, sizeof *w->items);
    w->items[w->n_items++] = (struct within_item){first, last, amount};
}

void within_add_any(struct within *w, const int32_t *layers, int32_t n, int32_t least,
                    int64_t amount)
{
    for (int32_t i = 0; i + least <= n; i++) {
        within_add(w, layers[i], layers[i + least - 1], amount);
        if (i + least < n) within_add(w, layers[i], layers[i + least], -amount);
    }
}

void within_row(const struct within *w, int32_t first, int64_t *sum)
{
    int64_t so_far = 0;
    for (int32_t l = first; l < w->n_layers; l++) sum[l] = w->point[l];
    for (int32_t i = 0; i < w->n_items; i++)
        if (w->items[i].first >= first) sum[w->items[i].last] += w->items[i].amount;
    for (int32_t l = first; l < w->n_layers; l++) sum[l] = so_far += sum[l];
}

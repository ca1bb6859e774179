#include "exec/data/sample_order.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <math.h>

static uint64_t hash2(const char *name, uint64_t number) { return rng_hash_bytes(rng_hash_text(0, name), &number, sizeof number); }

int64_t sample_order_permuted(uint64_t seed, uint64_t number, int64_t n, int64_t x)
{
    uint64_t stream = hash2("order", number), value = (uint64_t)x;
    unsigned half = 1;
    while (half < 31 && (UINT64_C(1) << 2 * half) < (uint64_t)n) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (uint64_t round = 0; round < SAMPLE_ORDER_ROUNDS; round++) {
            uint64_t next = left ^ (rng_u64(seed, stream, round << half | right) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while (value >= (uint64_t)n);
    return (int64_t)value;
}

/* Places of each file in a block: largest remainders, each at least one. */
static void divide(const double *weights, int32_t n, int64_t *places)
{
    double sum = 0;
    int64_t left = SAMPLE_ORDER_BLOCK;
    for (int32_t k = 0; k < n; k++) sum += weights[k];
    for (int32_t k = 0; k < n; k++) {
        places[k] = (int64_t)(SAMPLE_ORDER_BLOCK * (weights[k] / sum));
        if (places[k] < 1) places[k] = 1;
        left -= places[k];
    }
    for (; left; left += left < 0 ? 1 : -1) { /* the file that is farthest from its weight */
        int32_t best = -1;
        double most = 0;
        for (int32_t k = 0; k < n; k++) {
            double lacks = SAMPLE_ORDER_BLOCK * (weights[k] / sum) - (double)places[k];
            if (left < 0) lacks = -lacks;
            if (left < 0 && places[k] < 2) continue;
            if (best < 0 || lacks > most) best = k, most = lacks;
        }
        places[best] += left < 0 ? -1 : 1;
    }
}

void sample_order_make(struct arena *a, uint64_t seed, int32_t n_files, const int64_t *n, const double *weights, struct sample_order *out)
{
    *out = (struct sample_order){.seed = seed, .n_files = n_files, .weighted = weights[0] > 0};
    out->begin = ARENA_ARRAY(a, int64_t, (size_t)n_files + 1);
    out->n = ARENA_ARRAY(a, int64_t, (size_t)n_files);
    int64_t *places = ARENA_ARRAY(a, int64_t, (size_t)n_files);
    if (out->weighted) divide(weights, n_files, places);
    for (int32_t k = 0; k < n_files; k++) {
        out->n[k] = n[k];
        out->begin[k + 1] = out->begin[k] + (out->weighted ? places[k] : n[k]);
    }
}

/* The file whose interval of `begin` has x. */
static int32_t file_of(const struct sample_order *o, int64_t x)
{
    int32_t low = 0, high = o->n_files;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (o->begin[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct sample_place sample_order_at(const struct sample_order *o, int64_t number)
{
    int64_t all = o->begin[o->n_files], round = number / all, x = number % all;
    if (!o->weighted) {
        x = sample_order_permuted(o->seed, (uint64_t)round, all, x);
        int32_t file = file_of(o, x);
        return (struct sample_place){file, x - o->begin[file]};
    }
    x = sample_order_permuted(o->seed, hash2("block", (uint64_t)round), all, x);
    int32_t file = file_of(o, x);
    int64_t of_file = round * (o->begin[file + 1] - o->begin[file]) + x - o->begin[file], epoch = of_file / o->n[file];
    uint64_t key[2] = {(uint64_t)file, (uint64_t)epoch};
    return (struct sample_place){file, sample_order_permuted(o->seed, rng_hash_bytes(rng_hash_text(0, "file"), key, sizeof key), o->n[file], of_file % o->n[file])};
}

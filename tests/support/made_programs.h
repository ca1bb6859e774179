/* tests/support/made_programs.h - programs by hand for devices that talk: a stage a device, slots as a test wants them. */
#ifndef TESTS_SUPPORT_MADE_PROGRAMS_H
#define TESTS_SUPPORT_MADE_PROGRAMS_H

#include "core/base/rng.h"
#include "tests/support/device_ranks.h"

enum { RANKS_MAX = 4, GROUPS_MAX = 6, SEGMENTS_MAX = 5, SLOTS_MAX = 64 };

struct made_program { /* a program by hand: a stage a device */
    struct arena *a;
    struct program p;
    uint64_t seed, draws;
    double weight[RANKS_MAX][GROUPS_MAX];
};

static inline int64_t made_program_draw(struct made_program *m, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(11, m->seed, m->draws++, (uint64_t)(high - low + 1));
}

static inline struct made_program *made_program_make(struct arena *a, uint64_t seed, int32_t n)
{
    struct made_program *m = ARENA_ARRAY(a, struct made_program, 1);
    struct program *p = &m->p;
    m->a = a, m->seed = seed;
    p->n_devices = p->n_stages = n;
    p->devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    p->stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    p->collectives = ARENA_ARRAY(a, struct collective, GROUPS_MAX);
    p->channels = ARENA_ARRAY(a, struct channel, 16);
    for (int32_t i = 0; i < n; i++) {
        p->devices[i] = (struct program_device){
            .name = arena_printf(a, "gpu.%d", (int)i), .host = "h", .kind = "cuda", .index = i};
        p->stages[i] = (struct program_stage){.stage = i, .device = i, .microbatches = 3};
        p->stages[i].slots = ARENA_ARRAY(a, struct slot, SLOTS_MAX);
        p->stages[i].buffer_rings = ARENA_ARRAY(a, struct buffer_ring, 16);
    }
    return m;
}

static inline int32_t made_program_slot(struct made_program *m, int32_t stage, enum slot_class class, enum dtype t,
                           int64_t n, int32_t buffers)
{
    struct program_stage *s = &m->p.stages[stage];
    int64_t room = (n * dtype_bytes(t) + 63) / 64 * 64;
    struct slot x = {.name = "slot",
                     .class = class,
                     .dtype = t,
                     .shape = {1, {n}},
                     .buffer_ring = -1,
                     .bytes = n * dtype_bytes(t),
                     .parameter = -1,
                     .input = -1,
                     .offset_bytes = s->class_bytes[class]};
    if (class == SLOT_BUFFER_RING) {
        x.buffer_ring = s->n_buffer_rings, x.offset_bytes = 0;
        s->buffer_rings[s->n_buffer_rings++] = (struct buffer_ring){buffers, room, -1, -1, 'F', 'B'};
        room *= buffers;
    }
    s->class_bytes[class] += room;
    s->slots[s->n_slots] = x;
    return s->n_slots++;
}

#endif

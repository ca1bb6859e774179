#include "exec/cupti/records.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <stdlib.h>
#include <string.h>

/* A record's struct grows with CUPTI: a newer one has its new fields at the end, so what is read here lies where it lay in CUDA 9.
 * CUPTI 13 gave the newest structs new names once more, and has the oldest that are read beside them: there the compiler is asked
 * whether it is still so. Before 13 the names of the newest differ from release to release; the first of the row is in all of them. */
#if CUPTI_API_VERSION >= 130000
#define KERNEL_RECORD CUpti_ActivityKernel10
#define COPY_RECORD CUpti_ActivityMemcpy6
#define FILL_RECORD CUpti_ActivityMemset4
#define LIES_ALIKE(newer, older, field)                                                            \
    _Static_assert(offsetof(newer, field) == offsetof(older, field), #field " has moved")
LIES_ALIKE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, end);
LIES_ALIKE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, correlationId);
LIES_ALIKE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, name);
LIES_ALIKE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, copyKind);
LIES_ALIKE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, end);
LIES_ALIKE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, correlationId);
LIES_ALIKE(CUpti_ActivityMemset4, CUpti_ActivityMemset, end);
LIES_ALIKE(CUpti_ActivityMemset4, CUpti_ActivityMemset, correlationId);
#else
#define KERNEL_RECORD CUpti_ActivityKernel4
#define COPY_RECORD CUpti_ActivityMemcpy
#define FILL_RECORD CUpti_ActivityMemset
#endif

struct noted_activity {
    struct activity_record record;
    uint32_t correlation;
};

struct noted_cause {
    uint32_t correlation;
    uint64_t id;
};

struct noted_name {
    const char *text;
    struct noted_name *next;
};

/* --- out of buffers -------------------------------------------------------------------------- */

static const char *kept_name(struct records *r, const char *name)
{
    if (!name || !*name) return "a kernel without a name";
    struct noted_name **at = &r->names[rng_hash_bytes(0, name, strlen(name)) % RECORD_NAMES];
    while (*at && strcmp((*at)->text, name) != 0) at = &(*at)->next;
    if (!*at) {
        *at = arena_alloc(r->arena, 1, sizeof **at);
        (*at)->text = arena_strdup(r->arena, name);
    }
    return (*at)->text;
}

static const char *copy_name(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "copy to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "copy on device";
    default:
        return "copy";
    }
}

/* CUPTI writes 0 for an instant that it could not take, for want of memory on the device. */
static void note(struct records *r, uint32_t correlation, uint64_t begin_ns, uint64_t end_ns,
                 uint64_t bytes, const char *name)
{
    if (!begin_ns || end_ns < begin_ns) {
        r->lost++;
        return;
    }
    r->noted = arena_grow(r->arena, r->noted, r->n_noted, &r->noted_capacity, sizeof *r->noted);
    r->noted[r->n_noted++] =
        (struct noted_activity){.record = {.begin_ns = (int64_t)begin_ns,
                                           .end_ns = (int64_t)end_ns,
                                           .bytes = (int64_t)bytes,
                                           .name = name},
                                .correlation = correlation};
}

static void note_cause(struct records *r, const CUpti_ActivityExternalCorrelation *x)
{
    if (x->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return;
    r->causes =
        arena_grow(r->arena, r->causes, r->n_causes, &r->causes_capacity, sizeof *r->causes);
    r->causes[r->n_causes++] = (struct noted_cause){x->correlationId, x->externalId};
}

void records_note(struct records *r, const CUpti_Activity *a)
{
    const void *record = a;
    const KERNEL_RECORD *kernel = record;
    const COPY_RECORD *copy = record;
    const FILL_RECORD *fill = record;
    switch (a->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        note(r, kernel->correlationId, kernel->start, kernel->end, 0, kept_name(r, kernel->name));
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        note(r, copy->correlationId, copy->start, copy->end, copy->bytes,
             copy_name(copy->copyKind));
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        note(r, fill->correlationId, fill->start, fill->end, fill->bytes, "fill");
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        note_cause(r, record);
        break;
    default:
        break;
    }
}

/* --- joined ---------------------------------------------------------------------------------- */

static int by_correlation(const void *a, const void *b)
{
    const struct noted_cause *x = a, *y = b;
    return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

/* Runtime and driver calls of one launch share a correlation id and say the same of it. */
static uint64_t cause_of(const struct records *r, uint32_t correlation)
{
    const struct noted_cause key = {.correlation = correlation},
                             *at = r->n_causes ? bsearch(&key, r->causes, r->n_causes, sizeof key,
                                                         by_correlation)
                                               : NULL;
    return at ? at->id : 0;
}

void records_join(struct records *r, struct activity_log *out)
{
    struct activity_record *records =
        arena_alloc(r->arena, r->n_noted + 1, sizeof(struct activity_record));
    if (r->n_causes) qsort(r->causes, r->n_causes, sizeof *r->causes, by_correlation);
    for (size_t i = 0; i < r->n_noted; i++) {
        records[i] = r->noted[i].record;
        records[i].under = cause_of(r, r->noted[i].correlation);
    }
    *out = (struct activity_log){.records = records, .n = r->n_noted, .lost = r->lost};
}

/* exec/plugin.h - backends by kind: "host" is in the program, every other a shared library that is opened when first asked for.
 *
 * The kind of a device is its catalogue row's backend (profiles/catalogue.c), "cuda"; its library is libmusher_cuda.so.
 * A program without a device of the kind never opens the library, so it starts no slower and needs no driver. The library shows one
 * function, musher_plugin, and carries what it needs of core itself; before anything of it is used its numbers are compared
 * with the program's own, since both read the same structs.
 * Looked for: MUSHER_CUDA_PLUGIN (a path, and then nothing else), beside the program, in ../lib/musher from there.
 * It stays open until the program ends: CUDA's libraries do not bear being unloaded.
 */
#ifndef EXEC_PLUGIN_H
#define EXEC_PLUGIN_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "exec/backend.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLUGIN_ABI = 1 };

/* How two devices of one machine reach each other. */
struct plugin_joined {
    bool reach;      /* each other's memory, without the host between */
    bool atomics;    /* natively: true of NVLink, not of PCIe */
    char pci[2][24]; /* where they are plugged in; "" where not told */
};

struct plugin {
    int32_t abi; /* PLUGIN_ABI; first for good */
    /* Of the sources it was built from: BACKEND_ABI, OP_KIND_COUNT, and sizes of structs that both sides read. */
    int32_t backend_abi, kinds, attrs_bytes, call_bytes, backend_bytes, plugin_bytes;
    const char *kind; /* "cuda" */
    void (*backend)(struct backend *out);
    /* NULL: devices reach each other by the host alone. */
    enum status (*joined)(int32_t a, int32_t b, struct plugin_joined *out, struct error *err);
    /* What an open backend has as its comm: loads the library; NULL, and why, where it is absent. NULL: there is none. */
    const struct device_comm *(*comm)(struct error *err);
    /* In words: in which parts the device's multiprocessors can be had, or why in none. Makes its context. NULL: in none. */
    void (*parts)(int32_t device, char *out, int32_t bytes);
};
#define PLUGIN_NUMBERS                                                                             \
    .abi = PLUGIN_ABI, .backend_abi = BACKEND_ABI, .kinds = OP_KIND_COUNT,                         \
    .attrs_bytes = (int32_t)sizeof(struct op_attrs),                                               \
    .call_bytes = (int32_t)sizeof(struct op_call),                                                 \
    .backend_bytes = (int32_t)sizeof(struct backend),                                              \
    .plugin_bytes = (int32_t)sizeof(struct plugin)
typedef const struct plugin *plugin_entry(void);
#define PLUGIN_ENTRY "musher_plugin"

/* Fills *out with the table of the kind's backend, no device of it opened. ERR_INPUT for a kind that cannot be one, or that nothing runs
 * ("none"), ERR_NO_DEVICE where its plugin is not there, cannot be opened or was built from other sources. */
MUST_CHECK enum status plugin_open_backend(const char *kind, struct backend *out,
                                           struct error *err);
/* The kind's plugin itself, not of "host"; opened as above. */
MUST_CHECK enum status plugin_of(const char *kind, const struct plugin **out, struct error *err);
/* The file that was opened for the kind; "" before. */
const char *plugin_path(const char *kind);

#endif

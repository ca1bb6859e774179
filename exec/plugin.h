/* exec/plugin.h - backends by name: "host" is built in, every other backend is a shared library that is opened on
 * first use.
 *
 * The name is the `backend` of the device's catalogue row (profiles/catalogue.c); "cuda" is libmusher_cuda.so. A
 * program without a device of the backend never opens the library, so it starts no slower and needs no driver. The
 * library exports one function, musher_plugin, and contains its own copy of core. Its ABI numbers and struct sizes
 * are compared with the program's before anything else is used, because both read the same structs. Search order:
 * MUSHER_CUDA_PLUGIN (a path, then no other place), the program's folder, ../lib/musher from there. A library stays
 * open until the program ends, because CUDA's libraries cannot be unloaded safely.
 */
#ifndef EXEC_PLUGIN_H
#define EXEC_PLUGIN_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "exec/backend.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLUGIN_ABI = 1 };

/* How two devices of one host reach each other. */
struct plugin_joined {
    bool reach;      /* peer access: each reads the other's memory without the host */
    bool atomics;    /* native peer atomics: true of NVLink, false of PCIe */
    char pci[2][24]; /* PCI bus addresses; "" if unknown */
};

struct plugin {
    int32_t abi; /* PLUGIN_ABI; always the first field */
    /* Of the plugin's sources: BACKEND_ABI, OP_KIND_COUNT, and the sizes of shared structs. */
    int32_t backend_abi, kinds, attrs_bytes, call_bytes, backend_bytes, plugin_bytes;
    const char *kind; /* "cuda" */
    void (*backend)(struct backend *out);
    /* NULL: no peer access. */
    enum status (*joined)(int32_t a, int32_t b, struct plugin_joined *out, struct error *err);
    /* The communication library, which becomes `comm` of an open backend; loads it. Returns NULL with the reason if
     * it is missing. NULL: none. */
    const struct device_comm *(*comm)(struct error *err);
    /* Text: the numbers of multiprocessors that a green context can have, or why none. Creates the device's context.
     * NULL: none. */
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

/* Fills *out with the backend's table; no device is open. ERR_INPUT: not a valid name, or "none". ERR_NO_DEVICE: the
 * plugin is missing, cannot be opened, or was built from other sources. */
MUST_CHECK enum status plugin_open_backend(const char *kind, struct backend *out,
                                           struct error *err);
/* The plugin itself, opened as above; not for "host". */
MUST_CHECK enum status plugin_of(const char *kind, const struct plugin **out, struct error *err);
/* Path of the file that was opened for this backend; "" before. */
const char *plugin_path(const char *kind);

#endif

/* tests/standin/nccl_wire.h - shared memory of a communicator's ranks: an unnamed file, mapped by all.
 *
 * Every pair of ranks has a byte pipe in each direction, and every rank has a bell (a futex). A rank, a process or a
 * thread, holds a lock on its own byte of the file while it lives, through its own open file description, so that the
 * others notice its end in every case. The creator of the id holds the file open, and the others reach it through
 * /proc, so nothing is left behind.
 */
#ifndef TESTS_STANDIN_NCCL_WIRE_H
#define TESTS_STANDIN_NCCL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_RANKS_MAX = 32 };

struct wire;

bool wire_make_id(char *out, size_t n);
/* NULL: the file no longer exists, n differs from the others', or the rank is taken. */
struct wire *wire_open(const char *id, int n, int rank, uint64_t host, int device);
void wire_close(struct wire *w);
bool wire_joined(struct wire *w); /* all ranks */
/* Two ranks of one device of one host. */
bool wire_shares_device(const struct wire *w);
/* in_order: a normal close, after which peers do not report this rank. */
void wire_leave(struct wire *w, bool in_order);
/* A rank that has ended without a normal close; -1. */
int wire_dead(const struct wire *w);

/* put: as many bytes as fit; take: as many as are there. */
size_t wire_put(struct wire *w, int to, const void *p, size_t bytes);
size_t wire_take(struct wire *w, int from, void *p, size_t bytes);
uint32_t wire_rung(const struct wire *w);
void wire_ring(struct wire *w, int rank);
/* Until the bell was rung after `seen`, or a few milliseconds. */
void wire_wait(struct wire *w, uint32_t seen);

#endif

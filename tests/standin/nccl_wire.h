/* tests/standin/nccl_wire.h - what the ranks of a communicator share: a nameless file, mapped by all.
 *
 * Between every two ranks there is a pipe of bytes in each direction, and every rank has a bell (a futex). A rank holds a lock on its
 * own byte of the file for as long as it lives, by an open file description of its own, so that the others see that a rank
 * has ended however it did, be it a process or a thread of this one.
 * The file is one that the maker of the id holds open, reached through /proc: nothing is ever left behind.
 */
#ifndef TESTS_STANDIN_NCCL_WIRE_H
#define TESTS_STANDIN_NCCL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_RANKS_MAX = 32 };

struct wire;

bool wire_make_id(char *out, size_t n);
/* NULL: there is no such file any more, or n is not what others said, or the rank is taken. */
struct wire *wire_open(const char *id, int n, int rank, uint64_t host, int device);
void wire_close(struct wire *w);
bool wire_joined(struct wire *w); /* all ranks */
/* Two ranks of one device of one host. */
bool wire_shares_device(const struct wire *w);
/* In good order, so that nobody misses this rank; or not. */
void wire_leave(struct wire *w, bool in_order);
/* A rank that has ended without leaving in order; -1. */
int wire_dead(const struct wire *w);

/* As many bytes as there is room for, as there are. */
size_t wire_put(struct wire *w, int to, const void *p, size_t bytes);
size_t wire_take(struct wire *w, int from, void *p, size_t bytes);
uint32_t wire_rung(const struct wire *w);
void wire_ring(struct wire *w, int rank);
/* Until the bell was rung since, or a few milliseconds. */
void wire_wait(struct wire *w, uint32_t seen);

#endif

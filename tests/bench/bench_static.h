/* tests/bench/bench_static.h - benches that have a file of their own, called by bench.c. */
#ifndef TESTS_BENCH_BENCH_STATIC_H
#define TESTS_BENCH_BENCH_STATIC_H

void bench_static(void); /* sim_static_ops, sim_static_sort_ops */

#endif

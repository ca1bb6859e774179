/* exec/data/sample_order.h - which sample of which file the n-th sample of a training run is.
 *
 * A pure function of (seed, n), so that every plan reads the same samples, and a resumed run needs only the number of samples consumed.
 * Without weights the files are one data set of N samples: samples [e N, (e + 1) N) of the run are epoch e, a permutation of the data set, with
 * another permutation in every epoch. With weights w every block of SAMPLE_ORDER_BLOCK consecutive samples has round(SAMPLE_ORDER_BLOCK w_k / sum w) samples
 * of file k (largest remainders, at least one), in a random order, and each file has epochs of its own, which end within a block.
 * Permutation: a Feistel network of SAMPLE_ORDER_ROUNDS rounds over the smallest 4^b >= N numbers, applied until the result is below N (cycle walking:
 * Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). Round functions are Philox. Cost: at most 4 networks on average.
 */
#ifndef EXEC_DATA_SAMPLE_ORDER_H
#define EXEC_DATA_SAMPLE_ORDER_H

#include <stdint.h>

struct arena;

enum { SAMPLE_ORDER_BLOCK = 4096, SAMPLE_ORDER_ROUNDS = 6 };

/* The image of x in permutation `number` of 0 ... n-1; 0 <= x < n. */
int64_t sample_order_permuted(uint64_t seed, uint64_t number, int64_t n, int64_t x);

struct sample_order {
    uint64_t seed;
    int32_t n_files;
    int64_t *begin; /* (n_files + 1) without weights: number of the file's first sample in the data set; with: first place in a block */
    int64_t *n;     /* (n_files) samples of each file, each at least 1 */
    int weighted;
};
/* weights (n_files): all above 0, or all 0; n_files at most SAMPLE_ORDER_BLOCK with weights. */
void sample_order_make(struct arena *a, uint64_t seed, int32_t n_files, const int64_t *n, const double *weights, struct sample_order *out);
struct sample_place {
    int32_t file;
    int64_t sample; /* of that file */
};
struct sample_place sample_order_at(const struct sample_order *o, int64_t number);

#endif

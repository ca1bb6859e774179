/* core/graph/op_index_internal.h - shared by the files op_index*.c. */
#ifndef CORE_GRAPH_OP_INDEX_INTERNAL_H
#define CORE_GRAPH_OP_INDEX_INTERNAL_H

#include "core/graph/op_index.h"
#include "core/graph/op_schema.h"

struct lettered { /* an operator's operands with one letter per dimension */
    const struct graph *g;
    const struct graph_op *op;
    const struct index_row *row; /* NULL: none, or not applicable to these operands */
    const struct grain *grains;
    char input[OP_OPERANDS_MAX][SHAPE_RANK_MAX + 1], output[OP_OPERANDS_MAX][SHAPE_RANK_MAX + 1];
    uint32_t present; /* letters of all operands: bit of op_index_letter_bit */
};

/* '_' and the small letters have a bit each; '.' shares one of them, so a set bit only means that the letter may be there. */
static inline uint32_t op_index_letter_bit(char letter)
{
    return 1u << ((uint32_t)(letter - '_') & 31);
}

struct lettered op_index_letters(const struct graph *g, const struct graph_op *op,
                                 const struct grain *grains);
/* Extent of the letter's dimension in the first operand that has it; -1: none. */
int64_t op_index_letter_size(const struct lettered *l, char letter);
/* The letter of an index of op_index_set; 0: none. */
char op_index_letter_named(const struct lettered *l, enum op_index index);

extern const char op_all_letters[];
/* The dimension with the letter; -1: none. */
int32_t op_index_letter_dim(const char *letters, char letter);
/* Grain of a letter whose dimension is `size`; of operand k: input k, or output k - n_inputs. */
struct grain op_index_letter_grain(const struct lettered *l, char letter, int64_t size);
struct grain op_index_operand_grain(const struct lettered *l, int32_t k, char letter, int64_t size);

#endif

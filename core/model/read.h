/* core/model/read.h - getters of config.json keys; private to the model families (core/model/model*.c).
 *
 * Absent or null keys leave *out unchanged. Quoted numbers are numbers. ERR_INPUT with file and line.
 */
#ifndef CORE_MODEL_READ_H
#define CORE_MODEL_READ_H

#include "core/document/json.h"
#include "core/model/model.h"

#include <stdbool.h>

enum { /* limits that keep every product of model_graph inside int64_t */
       MODEL_LAYERS_MAX = 10000,
       MODEL_WIDTH_MAX = 1 << 20, /* hidden, heads x head_dim */
       MODEL_INTERMEDIATE_MAX = 1 << 24,
       MODEL_VOCABULARY_MAX = 1 << 27,
       MODEL_POSITIONS_MAX = 1 << 27,
};

bool model_is(const struct model *m, const char *family);
/* NULL: absent or null. */
const struct node *model_given(const struct node *c, const char *key);
struct node model_unquoted(const struct node *n);
MUST_CHECK enum status model_need_int(const struct node *c, const char *key, int64_t max,
                                      int64_t *out, struct error *err); /* >= 1 */
/* Widths, blocks and heads of an encoder with multi-head attention, by Hugging Face's keys. */
MUST_CHECK enum status model_need_encoder(const struct node *c, struct model *m, struct error *err);
MUST_CHECK enum status model_get_int(const struct node *c, const char *key, int64_t min,
                                     int64_t max, int64_t *out, struct error *err);
MUST_CHECK enum status model_get_double(const struct node *c, const char *key, double min,
                                        double max, double *out, struct error *err);
/* ERR_INPUT unless false, for keys of unsupported features. */
MUST_CHECK enum status model_refuse_true(const struct node *c, const char *key, const char *why,
                                         struct error *err);
/* Index of one of a NULL-ended list of words. */
MUST_CHECK enum status model_choose(const struct node *c, const char *key, const char *const *names,
                                    int *out, struct error *err);

/* In a config.json of several lines (model_config) a double has a point or an exponent, because transformers reads typed fields. */
void model_put_double(struct json *j, const char *key, double value);

#endif

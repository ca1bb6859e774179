/* core/model_bert.h - family bert (core/model.h); for core/model*.c alone. */
#ifndef CORE_MODEL_BERT_H
#define CORE_MODEL_BERT_H

#include "core/json.h"
#include "core/model_build.h"

MUST_CHECK enum status model_read_bert(const struct node *c, struct model *m, struct error *err);
void model_write_bert(struct json *j, const struct model *m);
/* The whole forward graph, inputs too. */
void build_bert(struct build *b);

#endif

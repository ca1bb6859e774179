/* core/model/bert.h - family bert (core/model/model.h); private to core/model/model*.c. */
#ifndef CORE_MODEL_BERT_H
#define CORE_MODEL_BERT_H

#include "core/document/json.h"
#include "core/model/build.h"

MUST_CHECK enum status model_read_bert(const struct node *c, struct model *m, struct error *err);
void model_write_bert(struct json *j, const struct model *m);
/* The complete forward graph with inputs. */
void bert_build(struct build *b);

#endif

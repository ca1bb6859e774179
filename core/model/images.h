/* core/model/images.h - families vit and vgg (core/model/model.h); private to core/model/model*.c. */
#ifndef CORE_MODEL_IMAGES_H
#define CORE_MODEL_IMAGES_H

#include "core/document/json.h"
#include "core/model/build.h"

MUST_CHECK enum status model_read_vit(const struct node *c, struct model *m, struct error *err);
MUST_CHECK enum status model_read_vgg(const struct node *c, struct model *m, struct error *err);
void model_write_vit(struct json *j, const struct model *m);
void model_write_vgg(struct json *j, const struct model *m);
/* The complete forward graph with inputs. */
void images_build_vit(struct build *b);
void images_build_vgg(struct build *b);

#endif

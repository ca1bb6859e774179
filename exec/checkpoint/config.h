/* exec/checkpoint/config.h - config.json beside the weights of a checkpoint or of another tool: the values that their model was trained with. */
#ifndef EXEC_CHECKPOINT_CONFIG_H
#define EXEC_CHECKPOINT_CONFIG_H

#include "core/document/document.h"

/* *out: NULL if the folder has none. ERR_INPUT with file:line: the file is not a JSON object. Ownership: the arena's. */
MUST_CHECK enum status checkpoint_config_read(struct arena *a, const char *folder, struct node **out, struct error *err);
/* Compares the folder's config.json with that of the model to train (model_config; NULL: not known) key by key, after both were read as models, so
 * that defaults count as stated. A warning for each key with another value; dropout, initialisation and names do not count. */
void checkpoint_config_compare(struct arena *a, const char *folder, const char *config);

#endif

/* core/sharding/keys.h - tables of the keys of a sharding section, for its reader and docs/reference. */
#ifndef CORE_SHARDING_KEYS_H
#define CORE_SHARDING_KEYS_H

#include "core/document/keys.h"

extern const struct document_key sharding_keys[];            /* sharding of a stage */
extern const struct document_key sharding_operator_keys[];   /* an entry of operators */
extern const struct document_key sharding_parameter_keys[];  /* an entry of parameters */
extern const struct document_key sharding_collective_keys[]; /* an entry of collectives */

#endif

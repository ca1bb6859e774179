/* core/plan/keys.h - tables of the keys of a plan file, for its reader and docs/reference. */
#ifndef CORE_PLAN_KEYS_H
#define CORE_PLAN_KEYS_H

#include "core/document/keys.h"

extern const struct document_key plan_keys[];         /* the file */
extern const struct document_key plan_made_by_keys[]; /* made_by */
extern const struct document_key plan_compression_keys[]; /* compression */
extern const struct document_key plan_compressor_keys[];  /* a map of a kind in it */
extern const struct document_key plan_pipeline_keys[];    /* compression.pipeline of two kinds */
extern const struct document_key plan_local_sgd_keys[];   /* local_sgd */
extern const struct document_key plan_server_keys[];      /* parameter_server */
extern const struct document_key plan_experts_keys[];     /* an entry of experts */
extern const struct document_key plan_replica_keys[];   /* an entry of replicas */
extern const struct document_key plan_stage_keys[];   /* an entry of stages */

#endif

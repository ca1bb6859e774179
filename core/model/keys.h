/* core/model/keys.h - tables of the keys of a job file, for its reader and docs/reference. */
#ifndef CORE_MODEL_KEYS_H
#define CORE_MODEL_KEYS_H

#include "core/document/keys.h"

extern const struct document_key job_keys[];            /* the file */
extern const struct document_key job_data_keys[];       /* data */
extern const struct document_key job_data_file_keys[];  /* data.files, an entry */
extern const struct document_key job_loss_scale_keys[]; /* loss_scale */
extern const struct document_key job_adamw_keys[];      /* optimizer with kind: adamw */
extern const struct document_key job_sgd_keys[];        /* optimizer with kind: sgd */
extern const struct document_key job_lion_keys[];
extern const struct document_key job_lamb_keys[];       /* optimizer with kind: lamb */
extern const struct document_key job_lars_keys[];       /* optimizer with kind: lars */
extern const struct document_key job_constant_lr_keys[];     /* optimizer.schedule with kind: constant */
extern const struct document_key job_linear_lr_keys[];       /* linear or cosine */
extern const struct document_key job_wsd_lr_keys[];          /* wsd */
extern const struct document_key job_inverse_sqrt_lr_keys[]; /* inverse_sqrt */
extern const struct document_key job_lr_rule_keys[];    /* optimizer.lr_rule */
extern const struct document_key measured_keys[];       /* MODEL.layers.json, the file */
extern const struct document_key measured_layer_keys[]; /* MODEL.layers.json, an entry of layers */

#endif

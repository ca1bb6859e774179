/* core/lower/versions.h - two versions of the parameters (weight_versions: 2, core/plan/plan.h).
 *
 * In step t F and the backward read W(t-1), the previous version; the update makes W(t+1) of the latest, W(t). In front of it W(t) is
 * copied over W(t-1), which no later call reads. Forwards of step t+1 in front of that update read W(t) where it is: the latest.
 */
#ifndef CORE_LOWER_VERSIONS_H
#define CORE_LOWER_VERSIONS_H

#include "core/lower/slots.h"

struct writer;

/* The previous version's slot of a parameter, which F and the backward read; `region`: bytes of the parameters, behind which it lies. */
void lower_previous_slot(struct stage_scratch *h, int32_t parameter, int32_t tensor, int64_t region);
/* Of the slot of a previous version, that of the latest; other slots are themselves. */
int32_t lower_latest(const struct program_stage *s, int32_t slot);
/* At the beginning of U: copies the latest version over the previous one. No effect with one version. */
void lower_keep_versions(struct writer *w);

#endif

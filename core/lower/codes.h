/* core/lower/codes.h - sums of compressed messages, and compressed messages between stages, in a program (core/graph/encoding.h, the plan's `compression`).
 *
 * In place of an all-reduce of gradients their codes are all-gathered: a device encodes its term of each gradient of a group, launches
 * the all-gather, and behind its end decodes all members' terms and adds them, in the order of the chunks, so that all members
 * have the same bits. A member sends (n - 1) codes where a ring's all-reduce sends 2 (n - 1)/n of the gradient's bytes. Rejected: a
 * reduce-scatter by all-to-all and an all-gather of the encoded sums, 2 (n - 1)/n codes, which are fewer from three members
 * on, because the sums are encoded again: a second error, with a feedback of its own on the owners.
 * Encoding is part of the call whose weight gradients complete the gradient ("last"), decoding of the update; with local SGD of
 * "delta" and "outer". Codes have the class of gradients, feedback one of its own. Names of feedback state the code, so that no other one
 * resumes with it.
 */
#ifndef CORE_LOWER_CODES_H
#define CORE_LOWER_CODES_H

#include "core/lower/groups.h"

struct writer;

/* The code of the plan for gradients, or for the changes of local SGD; kind ENCODING_NONE: none. */
struct encoding lower_code(const struct lowering *l, bool outer);
/* ERR_INPUT: a parameter that the chunks of one device share, or of unequal shards. */
MUST_CHECK enum status lower_codes_check(const struct lowering *l, const struct stage_build *b, const char *parameter,
                                         const char *why, struct error *err);
/* Words that a member sends, for the group's gradients on its stage; of one between nodes, for its shards of the group `of`. */
int64_t lower_code_words(const struct stage_build *b, const struct group_plan *plan);
int64_t lower_code_words_between(const struct lowering *l, const struct group_plan *plan, int32_t of);
/* Slots of codes and feedback, last in their regions; requires the gradients'. */
void lower_code_slots(struct stage_scratch *h);
/* i: index of the group among the stage's. */
void lower_code_segments(const struct stage_scratch *h, int32_t i, struct collective_member *m);
bool lower_encodes(const struct stage_scratch *h, bool outer); /* whether the stage has such groups */
void lower_encode(struct writer *w, int32_t i);
void lower_decode(struct writer *w, bool outer); /* all of them */
/* compression.gradients between nodes: the sums that a node has taken, device by device its shard (core/lower/hybrid.h), are encoded,
 * gathered by the devices with the same shard of all nodes, decoded and added, all in the update. */
void lower_exchange_between(struct writer *w);
/* Whether the group's sums are exchanged so: then they are awaited before. */
bool lower_codes_between(const struct stage_scratch *h, int32_t group);
/* A message between stages: its code in slot `to` of the numbers in slot `from`, and back. */
void lower_encode_message(struct writer *w, enum phase phase, int32_t layer, const struct encoding *code, int32_t from, int32_t to);
void lower_decode_message(struct writer *w, enum phase phase, int32_t layer, const struct encoding *code, int32_t from, int32_t to);

#endif

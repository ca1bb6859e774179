/* core/model/decoder.h - decoders with rotary positions, RMS norms and gated MLPs: llama and its relatives; private to core/model/model*.c.
 *
 * One table (core/model/decoder.c) has what distinguishes the families: where norms stand, defaults of absent keys, windows. gemma2 (arXiv
 * 2408.00118) and gemma3_text (arXiv 2503.19786) have norms on both sides of attention and MLP whose factor is 1 + w, embeddings times √hidden
 * and a gated GELU; gemma2 caps scores and logits softly; gemma3_text has a rotary base of its own in layers with a window. olmo2 (arXiv
 * 2501.00656) has norms behind attention and MLP only, and norms of whole queries and keys. glm4 rotates half of each head, neighbours
 * together. phi3 and glm4 store q, k, v and gate, up side by side in Hugging Face's files; here they are parameters of their own, so that they
 * may be sharded by heads: the mathematics of element-wise optimizers is the same.
 */
#ifndef CORE_MODEL_DECODER_H
#define CORE_MODEL_DECODER_H

#include "core/document/json.h"
#include "core/model/build.h"

MUST_CHECK enum status decoder_read(const struct node *c, struct model *m, struct error *err);
void decoder_write(struct json *j, const struct model *m);
void decoder_build(struct build *b);

#endif

/* core/model/model_graph.c - struct model → forward graph of one microbatch.
 *
 * One builder follows the model as described in its paper; a failed step leaves its
 * error in the builder, and all later steps do nothing, so the code reads like the model.
 * Parameters have Hugging Face's names and layouts: gpt2 stores (in, out), the others (out, in).
 * An operator has the name of its module; the last operator of each half of a block ends
 * in ".residual", which gives the layers their names ("h.0.attn", "h.0.mlp").
 */
#include "core/model/model.h"

#include "core/base/arena.h"
#include "core/model/bert.h"
#include "core/model/decoder.h"
#include "core/model/images.h"
#include "core/model/measured.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Radford et al. 2019: projections into the residual stream start 1/sqrt(2·layers) smaller. */
static int32_t gpt2_block(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->intermediate;
    double std = m->init_std, into_residual = std / sqrt(2.0 * (double)m->layers);
    struct op_attrs attention = build_attention_attrs(b), gelu = {.gelu_erf = m->gelu_erf};
    int32_t y = build_layer_norm(b, "ln_1", x, d);
    y = build_conv1d(b, "attn.c_attn", y, d, 3 * d, std);
    y = build_apply1(b, OP_attention, "attn.attention", &attention, y);
    y = build_conv1d(b, "attn.c_proj", y, d, d, into_residual);
    y = build_dropout(b, "attn.resid_dropout", y, m->hidden_dropout);
    x = build_apply2(b, OP_add, "attn.residual", NULL, x, y);
    y = build_layer_norm(b, "ln_2", x, d);
    y = build_conv1d(b, "mlp.c_fc", y, d, f, std);
    y = build_apply1(b, OP_gelu, "mlp.gelu", &gelu, y);
    y = build_conv1d(b, "mlp.c_proj", y, f, d, into_residual);
    y = build_dropout(b, "mlp.dropout", y, m->hidden_dropout);
    return build_apply2(b, OP_add, "mlp.residual", NULL, x, y);
}

static void gpt2(struct build *b)
{
    int32_t tokens = build_input(b, "tokens", INPUT_TOKENS);
    int32_t targets = build_input(b, "targets", INPUT_TARGETS);
    const struct model *m = b->m;
    int32_t wte, wpe;
    b->base = "transformer.";
    int32_t positions = build_input(b, "positions", INPUT_POSITIONS);
    int32_t x = build_embedding(b, "wte", m->vocabulary, tokens, &wte);
    int32_t p = build_embedding(b, "wpe", m->max_positions, positions, &wpe);
    x = build_apply2(b, OP_add, "embedding.add", NULL, x, p);
    x = build_dropout(b, "embedding.drop", x, m->embedding_dropout);
    x = build_blocks(b, "h", x, gpt2_block);
    build_head_and_loss(b, build_layer_norm(b, "ln_f", x, m->hidden), wte, targets);
}

enum status model_graph(struct arena *a, const struct model *m, enum dtype dtype,
                        int64_t microbatch, int64_t sequence_length, struct graph **out,
                        struct error *err)
{
    if (m->measured)
        return measured_model_graph(a, m, dtype, microbatch, sequence_length, out, err);
    if (dtype == DTYPE_int32)
        return error_set(err, ERR_INPUT, "model '%s': training in int32 is not possible", m->name);
    if (sequence_length < 1 || sequence_length > m->max_positions)
        return error_set(err, ERR_INPUT,
                         "model '%s': sequence length %lld is not between 1 and its %lld positions",
                         m->name, (long long)sequence_length, (long long)m->max_positions);
    if (model_pixels(m) && sequence_length != m->max_positions)
        return error_set(err, ERR_INPUT,
                         "model '%s': sequence length %lld; its images have %lld positions each",
                         m->name, (long long)sequence_length, (long long)m->max_positions);
    if (model_pixels(m) && microbatch > INT32_MAX / model_pixels(m))
        return error_set(err, ERR_INPUT,
                         "model '%s': %lld images of %lld pixels are more than %d pixels",
                         m->name, (long long)microbatch, (long long)model_pixels(m), INT32_MAX);
    if (microbatch < 1 || microbatch > INT32_MAX / sequence_length)
        return error_set(
            err, ERR_INPUT,
            "model '%s': %lld sequences of %lld tokens are not between 1 and %d tokens", m->name,
            (long long)microbatch, (long long)sequence_length, INT32_MAX);
    struct build b = {.g = graph_new(a, dtype, microbatch, sequence_length),
                      .m = m,
                      .prefix = "",
                      .err = err};
    if (!strcmp(m->family, "gpt2"))
        gpt2(&b);
    else if (!strcmp(m->family, "bert"))
        bert_build(&b);
    else if (!strcmp(m->family, "vit"))
        images_build_vit(&b);
    else if (!strcmp(m->family, "vgg"))
        images_build_vgg(&b);
    else
        decoder_build(&b);
    *out = b.g;
    return b.status;
}

int64_t model_parameters(const struct model *m)
{
    struct arena *a = arena_new();
    struct graph *g;
    struct error err;
    int64_t n = 0, length = m->measured       ? m->measured->sequence_length
                            : model_pixels(m) ? m->max_positions
                                              : 1;
    if (model_graph(a, m, DTYPE_fp32, 1, length, &g, &err) != OK) BUG("%s", err.text);
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == TENSOR_PARAMETER) n += shape_elements(&g->tensors[t].shape);
    arena_free(a);
    return n;
}

int64_t model_masked_positions(int64_t sequence_length)
{
    int64_t n = (15 * sequence_length + 50) / 100;
    return n < 1 ? 1 : n;
}

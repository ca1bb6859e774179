/* core/model/images.c - image classifiers: ViT (Dosovitskiy et al. 2021) with Hugging Face's names, VGG
 * (Simonyan and Zisserman 2014) with torchvision's.
 *
 * Weights of VGG are initialised as in He et al. 2015 for layers before relu, so that activations keep their scale through 19
 * layers; its last layer and ViT are initialised normally.
 */
#include "core/model/images.h"

#include "core/model/read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IMAGE_MAX = 4096, IMAGE_CHANNELS_MAX = 1024, CHANNELS_MAX = 1 << 14 };

/* num_labels, or the number of names in id2label. */
static enum status read_classes(const struct node *c, int64_t absent, struct model *m,
                                struct error *err)
{
    const struct node *names = model_given(c, "id2label");
    m->vocabulary = absent;
    if (names) {
        TRY(node_is(names, NODE_MAP, err));
        m->vocabulary = (int64_t)names->count;
    }
    TRY(model_get_int(c, "num_labels", 1, MODEL_VOCABULARY_MAX, &m->vocabulary, err));
    if (names && m->vocabulary != (int64_t)names->count)
        return node_error(node_get(c, "num_labels"), err, "%lld, but id2label names %zu classes",
                          (long long)m->vocabulary, names->count);
    return m->vocabulary > 0 ? OK : node_error(names, err, "a model needs at least one class");
}

static enum status read_image(const struct node *c, struct model *m, struct error *err)
{
    m->image_size = 224, m->channels = 3;
    TRY(model_get_int(c, "image_size", 1, IMAGE_MAX, &m->image_size, err));
    return model_get_int(c, "num_channels", 1, IMAGE_CHANNELS_MAX, &m->channels, err);
}

/* --- vit --- */

enum status model_read_vit(const struct node *c, struct model *m, struct error *err)
{
    static const char *const activations[] = {"gelu", "relu", NULL};
    int activation = 0;
    TRY(model_need_encoder(c, m, err));
    m->patch = 16, m->norm_eps = 1e-12, m->attention_bias = true, m->gelu_erf = true;
    TRY(read_image(c, m, err));
    TRY(model_get_int(c, "patch_size", 1, IMAGE_MAX, &m->patch, err));
    if (m->patch > m->image_size)
        return node_error(c, err, "patches of %lld are larger than images of %lld",
                          (long long)m->patch, (long long)m->image_size);
    int64_t side = m->image_size / m->patch;
    m->max_positions = side * side + 1;
    TRY(model_get_double(c, "layer_norm_eps", 0, 1, &m->norm_eps, err));
    TRY(node_get_bool(c, "qkv_bias", &m->attention_bias, err));
    TRY(model_choose(c, "hidden_act", activations, &activation, err));
    m->relu = activation == 1;
    TRY(model_get_double(c, "hidden_dropout_prob", 0, 0.999, &m->config_hidden_dropout, err));
    m->config_embedding_dropout = m->config_hidden_dropout;
    return read_classes(c, 2, m, err);
}

void model_write_vit(struct json *j, const struct model *m)
{
    json_put_int(j, "hidden_size", m->hidden);
    json_put_int(j, "intermediate_size", m->intermediate);
    json_put_int(j, "num_hidden_layers", m->layers);
    json_put_int(j, "num_attention_heads", m->heads);
    json_put_int(j, "image_size", m->image_size);
    json_put_int(j, "num_channels", m->channels);
    json_put_int(j, "patch_size", m->patch);
    json_put_int(j, "num_labels", m->vocabulary);
    json_put_text(j, "hidden_act", m->relu ? "relu" : "gelu");
    json_put_bool(j, "qkv_bias", m->attention_bias);
    model_put_double(j, "layer_norm_eps", m->norm_eps);
    model_put_double(j, "hidden_dropout_prob", m->config_hidden_dropout);
}

static int32_t pixels(struct build *b)
{
    const struct model *m = b->m;
    struct shape shape = {4, {b->g->microbatch, m->channels, m->image_size, m->image_size}};
    return graph_add_tensor(b->g, (struct tensor){.name = "pixels",
                                                  .role = TENSOR_INPUT,
                                                  .dtype = b->g->dtype,
                                                  .shape = shape,
                                                  .input = INPUT_PIXELS});
}

static int32_t labels(struct build *b)
{
    return graph_add_tensor(b->g, (struct tensor){.name = "labels",
                                                  .role = TENSOR_INPUT,
                                                  .dtype = DTYPE_int32,
                                                  .shape = build_vec(b->g->microbatch),
                                                  .input = INPUT_LABELS});
}

static int32_t convolution(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                           int32_t kernel, int32_t stride, int32_t padding, double std)
{
    struct op_attrs attrs = {.stencil.stride = {stride, stride},
                             .stencil.padding = {padding, padding}};
    struct shape shape = {4, {out, in, kernel, kernel}};
    int32_t w = build_parameter(b, build_module_of(b, name), ".weight", shape, INIT_NORMAL, std);
    return build_apply2(b, OP_conv2d, name, &attrs, x, w);
}

/* A patch is a row; the class token precedes them, and every row has its own position embedding. */
static int32_t vit_embeddings(struct build *b)
{
    const struct model *m = b->m;
    const char *projection = "embeddings.patch_embeddings.projection";
    struct op_attrs positions = {.dim = 1};
    int32_t patch = (int32_t)m->patch;
    int32_t x =
        convolution(b, projection, pixels(b), m->channels, m->hidden, patch, patch, 0, m->init_std);
    x = build_apply1(b, OP_to_rows, "embeddings.patch_embeddings.to_rows", NULL, x);
    x = build_add_bias(b, projection, x, m->hidden);
    int32_t token = build_parameter(b, build_module_of(b, "embeddings.cls_token"), "",
                                    build_mat(1, m->hidden), INIT_NORMAL, m->init_std);
    x = build_apply2(b, OP_prepend, "embeddings.cls_token", NULL, x, token);
    int32_t p = build_parameter(b, build_module_of(b, "embeddings.position_embeddings"), "",
                                build_mat(m->max_positions, m->hidden), INIT_NORMAL, m->init_std);
    x = build_apply2(b, OP_bias, "embeddings.position_embeddings", &positions, x, p);
    return build_dropout(b, "embeddings.dropout", x, m->embedding_dropout);
}

static int32_t vit_attention(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden;
    struct op_attrs attrs = build_attention_attrs(b);
    attrs.bidirectional = true;
    int32_t q = build_linear(b, "attention.attention.query", x, d, d, m->attention_bias);
    int32_t k = build_linear(b, "attention.attention.key", x, d, d, m->attention_bias);
    int32_t v = build_linear(b, "attention.attention.value", x, d, d, m->attention_bias);
    int32_t y = build_apply(b, OP_attention, "attention.attention.attention", &attrs,
                            (const int32_t[]){q, k, v}, 3);
    return build_linear(b, "attention.output.dense", y, d, d, true);
}

static int32_t vit_block(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->intermediate;
    struct op_attrs gelu = {.gelu_erf = true};
    int32_t y = vit_attention(b, build_layer_norm(b, "layernorm_before", x, d));
    y = build_dropout(b, "attention.output.dropout", y, m->hidden_dropout);
    x = build_apply2(b, OP_add, "attention.residual", NULL, x, y);
    y = build_layer_norm(b, "layernorm_after", x, d);
    y = build_linear(b, "intermediate.dense", y, d, f, true);
    y = m->relu ? build_apply1(b, OP_relu, "intermediate.relu", NULL, y)
                : build_apply1(b, OP_gelu, "intermediate.gelu", &gelu, y);
    y = build_linear(b, "output.dense", y, f, d, true);
    y = build_dropout(b, "output.dropout", y, m->hidden_dropout);
    return build_apply2(b, OP_add, "output.residual", NULL, x, y);
}

/* Without a base before parameter names, an operator's name must differ from its bias's. */
static int32_t named_linear(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                            double std)
{
    int32_t w = build_parameter(b, name, ".weight", build_mat(out, in), INIT_NORMAL, std);
    x = build_apply2(b, OP_matmul, name, &(struct op_attrs){.trans_b = true}, x, w);
    int32_t bias = build_parameter(b, name, ".bias", build_vec(out), INIT_ZEROS, 0);
    return build_apply2(b, OP_bias, build_join(b, name, ".add_bias", ""), NULL, x, bias);
}

void images_build_vit(struct build *b)
{
    const struct model *m = b->m;
    struct op_attrs token = {.dim = 1, .sequences = 1};
    b->base = "vit.";
    int32_t x = build_blocks(b, "encoder.layer", vit_embeddings(b), vit_block);
    x = build_layer_norm(b, "layernorm", x, m->hidden);
    x = build_apply1(b, OP_slice, "layernorm.cls_token", &token, x);
    b->base = "";
    x = named_linear(b, "classifier", x, m->hidden, m->vocabulary, m->init_std);
    build_apply2(b, OP_cross_entropy, "loss", NULL, x, labels(b));
}

/* --- vgg --- */

/* Configuration E of the paper: 19 layers with weights. */
static const int64_t vgg19[] = {64,
                                64,
                                FEATURE_MAX_POOL,
                                128,
                                128,
                                FEATURE_MAX_POOL,
                                256,
                                256,
                                256,
                                256,
                                FEATURE_MAX_POOL,
                                512,
                                512,
                                512,
                                512,
                                FEATURE_MAX_POOL,
                                512,
                                512,
                                512,
                                512,
                                FEATURE_MAX_POOL};

static enum status read_feature(const struct node *n, int64_t *out, struct error *err)
{
    static const char *const pools[] = {"M", "A", NULL};
    int pool;
    if (node_choice(n, pools, &pool, NULL) == OK) {
        *out = pool ? FEATURE_AVG_POOL : FEATURE_MAX_POOL;
        return OK;
    }
    if (node_int(n, 1, CHANNELS_MAX, out, NULL) == OK) return OK;
    return node_error(n, err,
                      "must be the channels of a convolution from 1 to %d, or M or A for "
                      "maximum or average pooling",
                      CHANNELS_MAX);
}

static enum status read_features(const struct node *c, struct model *m, struct error *err)
{
    const struct node *list = model_given(c, "features");
    m->n_features = list ? 0 : (int32_t)(sizeof vgg19 / sizeof *vgg19);
    for (int32_t i = 0; i < m->n_features; i++) m->features[i] = vgg19[i];
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    if (list->count < 1 || list->count > MODEL_FEATURES_MAX)
        return node_error(list, err, "must be 1 to %d layers, found %zu", MODEL_FEATURES_MAX,
                          list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(read_feature(list->members[i], &m->features[m->n_features++], err));
    return OK;
}

static enum status read_classifier(const struct node *c, struct model *m, struct error *err)
{
    const struct node *list = model_given(c, "classifier");
    m->n_classifier = list ? 0 : 2;
    if (!list) m->classifier[0] = m->classifier[1] = 4096;
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    if (list->count > MODEL_CLASSIFIER_MAX)
        return node_error(list, err, "must be at most %d widths, found %zu", MODEL_CLASSIFIER_MAX,
                          list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(node_int(list->members[i], 1, MODEL_WIDTH_MAX, &m->classifier[m->n_classifier++], err));
    return OK;
}

/* Size of an image after all features, and number of layers with weights. */
static enum status check_features(const struct node *c, struct model *m, struct error *err)
{
    const struct node *list = node_get(c, "features");
    int64_t size = m->image_size;
    m->layers = m->n_classifier + 1;
    m->hidden = m->channels;
    for (int32_t i = 0; i < m->n_features; i++) {
        if (m->features[i] > 0) {
            m->hidden = m->features[i], m->layers++;
            if (m->norm_groups && m->hidden % m->norm_groups)
                return node_error(node_get(c, "norm_groups"), err,
                                  "%d groups do not divide %lld channels", m->norm_groups,
                                  (long long)m->hidden);
            continue;
        }
        if (size < 2)
            return node_error(list ? list : c, err,
                              "pooling %d halves an image of one pixel: image_size %lld is too "
                              "small",
                              i + 1, (long long)m->image_size);
        size /= 2;
    }
    return OK;
}

enum status model_read_vgg(const struct node *c, struct model *m, struct error *err)
{
    int64_t groups = 0;
    m->heads = m->kv_heads = m->max_positions = 1;
    m->norm_eps = 1e-5;
    TRY(read_image(c, m, err));
    TRY(read_features(c, m, err));
    TRY(read_classifier(c, m, err));
    TRY(model_get_int(c, "norm_groups", 0, CHANNELS_MAX, &groups, err));
    m->norm_groups = (int32_t)groups;
    TRY(model_get_double(c, "norm_eps", 0, 1, &m->norm_eps, err));
    m->config_hidden_dropout = 0.5; /* of the classifier */
    TRY(model_get_double(c, "dropout", 0, 0.999, &m->config_hidden_dropout, err));
    TRY(check_features(c, m, err));
    return read_classes(c, 1000, m, err);
}

void model_write_vgg(struct json *j, const struct model *m)
{
    json_put_int(j, "image_size", m->image_size);
    json_put_int(j, "num_channels", m->channels);
    json_put_list(j, "features");
    for (int32_t i = 0; i < m->n_features; i++)
        if (m->features[i] > 0)
            json_put_int(j, NULL, m->features[i]);
        else
            json_put_text(j, NULL, m->features[i] == FEATURE_MAX_POOL ? "M" : "A");
    json_close(j);
    json_put_list(j, "classifier");
    for (int32_t i = 0; i < m->n_classifier; i++) json_put_int(j, NULL, m->classifier[i]);
    json_close(j);
    json_put_int(j, "norm_groups", m->norm_groups);
    model_put_double(j, "norm_eps", m->norm_eps);
    model_put_double(j, "dropout", m->config_hidden_dropout);
    json_put_int(j, "num_labels", m->vocabulary);
}

/* "features.7": modules are numbered as in torchvision, relu and pooling included. */
static const char *numbered(struct build *b, const char *list, int32_t number)
{
    char text[16];
    snprintf(text, sizeof text, ".%d", number);
    return build_join(b, list, text, "");
}

static double std_for_relu(int64_t taps) { return sqrt(2 / (double)taps); }

/* 3 x 3 over all channels, bias, group norm if configured, relu. */
static int32_t vgg_convolution(struct build *b, int32_t *number, int32_t x, int64_t in, int64_t out)
{
    const struct model *m = b->m;
    const char *name = numbered(b, "features", (*number)++);
    struct op_attrs channel = {.dim = 1}, group = {.groups = m->norm_groups, .eps = m->norm_eps};
    x = convolution(b, name, x, in, out, 3, 1, 1, std_for_relu(out * 9));
    int32_t bias = build_parameter(b, name, ".bias", build_vec(out), INIT_ZEROS, 0);
    x = build_apply2(b, OP_bias, build_join(b, name, ".add_bias", ""), &channel, x, bias);
    if (m->norm_groups) {
        name = numbered(b, "features", (*number)++);
        int32_t gamma = build_parameter(b, name, ".weight", build_vec(out), INIT_ONES, 0);
        int32_t beta = build_parameter(b, name, ".bias", build_vec(out), INIT_ZEROS, 0);
        x = build_apply(b, OP_group_norm, name, &group, (const int32_t[]){x, gamma, beta}, 3);
    }
    return build_apply1(b, OP_relu, numbered(b, "features", (*number)++), NULL, x);
}

static int32_t vgg_features(struct build *b, int32_t x, int64_t *values)
{
    const struct model *m = b->m;
    const struct op_attrs halve = {.stencil = {.kernel = {2, 2}, .stride = {2, 2}}};
    int64_t channels = m->channels, size = m->image_size;
    int32_t number = 0;
    for (int32_t i = 0; i < m->n_features && b->status == OK; i++) {
        if (m->features[i] > 0) {
            x = vgg_convolution(b, &number, x, channels, m->features[i]);
            channels = m->features[i];
            continue;
        }
        x = build_apply1(b, m->features[i] == FEATURE_MAX_POOL ? OP_max_pool2d : OP_avg_pool2d,
                         numbered(b, "features", number++), &halve, x);
        size /= 2;
    }
    *values = channels * size * size;
    return build_apply1(b, OP_to_rows, "flatten", &(struct op_attrs){.flat = true}, x);
}

void images_build_vgg(struct build *b)
{
    const struct model *m = b->m;
    int64_t values;
    int32_t number = 0;
    b->base = "";
    int32_t x = vgg_features(b, pixels(b), &values);
    for (int32_t i = 0; i < m->n_classifier; i++) {
        int64_t out = m->classifier[i];
        x = named_linear(b, numbered(b, "classifier", number++), x, values, out,
                         std_for_relu(values));
        x = build_apply1(b, OP_relu, numbered(b, "classifier", number++), NULL, x);
        x = build_dropout(b, numbered(b, "classifier", number++), x, m->hidden_dropout);
        values = out;
    }
    x = named_linear(b, numbered(b, "classifier", number), x, values, m->vocabulary,
                     sqrt(1 / (double)values));
    build_apply2(b, OP_cross_entropy, "loss", NULL, x, labels(b));
}

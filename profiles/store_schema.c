/* Every column of the profile database, once. */
#include "profiles/store_schema.h"

#include "core/graph/op.h"

#include <stddef.h>

#define AT(type, member) offsetof(struct type, member)
static const struct column head_columns[] = {
    {"id", COLUMN_INT64, AT(store_head, p.id)},
    {"parent", COLUMN_INT64, AT(store_head, p.parent)}, /* 0: none */
    {"cluster", COLUMN_TEXT, AT(store_head, p.cluster)},
    {"cluster_hash", COLUMN_INT64, AT(store_head, p.cluster_hash)},
    {"machine", COLUMN_TEXT, AT(store_head, p.machine)},
    {"note", COLUMN_TEXT, AT(store_head, p.note)},
    {"calibrated_on", COLUMN_TEXT, AT(store_head, p.calibrated_on)},
    {"pace", COLUMN_DOUBLE, AT(store_head, p.pace)},
    {"n_ops", COLUMN_INT64, AT(store_head, p.n_ops)},
    {"n_fits", COLUMN_INT64, AT(store_head, p.n_fits)},
    {"n_links", COLUMN_INT64, AT(store_head, p.n_links)},
    {"n_factors", COLUMN_INT64, AT(store_head, p.n_factors)},
    {"rows_crc", COLUMN_INT64, AT(store_head, rows_crc)},
    {0}};
static const struct column op_columns[] = {{"base", COLUMN_TEXT, AT(op_row, base)},
                                           {"op_key", COLUMN_INT64, AT(op_row, key)},
                                           {"kind", COLUMN_KIND, AT(op_row, kind)},
                                           {"dtype", COLUMN_DTYPE, AT(op_row, dtype)},
                                           {"flops", COLUMN_DOUBLE, AT(op_row, flops)},
                                           {"bytes", COLUMN_DOUBLE, AT(op_row, bytes)},
                                           {"text", COLUMN_TEXT, AT(op_row, text)},
                                           {"seconds", COLUMN_DOUBLE, AT(op_row, seconds)},
                                           {"spread", COLUMN_DOUBLE, AT(op_row, spread)},
                                           {"samples", COLUMN_INT32, AT(op_row, samples)},
                                           {"provenance", COLUMN_TEXT, AT(op_row, provenance)},
                                           {0}};
static const struct column fit_columns[] = {{"base", COLUMN_TEXT, AT(op_fit, base)},
                                            {"kind", COLUMN_KIND, AT(op_fit, kind)},
                                            {"dtype", COLUMN_DTYPE, AT(op_fit, dtype)},
                                            {"constant_s", COLUMN_DOUBLE, AT(op_fit, constant_s)},
                                            {"s_per_flop", COLUMN_DOUBLE, AT(op_fit, s_per_flop)},
                                            {"s_per_byte", COLUMN_DOUBLE, AT(op_fit, s_per_byte)},
                                            {"residual", COLUMN_DOUBLE, AT(op_fit, residual)},
                                            {"min_flops", COLUMN_DOUBLE, AT(op_fit, min_flops)},
                                            {"max_flops", COLUMN_DOUBLE, AT(op_fit, max_flops)},
                                            {"n_rows", COLUMN_INT32, AT(op_fit, rows)},
                                            {0}};
static const struct column link_columns[] = {
    {"name", COLUMN_TEXT, AT(link_row, name)},
    {"latency_s", COLUMN_DOUBLE, AT(link_row, model.latency_s)},
    {"bandwidth_Bps", COLUMN_DOUBLE, AT(link_row, model.bandwidth_Bps)},
    {"residual", COLUMN_DOUBLE, AT(link_row, model.residual)},
    {"min_bytes", COLUMN_INT64, AT(link_row, model.min_bytes)},
    {"max_bytes", COLUMN_INT64, AT(link_row, model.max_bytes)},
    {"source", COLUMN_SOURCE, AT(link_row, model.source)},
    {0}};
static const struct column factor_columns[] = {
    {"type", COLUMN_TEXT, AT(factor_row, type)},
    {"kind", COLUMN_KIND, AT(factor_row, kind)},
    {"factor", COLUMN_DOUBLE, AT(factor_row, factor)},
    {"samples", COLUMN_INT32, AT(factor_row, samples)},
    {"provenance", COLUMN_TEXT, AT(factor_row, provenance)},
    {0}};
static const struct column collective_columns[] = {
    {"kind", COLUMN_COLLECTIVE, AT(collective_row, kind)},
    {"n_ranks", COLUMN_INT32, AT(collective_row, n_ranks)},
    {"n_nodes", COLUMN_INT32, AT(collective_row, n_nodes)},
    {"algorithm", COLUMN_TEXT, AT(collective_row, algorithm)},
    {"protocol", COLUMN_TEXT, AT(collective_row, protocol)},
    {"bytes", COLUMN_INT64, AT(collective_row, bytes)},
    {"seconds", COLUMN_DOUBLE, AT(collective_row, seconds)},
    {"spread", COLUMN_DOUBLE, AT(collective_row, spread)},
    {"samples", COLUMN_INT32, AT(collective_row, samples)},
    {"provenance", COLUMN_TEXT, AT(collective_row, provenance)},
    {0}};
static const struct column device_collective_columns[] = {
    {"device", COLUMN_TEXT, AT(collective_row, device)},
    {"kind", COLUMN_COLLECTIVE, AT(collective_row, kind)},
    {"n_ranks", COLUMN_INT32, AT(collective_row, n_ranks)},
    {"n_nodes", COLUMN_INT32, AT(collective_row, n_nodes)},
    {"algorithm", COLUMN_TEXT, AT(collective_row, algorithm)},
    {"protocol", COLUMN_TEXT, AT(collective_row, protocol)},
    {"bytes", COLUMN_INT64, AT(collective_row, bytes)},
    {"seconds", COLUMN_DOUBLE, AT(collective_row, seconds)},
    {"spread", COLUMN_DOUBLE, AT(collective_row, spread)},
    {"samples", COLUMN_INT32, AT(collective_row, samples)},
    {"provenance", COLUMN_TEXT, AT(collective_row, provenance)},
    {0}};
static const struct column routing_columns[] = {
    {"name", COLUMN_TEXT, AT(routing_row, name)},
    {"spread", COLUMN_DOUBLE, AT(routing_row, spread)},
    {"samples", COLUMN_INT32, AT(routing_row, samples)},
    {"provenance", COLUMN_TEXT, AT(routing_row, provenance)},
    {0}};
static const struct column oriented_columns[] = {
    {"base", COLUMN_TEXT, AT(op_fit, base)},
    {"kind", COLUMN_KIND, AT(op_fit, kind)},
    {"dtype", COLUMN_DTYPE, AT(op_fit, dtype)},
    {"orientation", COLUMN_INT32, AT(op_fit, orientation)},
    {"constant_s", COLUMN_DOUBLE, AT(op_fit, constant_s)},
    {"s_per_flop", COLUMN_DOUBLE, AT(op_fit, s_per_flop)},
    {"s_per_byte", COLUMN_DOUBLE, AT(op_fit, s_per_byte)},
    {"residual", COLUMN_DOUBLE, AT(op_fit, residual)},
    {"min_flops", COLUMN_DOUBLE, AT(op_fit, min_flops)},
    {"max_flops", COLUMN_DOUBLE, AT(op_fit, max_flops)},
    {"n_rows", COLUMN_INT32, AT(op_fit, rows)},
    {0}};
static const struct column skew_columns[] = {{"name", COLUMN_TEXT, AT(skew_row, name)},
                                             {"spread", COLUMN_DOUBLE, AT(skew_row, spread)},
                                             {"samples", COLUMN_INT32, AT(skew_row, samples)},
                                             {"provenance", COLUMN_TEXT, AT(skew_row, provenance)},
                                             {0}};
const struct table store_head_table = {
    "profile",
    sizeof(struct store_head),
    head_columns,
    "id",
    0,
    "one version of a profile; parent is the version it was made from, 0 for none"};
const struct table store_child_tables[STORE_CHILDREN] = {
    {"op_row", sizeof(struct op_row), op_columns, "base, op_key", 0,
     "measured time of one operator shape on a device type"},
    {"op_fit", sizeof(struct op_fit), fit_columns, "base, kind, dtype", 0,
     "time of other shapes: constant + FLOPs and bytes at fitted rates"},
    {"link_row", sizeof(struct link_row), link_columns, "name", 0,
     "latency and bandwidth of a link"},
    {"factor_row", sizeof(struct factor_row), factor_columns, "type, kind", 0,
     "correction of an operator kind on a device type, fitted to runs by calibrate"},
    {"collective_row", sizeof(struct collective_row), collective_columns,
     "kind, n_ranks, n_nodes, algorithm, protocol, bytes", 2,
     "measured time of a collective at one size"},
    {"routing_row", sizeof(struct routing_row), routing_columns, "name", 3,
     "imbalance of a mixture of experts, fitted to runs"},
    {"oriented_fit", sizeof(struct op_fit), oriented_columns, "base, kind, dtype, orientation", 4,
     "op_fit of matrix products by transposition of their operands"},
    {"skew_row", sizeof(struct skew_row), skew_columns, "name", 4,
     "spread of the arrival of devices at collectives, fitted to runs"},
    {"device_collective", sizeof(struct collective_row), device_collective_columns,
     "device, kind, n_ranks, n_nodes, algorithm, protocol, bytes", 5,
     "collective_row of ranks whose device type is known"},
};

/* core/graph/gradient_rules.h - the gradient rules of the operator table's rows; private to
 * core/graph/op.c.
 *
 * A rule is called for a forward operator whose output has a gradient (or is the loss) and
 * appends its I and W operators through core/graph/gradient.h.
 */
#ifndef CORE_GRAPH_GRADIENT_RULES_H
#define CORE_GRAPH_GRADIENT_RULES_H

#include "core/graph/op.h"

#define GRADIENT(name) op_gradient_rule gradient_rule_##name;
#include "core/graph/op_rows.inc"

#endif

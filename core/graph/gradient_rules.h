/* core/graph/gradient_rules.h - the gradient rules that rows of the operator table point to; for
 * core/graph/op.c alone.
 *
 * A rule is called for a forward operator whose output carries a gradient (or is the loss) and
 * appends, through core/graph/gradient.h, its I and W operators.
 */
#ifndef CORE_GRAPH_GRADIENT_RULES_H
#define CORE_GRAPH_GRADIENT_RULES_H

#include "core/graph/op.h"

#define GRADIENT(name) op_gradient_rule gradient_rule_##name;
#include "core/graph/op_rows.inc"

#endif

// The rules by family; element.h says what a rule is.
#pragma once
#include "backend/lower/element.h"

void sn_rule_copy(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_cast(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_unary(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_is_inf(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_binary(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_where(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);

void sn_rule_constant(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_iota(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_random_uniform(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);

void sn_rule_reshape(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_transpose(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_broadcast(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_slice(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_pad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_concat(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_gather(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_gather_elements(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_gather_nd(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_gather_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_scatter_elements(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_scatter_nd(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);

void sn_rule_reduce(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_arg(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_cumulate(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_top_k(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_matmul(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);

void sn_rule_conv(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_conv_input_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_conv_weight_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_max_pool(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_max_pool_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_avg_pool(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
void sn_rule_avg_pool_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);

// An index as numpy reads it, as i64: negative ones count from the end. Kept within [0, size), so that a wrong index
// (which the loader of the data reports) never reads out of bounds.
sn_kir_node *sn_rule_wrap_index(sn_lower *l, sn_kir_node *index, int64_t size);
// The operator of a reduction or scatter ("add", "mul", …) on elements of a type; bools combine as {0, 1}.
sn_kir_node *sn_rule_combine(sn_lower *l, sn_kir_op op, sn_kir_node *a, sn_kir_node *b);
// What a scatter leaves where `update` meets `old`; where SCATTER_ND's update at `from` goes (coordinates of the
// result).
sn_kir_node *sn_rule_scattered(sn_lower *l, const sn_op *op, sn_kir_node *old, sn_kir_node *update);
void sn_rule_scatter_target(sn_lower *l, const sn_op *op, const sn_point *from, sn_point *at);

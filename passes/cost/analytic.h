// The built-in cost model. Private to the cost model's files; others ask sn_cost_….
#pragma once
#include "passes/cost/cost.h"

bool sn_op_is_contraction(sn_op_kind kind);
bool sn_op_is_free(sn_op_kind kind); // views, constants and marks of the schedule take no time

double sn_analytic_op(const sn_device_kind *device, const sn_op *op, sn_work work);
double sn_analytic_collective(const sn_device_kind *device, sn_op_kind kind, double bytes, const sn_group *group);

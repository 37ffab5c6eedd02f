// Recognising what a value computes, whichever way it was written.
#pragma once
#include "passes/simplify/rewrite.h"

enum { SN_PRODUCT_FACTORS = 8 };

// scale * factor[0] * factor[1] * …: a tree of products, quotients by numbers, negations and small whole powers.
typedef struct sn_product {
    double scale;
    int count;
    sn_value *factor[SN_PRODUCT_FACTORS];
} sn_product;

// Takes a tree of products apart. Always succeeds: at the least the value itself is the one factor. Factors keep the
// order in which they stand, and each has the value's shape or broadcasts to it.
sn_product sn_match_product(sn_value *value);
// Removes one factor that is `factor`; false when there is none.
bool sn_product_take(sn_product *product, const sn_value *factor);
// Whether two numbers of a model are the same constant: models carry constants rounded to their element type.
bool sn_is_close(double a, double b);
// a + b with a number b: the other operand, and the number.
bool sn_match_add_number(sn_value *value, sn_value **x, double *number);

// The mean of `x` over its last dims from `axis` on, those dims kept with size 1.
bool sn_match_mean(sn_value *value, sn_value **x, int *axis);
// 1 / sqrt(y) as a factor, or sqrt(y) as a divisor: if `value` is x / sqrt(y), in either form, gives x and y.
bool sn_match_over_sqrt(const sn_op *op, sn_value **x, sn_value **y);

// Kernels that make a matrix product and use each of its elements where it is made: the update of a weight from the
// product that is its gradient.
#pragma once
#include "ir/graph.h"

// The body of such a kernel: one product c[m,n] = a[k,m]ᵀ b[k,n], pointwise work on c's elements, at most one
// gather_grad along the rows, of arguments, that takes part in it, and sums over the rows of what was made. a and b are
// arguments; b comes in strips of columns, [n / strip, k, strip], each of which is read from front to end:
//
//     %t = transpose(%b) <perm=[1,0,2]>
//     %u = reshape(%t)                       : f32[k,n]
//     %c = matmul(%a, %u) <transpose_a=1>    : f32[m,n]
typedef struct sn_product {
    const sn_op *matmul;
    const sn_value *a, *b; // arguments
    const sn_op *rows;     // the gather_grad, of at most SN_PRODUCT_DEPTH_MAX indices; NULL: none
    int64_t m, n, k, strip;
} sn_product;

#define SN_PRODUCT_LANES     16   // floats of a vector
#define SN_PRODUCT_DEPTH_MAX 1024 // a panel of a lies in the memory of one block

// Columns of a strip, up to three vectors; 0 when n is no multiple of a vector.
int64_t sn_product_strip(int64_t n);
// False when the body is no such thing.
bool sn_product_of_body(const sn_func *body, sn_product *out);

// Matrix products.
#include "frontend/handlers.h"

#include <ctype.h>
#include <string.h>

// numpy's matmul: a vector is a row on the left and a column on the right, and that dim goes away again.
void sn_handle_matmul(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *y = sn_node_in(n, 1);
    bool row = x->type.rank == 1, column = y->type.rank == 1;
    if (row) x = sn_emit_aligned(n, x, 1, 2);
    if (column) y = sn_emit_aligned(n, y, 0, 2);
    sn_value *product = sn_emit_matmul(n, x, y, false, false);
    int64_t dims[SN_MAX_RANK];
    int rank = 0, full = product->type.rank;
    for (int i = 0; i < full; i++)
        if (!(row && i == full - 2) && !(column && i == full - 1)) dims[rank++] = product->type.dim[i];
    sn_node_out(n, 0, sn_emit_reshape(n, product, rank, dims));
}

// alpha a' b' + beta c
void sn_handle_gemm(sn_node *n) {
    sn_value *a = sn_node_in(n, 0), *b = sn_node_in(n, 1), *c = sn_node_optional(n, 2);
    double alpha = sn_node_float(n, "alpha", 1), beta = sn_node_float(n, "beta", 1);
    sn_value *y = sn_emit_matmul(n, a, b, sn_node_int(n, "transA", 0), sn_node_int(n, "transB", 0));
    if (alpha != 1) y = sn_emit_number(n, SN_OP_MUL, y, alpha);
    if (c && beta != 0) y = sn_emit_binary(n, SN_OP_ADD, y, beta == 1 ? c : sn_emit_number(n, SN_OP_MUL, c, beta));
    sn_node_out(n, 0, y);
}

// An operand of an einsum: a value and the letter of each of its dims.
typedef struct term {
    sn_value *value;
    char letters[SN_MAX_RANK + 1];
} term;

static int position(const char *letters, char letter) {
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? (int)(at - letters) : -1;
}

static void drop_letter(char *letters, int at) {
    memmove(letters + at, letters + at + 1, strlen(letters + at));
}

static term sum_out(sn_node *n, term t, int axis) {
    t.value = sn_emit_reduce_axis(n, SN_OP_REDUCE_SUM, t.value, axis, false);
    drop_letter(t.letters, axis);
    return t;
}

// A letter that occurs twice takes the diagonal: what is off it counts as 0 and is summed away.
static term take_diagonal(sn_node *n, term t, int first, int second) {
    sn_type type = t.value->type;
    if (type.dim[first] != type.dim[second]) sn_node_fail(n, NULL, "dims of one letter have different sizes");
    sn_type index = sn_type_with_dtype(type, SN_I64);
    sn_value *on =
        sn_emit_binary(n, SN_OP_EQUAL, sn_emit_iota(n, index, first, 0, 1), sn_emit_iota(n, index, second, 0, 1));
    t.value = sn_emit_where(n, on, t.value, sn_emit_scalar(n, type.dtype, 0));
    return sum_out(n, t, second);
}

// Ellipsis dims get the characters 1 … SN_MAX_RANK, the last dim the last one, so that they align from the right.
static term parse_term(sn_node *n, const char **text, sn_value *value) {
    term t = {.value = value};
    int length = 0, letters = 0, rank = value ? value->type.rank : SN_MAX_RANK;
    for (const char *c = *text; *c && *c != ',' && *c != '-'; c++) letters += isalpha((unsigned char)*c) != 0;
    for (; **text && **text != ',' && **text != '-'; ++*text) {
        char c = **text;
        if (c == ' ') continue;
        if (strncmp(*text, "...", 3) == 0) {
            for (int i = rank - letters; i > 0; i--) {
                if (length >= SN_MAX_RANK) sn_node_fail(n, NULL, "the equation does not fit its operands");
                t.letters[length++] = (char)(SN_MAX_RANK + 1 - i);
            }
            *text += 2;
        } else if (isalpha((unsigned char)c) && length < SN_MAX_RANK) {
            t.letters[length++] = c;
        } else {
            sn_node_fail(n, NULL, "the equation does not fit its operands");
        }
    }
    if (value && length != rank) sn_node_fail(n, NULL, "the equation does not fit its operands");
    for (int i = 0; value && i < length; i++)
        for (int j = i + 1; j < length; j++)
            if (t.letters[i] == t.letters[j]) {
                t = take_diagonal(n, t, i, j);
                length--;
                j--;
            }
    return t;
}

// The term with its dims in the order of `letters`, which has all of its own; others are added with size 1.
static sn_value *arrange(sn_node *n, term t, const char *letters) {
    int64_t perm[SN_MAX_RANK], dims[SN_MAX_RANK];
    int rank = (int)strlen(letters), count = 0;
    if (rank > SN_MAX_RANK) sn_node_unsupported(n, "an equation with more than %d letters at once", SN_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        int at = position(t.letters, letters[i]);
        dims[i] = at >= 0 ? t.value->type.dim[at] : 1;
        if (at >= 0) perm[count++] = at;
    }
    return sn_emit_reshape(n, sn_emit_transpose(n, t.value, perm), rank, dims);
}

typedef struct groups {
    char batch[20], left[20], right[20], summed[20];
} groups;

static void append(char *letters, char letter) {
    size_t length = strlen(letters);
    letters[length] = letter;
    letters[length + 1] = 0;
}

static int64_t size_of(term t, char letter) {
    int at = position(t.letters, letter);
    return at >= 0 ? t.value->type.dim[at] : 1;
}

static int64_t product_of(term a, term b, const char *letters) {
    int64_t product = 1;
    for (; *letters; letters++) {
        int64_t x = size_of(a, *letters), y = size_of(b, *letters);
        product *= x > y ? x : y;
    }
    return product;
}

static term stretch(sn_node *n, term t, term other, const char *letters) {
    int64_t dims[SN_MAX_RANK];
    for (int i = 0; i < t.value->type.rank; i++) {
        dims[i] = t.value->type.dim[i];
        int64_t size = size_of(other, t.letters[i]);
        if (dims[i] == 1 && size > 1 && strchr(letters, t.letters[i])) dims[i] = size;
    }
    t.value = sn_emit_broadcast(n, t.value, t.value->type.rank, dims);
    return t;
}

// Two terms into one by a matrix product: [batch, left, summed] x [batch, summed, right].
static term contract(sn_node *n, term a, term b, const char *kept) {
    groups g = {0};
    for (const char *c = a.letters; *c; c++) {
        bool in_b = position(b.letters, *c) >= 0, later = strchr(kept, *c) != NULL;
        append(in_b ? (later ? g.batch : g.summed) : g.left, *c);
    }
    for (const char *c = b.letters; *c; c++)
        if (position(a.letters, *c) < 0) append(g.right, *c);
    a = stretch(n, stretch(n, a, b, g.batch), b, g.summed);
    b = stretch(n, stretch(n, b, a, g.batch), a, g.summed);
    char order[64];
    term out = {0};
    if (strlen(g.batch) + strlen(g.left) + strlen(g.right) > SN_MAX_RANK)
        sn_node_unsupported(n, "an equation with more than %d letters at once", SN_MAX_RANK);
    snprintf(order, sizeof order, "%s%s%s", g.batch, g.left, g.summed);
    int64_t batch = product_of(a, b, g.batch), left = product_of(a, a, g.left), right = product_of(b, b, g.right);
    int64_t summed = product_of(a, b, g.summed);
    sn_value *x = sn_emit_reshape(n, arrange(n, a, order), 3, (int64_t[]){batch, left, summed});
    snprintf(order, sizeof order, "%s%s%s", g.batch, g.summed, g.right);
    sn_value *y = sn_emit_reshape(n, arrange(n, b, order), 3, (int64_t[]){batch, summed, right});
    snprintf(order, sizeof order, "%s%s%s", g.batch, g.left, g.right);
    memcpy(out.letters, order, strlen(order) + 1);
    int64_t dims[SN_MAX_RANK];
    int rank = (int)strlen(order);
    for (int i = 0; i < rank; i++) {
        int64_t p = size_of(a, order[i]), q = size_of(b, order[i]);
        dims[i] = p > q ? p : q;
    }
    out.value = sn_emit_reshape(n, sn_emit_matmul(n, x, y, false, false), rank, dims);
    return out;
}

// Without "->": the letters that occur once, in order, after the ellipsis.
static void implicit_output(const term *terms, int count, const char *equation, char *out) {
    for (int c = 1; c <= SN_MAX_RANK; c++) {
        int seen = 0;
        for (int t = 0; t < count; t++) seen += position(terms[t].letters, (char)c) >= 0;
        if (seen) append(out, (char)c);
    }
    for (int c = 'A'; c <= 'z'; c++) {
        int seen = 0;
        if (!isalpha(c)) continue;
        for (const char *e = equation; *e; e++) seen += *e == c;
        if (seen == 1) append(out, (char)c);
    }
}

static void explicit_output(sn_node *n, const term *terms, int count, const char *text, char *out) {
    for (; *text; text++) {
        if (*text == ' ') continue;
        if (strncmp(text, "...", 3) == 0) {
            for (int c = 1; c <= SN_MAX_RANK; c++)
                for (int t = 0; t < count; t++)
                    if (position(terms[t].letters, (char)c) >= 0 && position(out, (char)c) < 0) append(out, (char)c);
            text += 2;
        } else if (isalpha((unsigned char)*text) && strlen(out) < SN_MAX_RANK) {
            append(out, *text);
        } else {
            sn_node_fail(n, NULL, "the equation is malformed");
        }
    }
}

static void letters_of_others(const term *terms, int from, int count, const char *output, char *out) {
    memcpy(out, output, strlen(output) + 1);
    for (int t = from; t < count; t++)
        for (const char *c = terms[t].letters; *c; c++)
            if (position(out, *c) < 0) append(out, *c);
}

static term sum_unneeded(sn_node *n, term t, const char *kept) {
    for (int i = (int)strlen(t.letters) - 1; i >= 0; i--)
        if (position(kept, t.letters[i]) < 0) t = sum_out(n, t, i);
    return t;
}

void sn_handle_einsum(sn_node *n) {
    const char *equation = sn_node_string(n, "equation", ""), *text = equation;
    int count = sn_node_inputs(n);
    if (count < 1 || count > 16) sn_node_unsupported(n, "an equation of %d operands", count);
    term terms[16];
    for (int i = 0; i < count; i++) {
        terms[i] = parse_term(n, &text, sn_node_in(n, i));
        if (i + 1 < count && *text++ != ',') sn_node_fail(n, NULL, "the equation has fewer terms than operands");
    }
    char output[160] = {0}, kept[160];
    if (strncmp(text, "->", 2) == 0)
        explicit_output(n, terms, count, text + 2, output);
    else
        implicit_output(terms, count, equation, output);
    term result = terms[0];
    for (int i = 1; i < count; i++) {
        letters_of_others(terms, i, count, output, kept);
        result = sum_unneeded(n, result, kept);
        letters_of_others(terms, i + 1, count, output, kept);
        for (const char *c = result.letters; *c; c++)
            if (position(kept, *c) < 0) append(kept, *c);
        term other = sum_unneeded(n, terms[i], kept);
        letters_of_others(terms, i + 1, count, output, kept);
        result = contract(n, result, other, kept);
    }
    result = sum_unneeded(n, result, output);
    for (const char *c = output; *c; c++)
        if (position(result.letters, *c) < 0) sn_node_fail(n, NULL, "the output has a letter that no operand has");
    sn_node_out(n, 0, arrange(n, result, output));
}

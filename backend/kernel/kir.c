#include "backend/kernel/kir.h"

#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"
#include "base/alloc.h"

#include <string.h>

static const struct {
    const char *name;
    int operands;
} ops[SN_KIR_OP_COUNT] = {
#define X(suffix, text, operands, class) [SN_KIR_##suffix] = {text, operands},
#include "backend/kernel/kir_ops.def"
#undef X
};

const char *sn_kir_op_name(sn_kir_op op) {
    return ops[op].name;
}

int sn_kir_op_operands(sn_kir_op op) {
    return ops[op].operands;
}

sn_kir *sn_kir_new(const char *name, int64_t grid) {
    SN_CHECK(grid >= 1 && grid <= SN_KIR_MOST_BLOCKS);
    sn_kir *k = sn_alloc(sizeof *k);
    k->name = sn_arena_strdup(&k->arena, name);
    k->origin = "";
    k->grid = grid;
    k->threads = 256;
    k->build = SN_NEW(&k->arena, struct sn_kir_build);
    k->build->open[0] = (sn_kir_open){.region = &k->body};
    k->build->n_regions = 1;
    return k;
}

void sn_kir_free(sn_kir *k) {
    if (!k) return;
    sn_arena_free(&k->arena);
    sn_free(k);
}

void sn_kir_set_origin(sn_kir *k, const char *text) {
    k->origin = sn_arena_strdup(&k->arena, text);
}

void sn_kir_set_threads(sn_kir *k, int threads) {
    int rounded = (threads + 31) / 32 * 32;
    k->threads = rounded < 32 ? 32 : rounded > 1024 ? 1024 : rounded;
}

// Lists of buffers are few and short: a copy per addition costs nothing.
static sn_kir_buffer *add_buffer(sn_kir *k, sn_kir_buffer ***list, int *count, sn_kir_buffer value) {
    SN_CHECK(value.count >= 1);
    sn_kir_buffer **longer = SN_NEW_N(&k->arena, sn_kir_buffer *, *count + 1);
    if (*count) memcpy(longer, *list, sizeof *longer * (size_t)*count);
    value.index = *count;
    value.name = sn_arena_strdup(&k->arena, value.name);
    longer[*count] = sn_arena_copy(&k->arena, &value, sizeof value);
    *list = longer;
    return longer[(*count)++];
}

sn_kir_buffer *sn_kir_param(sn_kir *k, const char *name, sn_dtype dtype, int64_t count, sn_kir_access access) {
    SN_CHECK(access != SN_KIR_SCRATCH);
    return add_buffer(k, &k->params, &k->n_params,
                      (sn_kir_buffer){.name = name, .dtype = dtype, .count = count, .access = access});
}

sn_kir_buffer *sn_kir_scratch(sn_kir *k, const char *name, sn_dtype dtype, int64_t count) {
    return add_buffer(k, &k->scratch, &k->n_scratch,
                      (sn_kir_buffer){.name = name, .dtype = dtype, .count = count, .access = SN_KIR_SCRATCH});
}

sn_kir_node *sn_kir_node_new(sn_kir *k, sn_kir_op op, sn_dtype dtype) {
    SN_CHECK(dtype != SN_F16 && dtype != SN_BF16);
    sn_kir_node *node = SN_NEW(&k->arena, sn_kir_node);
    node->op = op;
    node->dtype = dtype;
    node->id = k->n_nodes++;
    node->multiple = 1;
    if (!sn_dtype_is_float(dtype)) {
        node->min = sn_kir_type_min(dtype);
        node->max = sn_kir_type_max(dtype);
    }
    return node;
}

void sn_kir_append(sn_kir *k, sn_kir_node *node, int depth) {
    sn_kir_open *open = &k->build->open[depth];
    node->depth = depth;
    node->region = open->number;
    if (open->region->last) {
        open->region->last->next = node;
    } else {
        open->region->first = node;
    }
    open->region->last = node;
}

void sn_kir_use(sn_kir *k, sn_kir_node *value) {
    struct sn_kir_build *b = k->build;
    SN_CHECK(value);
    if (value->depth > b->depth || b->open[value->depth].number != value->region)
        SN_BUG("kernel %s: value %%%d (%s) is used outside its region", k->name, value->id, sn_kir_op_name(value->op));
    value->uses++;
}

static void open_region(sn_kir *k, sn_kir_region *region, sn_kir_node *statement) {
    struct sn_kir_build *b = k->build;
    SN_CHECK(b->depth + 1 < SN_KIR_DEPTH_MAX);
    b->open[++b->depth] = (sn_kir_open){region, statement, b->n_regions++};
}

static sn_kir_open *innermost(sn_kir *k) {
    return &k->build->open[k->build->depth];
}

static sn_kir_node *innermost_loop(sn_kir *k) {
    sn_kir_node *loop = innermost(k)->statement;
    if (!loop || loop->op != SN_KIR_FOR) SN_BUG("kernel %s: not directly in a loop", k->name);
    return loop;
}

// Values that exist with a region rather than in its list.
static sn_kir_node *region_value(sn_kir *k, sn_kir_op op, sn_dtype dtype, sn_kir_node *loop, int depth) {
    sn_kir_node *node = sn_kir_node_new(k, op, dtype);
    node->loop = loop;
    node->depth = depth;
    node->region = k->build->open[depth].number;
    return node;
}

sn_kir_node *sn_kir_for(sn_kir *k, sn_kir_mapping mapping, sn_kir_node *low, sn_kir_node *high, int64_t step) {
    SN_CHECK(step > 0 && low->dtype == SN_I64 && high->dtype == SN_I64);
    sn_kir_node *loop = sn_kir_node_new(k, SN_KIR_FOR, SN_I64);
    loop->in[0] = low;
    loop->in[1] = high;
    sn_kir_use(k, low);
    sn_kir_use(k, high);
    loop->mapping = mapping;
    loop->step = step;
    open_region(k, &loop->body, loop);
    sn_kir_node *index = region_value(k, SN_KIR_INDEX, SN_I64, loop, k->build->depth);
    loop->loop = index;
    index->min = low->min;
    index->max = high->max == INT64_MIN || high->max - 1 < low->min ? low->min : high->max - 1;
    index->multiple = sn_kir_gcd(step, low->multiple);
    return index;
}

static sn_kir_acc *add_acc(sn_kir *k, sn_kir_node *loop, sn_dtype dtype) {
    sn_kir_acc *acc = SN_NEW(&k->arena, sn_kir_acc), **end = &loop->acc;
    while (*end) end = &(*end)->link;
    *end = acc;
    acc->result = region_value(k, SN_KIR_RESULT, dtype, loop, k->build->depth - 1);
    acc->result->acc = acc;
    return acc;
}

sn_kir_node *sn_kir_reduce(sn_kir *k, sn_kir_op op, sn_kir_node *value) {
    bool bits = op == SN_KIR_AND || op == SN_KIR_OR;
    SN_CHECK(bits || op == SN_KIR_ADD || op == SN_KIR_MUL || op == SN_KIR_MIN || op == SN_KIR_MAX);
    SN_CHECK(bits ? !sn_dtype_is_float(value->dtype) : value->dtype != SN_BOOL);
    sn_kir_acc *acc = add_acc(k, innermost_loop(k), value->dtype);
    acc->reduce = true;
    acc->op = op;
    acc->next = value;
    sn_kir_use(k, value);
    return acc->result;
}

sn_kir_node *sn_kir_carry(sn_kir *k, sn_kir_node *init) {
    sn_kir_node *loop = innermost_loop(k);
    SN_CHECK(loop->mapping == SN_KIR_SERIAL);
    sn_kir_acc *acc = add_acc(k, loop, init->dtype);
    acc->init = init;
    sn_kir_use(k, init);
    acc->carry = region_value(k, SN_KIR_CARRY, init->dtype, loop, k->build->depth);
    acc->carry->acc = acc;
    return acc->carry;
}

void sn_kir_set_carry(sn_kir *k, sn_kir_node *carry, sn_kir_node *next) {
    SN_CHECK(carry->op == SN_KIR_CARRY && carry->loop == innermost_loop(k) && !carry->acc->next);
    SN_CHECK(carry->dtype == next->dtype);
    carry->acc->next = next;
    sn_kir_use(k, next);
}

sn_kir_node *sn_kir_carried(sn_kir *k, sn_kir_node *carry) {
    SN_CHECK(carry->op == SN_KIR_CARRY && carry->acc->next && k->build->depth < carry->depth);
    return carry->acc->result;
}

void sn_kir_if(sn_kir *k, sn_kir_node *condition) {
    SN_CHECK(condition->dtype == SN_BOOL);
    sn_kir_node *node = sn_kir_node_new(k, SN_KIR_IF, SN_BOOL);
    node->in[0] = condition;
    sn_kir_use(k, condition);
    open_region(k, &node->body, node);
}

void sn_kir_else(sn_kir *k) {
    sn_kir_node *node = innermost(k)->statement;
    SN_CHECK(node && node->op == SN_KIR_IF && innermost(k)->region == &node->body);
    k->build->depth--;
    open_region(k, &node->orelse, node);
}

void sn_kir_end(sn_kir *k) {
    sn_kir_node *statement = innermost(k)->statement;
    SN_CHECK(statement);
    for (sn_kir_acc *acc = statement->acc; acc; acc = acc->link) SN_CHECK(acc->next);
    k->build->depth--;
    sn_kir_append(k, statement, k->build->depth);
}

static sn_kir_node *access(sn_kir *k, sn_kir_op op, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *value) {
    sn_dtype in_register = buffer->dtype == SN_F16 || buffer->dtype == SN_BF16 ? SN_F32 : buffer->dtype;
    SN_CHECK(index->dtype == SN_I64 && (!value || value->dtype == in_register));
    sn_kir_node *node = sn_kir_node_new(k, op, in_register);
    node->buffer = buffer;
    node->in[0] = index;
    node->in[1] = value;
    sn_kir_use(k, index);
    if (value) sn_kir_use(k, value);
    return node;
}

void sn_kir_store(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *value) {
    SN_CHECK(buffer->access != SN_KIR_READ);
    sn_kir_append(k, access(k, SN_KIR_STORE, buffer, index, value), k->build->depth);
}

void sn_kir_atomic_add(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *value) {
    SN_CHECK(buffer->access == SN_KIR_UPDATE || buffer->access == SN_KIR_SCRATCH);
    SN_CHECK(buffer->dtype != SN_BOOL && sn_dtype_bytes(buffer->dtype) >= 4);
    sn_kir_append(k, access(k, SN_KIR_ATOMIC_ADD, buffer, index, value), k->build->depth);
    if (buffer->access == SN_KIR_UPDATE) k->one_thread = true;
}

void sn_kir_prefetch(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index) {
    sn_kir_append(k, access(k, SN_KIR_PREFETCH, buffer, index, NULL), k->build->depth);
}

void sn_kir_barrier(sn_kir *k) {
    sn_kir_append(k, sn_kir_node_new(k, SN_KIR_BARRIER, SN_BOOL), k->build->depth);
}

// Loads from read-only memory are shared, and move out of loops when their index lies in the buffer whatever happens.
static sn_kir_node *shared_load(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index) {
    struct sn_kir_build *b = k->build;
    sn_kir_node **bucket = &b->buckets[((size_t)index->id * 31 + (size_t)buffer->index * 7 + 5) % 1024];
    for (sn_kir_node *node = *bucket; node; node = node->same)
        if (node->op == SN_KIR_LOAD && node->buffer == buffer && node->in[0] == index && node->depth <= b->depth &&
            b->open[node->depth].number == node->region)
            return node;
    sn_kir_node *node = access(k, SN_KIR_LOAD, buffer, index, NULL);
    bool inside = index->min >= 0 && index->max < buffer->count;
    sn_kir_append(k, node, inside ? sn_kir_earliest_depth(k, node) : b->depth);
    node->same = *bucket;
    *bucket = node;
    return node;
}

sn_kir_node *sn_kir_load(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index) {
    if (buffer->access == SN_KIR_READ) return shared_load(k, buffer, index);
    sn_kir_node *node = access(k, SN_KIR_LOAD, buffer, index, NULL);
    sn_kir_append(k, node, k->build->depth);
    return node;
}

sn_kir_node *sn_kir_load_if(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *predicate,
                            sn_kir_node *otherwise) {
    SN_CHECK(predicate->dtype == SN_BOOL);
    if (predicate->op == SN_KIR_CONST) return predicate->i64 ? sn_kir_load(k, buffer, index) : otherwise;
    sn_kir_node *node = access(k, SN_KIR_LOAD, buffer, index, NULL);
    SN_CHECK(otherwise->dtype == node->dtype);
    node->in[1] = predicate;
    node->in[2] = otherwise;
    sn_kir_use(k, predicate);
    sn_kir_use(k, otherwise);
    sn_kir_append(k, node, k->build->depth);
    return node;
}

sn_kir_node *sn_kir_block(sn_kir *k) {
    if (k->build->block) return k->build->block;
    sn_kir_node *node = region_value(k, SN_KIR_BLOCK, SN_I64, NULL, 0);
    node->min = 0;
    node->max = k->grid - 1;
    return k->build->block = node;
}

sn_kir_node *sn_kir_named(sn_kir_node *node, const char *name) {
    if (!node->name) node->name = name;
    return node;
}

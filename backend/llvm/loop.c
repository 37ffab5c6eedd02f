// Control flow. A lanes loop becomes up to three loops that share their accumulators: several vectors at a time (so
// that the latency of a reduction overlaps), one vector at a time, and the rest under a mask.
#include "backend/llvm/emit.h"

#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

typedef struct basic_loop { // do { … } while (next < end), skipped when empty
    LLVMBasicBlockRef before, body, exit;
    LLVMValueRef index, end, *phis;
    int64_t step;
    int n;
    bool guarded;
} basic_loop;

static LLVMBasicBlockRef new_block(sn_emitter *e, const char *name) {
    return LLVMAppendBasicBlockInContext(e->context, e->function, name);
}

static LLVMValueRef i64(sn_emitter *e, int64_t value) {
    return sn_codegen_int(LLVMInt64TypeInContext(e->context), value);
}

// `values` are the accumulators: in the body they are phis, after end_loop what the loop left.
static basic_loop begin_loop(sn_emitter *e, LLVMValueRef low, LLVMValueRef high, int64_t step, bool guarded,
                             LLVMValueRef *values, int n) {
    LLVMBuilderRef b = e->builder;
    basic_loop loop = {.before = LLVMGetInsertBlock(b), .end = high, .step = step, .n = n, .guarded = guarded};
    loop.body = new_block(e, "loop");
    loop.exit = new_block(e, "after");
    if (guarded) {
        LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, low, high, ""), loop.body, loop.exit);
    } else {
        LLVMBuildBr(b, loop.body);
    }
    LLVMPositionBuilderAtEnd(b, loop.body);
    loop.index = LLVMBuildPhi(b, LLVMTypeOf(low), "i");
    LLVMAddIncoming(loop.index, &low, &loop.before, 1);
    loop.phis = SN_NEW_N(&e->memory, LLVMValueRef, n + 1);
    for (int i = 0; i < n; i++) {
        loop.phis[i] = LLVMBuildPhi(b, LLVMTypeOf(values[i]), "");
        LLVMAddIncoming(loop.phis[i], &values[i], &loop.before, 1);
        values[i] = loop.phis[i];
    }
    return loop;
}

static void end_loop(sn_emitter *e, basic_loop *loop, LLVMValueRef *values) {
    LLVMBuilderRef b = e->builder;
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
    LLVMValueRef next = LLVMBuildNSWAdd(b, loop->index, i64(e, loop->step), "");
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, loop->end, ""), loop->body, loop->exit);
    LLVMAddIncoming(loop->index, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(b, loop->exit);
    for (int i = 0; i < loop->n; i++) {
        LLVMAddIncoming(loop->phis[i], &values[i], &latch, 1);
        if (!loop->guarded) continue;
        LLVMValueRef first = LLVMGetIncomingValue(loop->phis[i], 0), last = values[i];
        values[i] = LLVMBuildPhi(b, LLVMTypeOf(last), "");
        LLVMAddIncoming(values[i], (LLVMValueRef[]){first, last}, (LLVMBasicBlockRef[]){loop->before, latch}, 2);
    }
}

static LLVMValueRef identity(sn_emitter *e, const sn_kir_acc *acc, bool vector) {
    sn_kir_scalar value = sn_kir_scalar_identity(acc->op, acc->result->dtype);
    LLVMTypeRef type = sn_codegen_type(e, acc->result->dtype, vector);
    return sn_dtype_is_float(acc->result->dtype) ? sn_codegen_float(type, value.f64) : sn_codegen_int(type, value.i64);
}

static int count_accs(const sn_kir_node *loop) {
    int n = 0;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) n++;
    return n;
}

// The accumulators after one iteration, of which `values` holds those before.
static void accumulate(sn_emitter *e, const sn_kir_node *loop, LLVMValueRef *values, bool vector) {
    int i = 0;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link, i++) {
        LLVMValueRef next = vector ? sn_codegen_vector(e, acc->next) : sn_codegen_scalar(e, acc->next);
        if (acc->reduce && vector && e->mask && loop->mapping == SN_KIR_LANES)
            next = LLVMBuildSelect(e->builder, e->mask, next, identity(e, acc, true), "");
        values[i] = acc->reduce ? sn_codegen_combine(e, acc->op, acc->result->dtype, next, values[i]) : next;
    }
}

static int64_t nodes_in(const sn_kir_region *region) {
    int64_t n = 0;
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        if (node->op == SN_KIR_CONST) continue;
        bool math = node->op >= SN_KIR_EXP && node->op <= SN_KIR_ATAN2;
        n += node->op == SN_KIR_RANDOM_BITS ? 150 : math ? 20 : 1;
        if (node->op == SN_KIR_FOR || node->op == SN_KIR_IF) n += 4 + nodes_in(&node->body) + nodes_in(&node->orelse);
    }
    return n;
}

static void enter_iteration(sn_emitter *e, const sn_kir_node *loop, LLVMValueRef index, const LLVMValueRef *values,
                            bool vector) {
    int i = 0;
    e->values[loop->loop->id] = (sn_emitted){.value = index};
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link, i++)
        if (acc->carry)
            e->values[acc->carry->id] =
                (sn_emitted){.value = values[i], .shape = vector ? SN_EMIT_VECTOR : SN_EMIT_UNIFORM};
}

// Iterations of a short loop one after the other, with a constant index.
static bool emit_unrolled(sn_emitter *e, const sn_kir_node *loop, LLVMValueRef *values, bool vector) {
    const sn_kir_node *low = loop->in[0], *high = loop->in[1];
    if (low->op != SN_KIR_CONST || high->op != SN_KIR_CONST) return false;
    int64_t trips = (high->i64 - low->i64 + loop->step - 1) / loop->step;
    if (trips > 8 || trips * nodes_in(&loop->body) > 160) return false;
    for (int64_t i = low->i64; i < high->i64; i += loop->step) {
        enter_iteration(e, loop, i64(e, i), values, vector);
        sn_codegen_region(e, &loop->body);
        accumulate(e, loop, values, vector);
    }
    return true;
}

static void emit_serial(sn_emitter *e, const sn_kir_node *loop) {
    bool vector = e->in_lanes;
    int n = count_accs(loop), i = 0;
    LLVMValueRef *values = SN_NEW_N(&e->memory, LLVMValueRef, n + 1);
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link)
        values[i++] = acc->reduce ? identity(e, acc, vector)
                                  : (vector ? sn_codegen_vector(e, acc->init) : sn_codegen_scalar(e, acc->init));
    if (!emit_unrolled(e, loop, values, vector)) {
        bool guarded = loop->in[0]->max >= loop->in[1]->min;
        LLVMValueRef low = sn_codegen_scalar(e, loop->in[0]), high = sn_codegen_scalar(e, loop->in[1]);
        basic_loop basic = begin_loop(e, low, high, loop->step, guarded, values, n);
        enter_iteration(e, loop, basic.index, values, vector);
        sn_codegen_region(e, &loop->body);
        accumulate(e, loop, values, vector);
        end_loop(e, &basic, values);
    }
    i = 0;
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link)
        e->values[acc->result->id] =
            (sn_emitted){.value = values[i++], .shape = vector ? SN_EMIT_VECTOR : SN_EMIT_UNIFORM};
}

typedef struct lanes_loop {
    const sn_kir_node *node;
    LLVMValueRef low, count; // iterations
    int64_t most;            // an upper bound of count
    bool whole;              // count is a multiple of the width
    int unroll, n_accs;
    LLVMValueRef *accs; // unroll times n_accs
} lanes_loop;

static void emit_vector_iteration(sn_emitter *e, lanes_loop *l, LLVMValueRef at, int64_t offset, LLVMValueRef *accs) {
    LLVMBuilderRef b = e->builder;
    LLVMValueRef first = offset ? LLVMBuildAdd(b, at, i64(e, offset), "") : at;
    LLVMValueRef index = LLVMBuildAdd(b, l->low, LLVMBuildMul(b, first, i64(e, l->node->step), ""), "");
    e->values[l->node->loop->id] =
        (sn_emitted){.value = index,
                     .shape = SN_EMIT_LINEAR,
                     .stride = l->node->step,
                     .multiple = sn_kir_gcd(l->node->in[0]->multiple, e->width * l->node->step)};
    sn_codegen_region(e, &l->node->body);
    accumulate(e, l->node, accs, true);
}

static bool is_one_step(LLVMValueRef from, LLVMValueRef to, int64_t step) {
    if (!LLVMIsAConstantInt(from) || !LLVMIsAConstantInt(to)) return false;
    return LLVMConstIntGetSExtValue(to) - LLVMConstIntGetSExtValue(from) == step;
}

// Iterations [from, to), `unroll` vectors at a time. A single step is no loop: LLVM would move its loads in front and
// its stores behind before it sees that.
static void emit_whole_vectors(sn_emitter *e, lanes_loop *l, LLVMValueRef from, LLVMValueRef to, int unroll) {
    LLVMValueRef *values = SN_NEW_N(&e->memory, LLVMValueRef, unroll * l->n_accs + 1);
    for (int i = 0; i < unroll * l->n_accs; i++) values[i] = l->accs[i];
    if (unroll == 1 && is_one_step(from, to, e->width)) {
        emit_vector_iteration(e, l, from, 0, l->accs);
        return;
    }
    basic_loop basic = begin_loop(e, from, to, (int64_t)unroll * e->width, true, values, unroll * l->n_accs);
    for (int u = 0; u < unroll; u++)
        emit_vector_iteration(e, l, basic.index, (int64_t)u * e->width, values + u * l->n_accs);
    end_loop(e, &basic, values);
    for (int i = 0; i < unroll * l->n_accs; i++) l->accs[i] = values[i];
}

static void merge_unrolled(sn_emitter *e, lanes_loop *l) {
    for (int half = l->unroll / 2; half > 0; half /= 2)
        for (int u = 0; u < half; u++) {
            const sn_kir_acc *acc = l->node->acc;
            for (int i = 0; i < l->n_accs; i++, acc = acc->link) {
                LLVMValueRef *into = &l->accs[u * l->n_accs + i];
                *into = sn_codegen_combine(e, acc->op, acc->result->dtype, *into, l->accs[(u + half) * l->n_accs + i]);
            }
        }
}

// The last count - from iterations, fewer than a vector.
static void emit_rest(sn_emitter *e, lanes_loop *l, LLVMValueRef from) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef iota[64], left = LLVMBuildSub(b, l->count, from, "");
    for (int i = 0; i < e->width; i++) iota[i] = LLVMConstInt(i32, (unsigned)i, false);
    basic_loop basic = begin_loop(e, from, l->count, e->width, true, l->accs, l->n_accs); // at most once
    LLVMValueRef lanes = LLVMConstVector(iota, (unsigned)e->width);
    LLVMValueRef limit = sn_codegen_splat(e, LLVMBuildTrunc(b, left, i32, ""));
    e->mask = LLVMBuildICmp(b, LLVMIntULT, lanes, limit, "");
    emit_vector_iteration(e, l, basic.index, 0, l->accs);
    e->mask = NULL;
    end_loop(e, &basic, l->accs);
}

static LLVMValueRef halves(sn_emitter *e, LLVMValueRef x, int n, bool upper) {
    LLVMValueRef items[32];
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    for (int i = 0; i < n / 2; i++) items[i] = LLVMConstInt(i32, (unsigned)(upper ? i + n / 2 : i), false);
    LLVMValueRef order = LLVMConstVector(items, (unsigned)n / 2);
    return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)), order, "");
}

static LLVMValueRef across_lanes(sn_emitter *e, const sn_kir_acc *acc, LLVMValueRef x) {
    for (int n = e->width; n > 1; n /= 2)
        x = sn_codegen_combine(e, acc->op, acc->result->dtype, halves(e, x, n, false), halves(e, x, n, true));
    return LLVMBuildExtractElement(e->builder, x, LLVMConstInt(LLVMInt32TypeInContext(e->context), 0, false), "");
}

static lanes_loop analyse(sn_emitter *e, const sn_kir_node *node) {
    lanes_loop l = {.node = node, .low = sn_codegen_scalar(e, node->in[0]), .n_accs = count_accs(node), .unroll = 1};
    const sn_kir_node *low = node->in[0], *high = node->in[1];
    LLVMValueRef span = LLVMBuildSub(e->builder, sn_codegen_scalar(e, high), l.low, "");
    l.count = span;
    if (node->step != 1) {
        LLVMValueRef up = LLVMBuildAdd(e->builder, span, i64(e, node->step - 1), "");
        l.count = LLVMBuildSDiv(e->builder, up, i64(e, node->step), "");
    }
    if (__builtin_sub_overflow(high->max, low->min, &l.most)) l.most = INT64_MAX;
    l.most = l.most / node->step + (l.most % node->step != 0);
    bool constant = low->op == SN_KIR_CONST && high->op == SN_KIR_CONST;
    l.whole = constant ? l.most % e->width == 0
                       : node->step == 1 && sn_kir_gcd(low->multiple, high->multiple) % e->width == 0;
    // A loop that waits for its accumulators, or one so small that counting costs, does several vectors at once.
    int64_t size = nodes_in(&node->body);
    int64_t wanted = size <= 12 ? 4 : size <= 30 && l.n_accs ? 2 : 1;
    if (l.most / e->width >= 2 * wanted) l.unroll = (int)wanted;
    return l;
}

static void emit_lanes(sn_emitter *e, const sn_kir_node *node) {
    LLVMBuilderRef b = e->builder;
    lanes_loop l = analyse(e, node);
    LLVMValueRef start = i64(e, 0);
    int i = 0;
    l.accs = SN_NEW_N(&e->memory, LLVMValueRef, l.unroll * l.n_accs + 1);
    for (int u = 0; u < l.unroll; u++)
        for (const sn_kir_acc *acc = node->acc; acc; acc = acc->link) l.accs[i++] = identity(e, acc, true);
    e->in_lanes = true;
    if (l.unroll > 1) { // an arithmetic shift rounds down, also when the loop is empty and count negative
        LLVMValueRef whole = LLVMBuildAnd(b, l.count, i64(e, -(int64_t)l.unroll * e->width), "");
        emit_whole_vectors(e, &l, start, whole, l.unroll);
        merge_unrolled(e, &l);
        start = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, whole, start, ""), whole, start, "");
    }
    if (l.most >= e->width) {
        LLVMValueRef whole = LLVMBuildAnd(b, l.count, i64(e, -(int64_t)e->width), "");
        emit_whole_vectors(e, &l, start, whole, 1);
        start = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, whole, start, ""), whole, start, "");
    }
    if (!l.whole) emit_rest(e, &l, start);
    e->in_lanes = false;
    i = 0;
    for (const sn_kir_acc *acc = node->acc; acc; acc = acc->link)
        e->values[acc->result->id] = (sn_emitted){.value = across_lanes(e, acc, l.accs[i++])};
}

void sn_codegen_loop(sn_emitter *e, const sn_kir_node *loop) {
    int64_t span;
    bool once = !__builtin_sub_overflow(loop->in[1]->max, loop->in[0]->min, &span) && span <= loop->step;
    if (loop->mapping == SN_KIR_LANES && !once) { // a vector for one element would cost more than it
        emit_lanes(e, loop);
    } else {
        emit_serial(e, loop);
    }
}

static void emit_branches(sn_emitter *e, const sn_kir_node *node) {
    LLVMBasicBlockRef then = new_block(e, "then"), orelse = new_block(e, "else"), merge = new_block(e, "merge");
    LLVMBuildCondBr(e->builder, sn_codegen_scalar(e, node->in[0]), then, orelse);
    LLVMPositionBuilderAtEnd(e->builder, then);
    sn_codegen_region(e, &node->body);
    LLVMBuildBr(e->builder, merge);
    LLVMPositionBuilderAtEnd(e->builder, orelse);
    sn_codegen_region(e, &node->orelse);
    LLVMBuildBr(e->builder, merge);
    LLVMPositionBuilderAtEnd(e->builder, merge);
}

static void emit_arm(sn_emitter *e, const sn_kir_region *region, LLVMValueRef condition) {
    LLVMValueRef outer = e->mask;
    if (!region->first) return;
    e->mask = outer ? LLVMBuildAnd(e->builder, outer, condition, "") : condition;
    e->guards++;
    sn_codegen_region(e, region);
    e->guards--;
    e->mask = outer;
}

static void emit_if(sn_emitter *e, const sn_kir_node *node) {
    if (sn_codegen_get(e, node->in[0]).shape == SN_EMIT_UNIFORM) {
        emit_branches(e, node);
        return;
    }
    LLVMValueRef condition = sn_codegen_vector(e, node->in[0]);
    emit_arm(e, &node->body, condition);
    if (node->orelse.first) emit_arm(e, &node->orelse, LLVMBuildNot(e->builder, condition, ""));
}

void sn_codegen_region(sn_emitter *e, const sn_kir_region *region) {
    for (const sn_kir_node *node = region->first; node; node = node->next) {
        switch (node->op) {
        case SN_KIR_CONST:
        case SN_KIR_BARRIER:
            break;
        case SN_KIR_LOAD:
        case SN_KIR_STORE:
        case SN_KIR_ATOMIC_ADD:
        case SN_KIR_PREFETCH:
            sn_codegen_access(e, node);
            break;
        case SN_KIR_FOR:
            sn_codegen_loop(e, node);
            break;
        case SN_KIR_IF:
            emit_if(e, node);
            break;
        default:
            sn_codegen_value(e, node);
        }
    }
}

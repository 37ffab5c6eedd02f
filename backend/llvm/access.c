// Loads and stores: consecutive lanes are one vector access, others a gather or scatter; a mask makes them masked.
#include "backend/llvm/emit.h"

#include <stdio.h>

static LLVMTypeRef stored_type(sn_emitter *e, sn_dtype dtype, bool vector) {
    LLVMTypeRef type;
    if (dtype == SN_F16) {
        type = LLVMHalfTypeInContext(e->context);
    } else if (dtype == SN_BF16 || dtype == SN_BOOL) {
        type = LLVMIntTypeInContext(e->context, 8 * (unsigned)sn_dtype_bytes(dtype));
    } else {
        return sn_codegen_type(e, dtype, vector);
    }
    return vector ? LLVMVectorType(type, (unsigned)e->width) : type;
}

static LLVMValueRef from_memory(sn_emitter *e, sn_dtype dtype, LLVMValueRef x, bool vector) {
    LLVMBuilderRef b = e->builder;
    switch (dtype) {
    case SN_F16:
        return LLVMBuildFPExt(b, x, sn_codegen_type(e, SN_F32, vector), "");
    case SN_BF16: {
        LLVMTypeRef i32 = sn_codegen_type(e, SN_I32, vector);
        LLVMValueRef bits = LLVMBuildShl(b, LLVMBuildZExt(b, x, i32, ""), sn_codegen_int(i32, 16), "");
        return LLVMBuildBitCast(b, bits, sn_codegen_type(e, SN_F32, vector), "");
    }
    case SN_BOOL:
        return LLVMBuildICmp(b, LLVMIntNE, x, LLVMConstNull(LLVMTypeOf(x)), "");
    default:
        return x;
    }
}

static LLVMValueRef to_memory(sn_emitter *e, sn_dtype dtype, LLVMValueRef x, bool vector) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = stored_type(e, dtype, vector);
    switch (dtype) {
    case SN_F16:
        return LLVMBuildFPTrunc(b, x, type, "");
    case SN_BF16: {
        sn_kir_node single = {.op = SN_KIR_CONST, .dtype = SN_F32};
        sn_kir_node rounding = {.op = SN_KIR_ROUND_BF16, .dtype = SN_F32, .in = {&single}};
        LLVMTypeRef i32 = sn_codegen_type(e, SN_I32, vector);
        LLVMValueRef rounded = sn_codegen_compute(e, &rounding, (LLVMValueRef[4]){x}, vector, false);
        LLVMValueRef bits = LLVMBuildBitCast(b, rounded, i32, "");
        return LLVMBuildTrunc(b, LLVMBuildLShr(b, bits, sn_codegen_int(i32, 16), ""), type, "");
    }
    case SN_BOOL:
        return LLVMBuildZExt(b, x, type, "");
    default:
        return x;
    }
}

static LLVMValueRef memory_of(const sn_emitter *e, const sn_kir_buffer *b) {
    return b->access == SN_KIR_SCRATCH ? e->scratch[b->index] : e->params[b->index];
}

static LLVMValueRef address(sn_emitter *e, const sn_kir_buffer *b, LLVMValueRef index) {
    return LLVMBuildGEP2(e->builder, stored_type(e, b->dtype, false), memory_of(e, b), &index, 1, "");
}

// Pointers of all lanes.
static LLVMValueRef addresses(sn_emitter *e, const sn_kir_node *node) {
    const sn_kir_node *index = node->in[0];
    return address(e, node->buffer,
                   sn_codegen_fits_i32(index) ? sn_codegen_narrow(e, index) : sn_codegen_vector(e, index));
}

static void set_access(sn_emitter *e, const sn_kir_buffer *b, LLVMValueRef instruction) {
    LLVMSetAlignment(instruction, (unsigned)sn_dtype_bytes(b->dtype));
    if (b->access != SN_KIR_READ) return;
    unsigned kind = LLVMGetMDKindIDInContext(e->context, "invariant.load", 14);
    LLVMValueRef empty = LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, NULL, 0));
    LLVMSetMetadata(instruction, kind, empty);
}

static LLVMValueRef alignment(sn_emitter *e, const sn_kir_buffer *b) {
    return LLVMConstInt(LLVMInt32TypeInContext(e->context), sn_dtype_bytes(b->dtype), false);
}

static LLVMValueRef all_lanes(sn_emitter *e) {
    return sn_codegen_int(sn_codegen_type(e, SN_BOOL, true), -1);
}

static LLVMValueRef any_lane(sn_emitter *e, LLVMValueRef mask) {
    LLVMTypeRef bits = LLVMIntTypeInContext(e->context, (unsigned)e->width);
    LLVMValueRef set = LLVMBuildBitCast(e->builder, mask, bits, "");
    return LLVMBuildICmp(e->builder, LLVMIntNE, set, LLVMConstNull(bits), "");
}

// A scalar load that may be of no use to anyone: element 0 stands in, for it always exists.
static LLVMValueRef load_scalar(sn_emitter *e, const sn_kir_node *node, LLVMValueRef wanted) {
    LLVMValueRef index = sn_codegen_scalar(e, node->in[0]);
    if (wanted) index = LLVMBuildSelect(e->builder, wanted, index, sn_codegen_int(LLVMTypeOf(index), 0), "");
    LLVMTypeRef type = stored_type(e, node->buffer->dtype, false);
    LLVMValueRef loaded = LLVMBuildLoad2(e->builder, type, address(e, node->buffer, index), "");
    set_access(e, node->buffer, loaded);
    return from_memory(e, node->buffer->dtype, loaded, false);
}

static sn_emitted load_uniform(sn_emitter *e, const sn_kir_node *node) {
    LLVMValueRef wanted = e->guards && e->mask ? any_lane(e, e->mask) : NULL;
    if (!node->in[1]) return (sn_emitted){.value = load_scalar(e, node, wanted)};
    LLVMValueRef predicate = sn_codegen_scalar(e, node->in[1]);
    if (wanted) wanted = LLVMBuildAnd(e->builder, wanted, predicate, "");
    LLVMValueRef value = load_scalar(e, node, wanted ? wanted : predicate);
    value = LLVMBuildSelect(e->builder, predicate, value, sn_codegen_scalar(e, node->in[2]), "");
    return (sn_emitted){.value = value};
}

static LLVMValueRef masked_and(sn_emitter *e, LLVMValueRef mask, LLVMValueRef also) {
    if (!mask) return also;
    return also ? LLVMBuildAnd(e->builder, mask, also, "") : mask;
}

static LLVMValueRef load_vector(sn_emitter *e, const sn_kir_node *node, LLVMValueRef mask) {
    const sn_kir_buffer *b = node->buffer;
    sn_emitted index = sn_codegen_get(e, node->in[0]);
    LLVMTypeRef type = stored_type(e, b->dtype, true), pointer = LLVMPointerTypeInContext(e->context, 0);
    bool line = index.shape == SN_EMIT_LINEAR && index.stride == 1;
    if (line && !mask) {
        LLVMValueRef loaded = LLVMBuildLoad2(e->builder, type, address(e, b, index.value), "");
        set_access(e, b, loaded);
        return loaded;
    }
    if (index.shape == SN_EMIT_UNIFORM) { // a predicate that varies
        LLVMValueRef scalar = load_scalar(e, node, any_lane(e, mask));
        return to_memory(e, b->dtype, sn_codegen_splat(e, scalar), true);
    }
    LLVMTypeRef overloads[] = {type, line ? pointer : LLVMVectorType(pointer, (unsigned)e->width)};
    LLVMValueRef args[] = {line ? address(e, b, index.value) : addresses(e, node), alignment(e, b),
                           mask ? mask : all_lanes(e), LLVMConstNull(type)};
    return sn_codegen_call(e, line ? "llvm.masked.load" : "llvm.masked.gather", overloads, 2, args, 4);
}

static sn_emitted load(sn_emitter *e, const sn_kir_node *node) {
    bool varying = false;
    for (int i = 0; i < 3; i++)
        varying = varying || (node->in[i] && sn_codegen_get(e, node->in[i]).shape != SN_EMIT_UNIFORM);
    if (!varying) return load_uniform(e, node);
    LLVMValueRef predicate = node->in[1] ? sn_codegen_vector(e, node->in[1]) : NULL;
    LLVMValueRef loaded = load_vector(e, node, masked_and(e, e->mask, predicate));
    LLVMValueRef value = from_memory(e, node->buffer->dtype, loaded, true);
    if (predicate) {
        LLVMValueRef otherwise = sn_codegen_vector(e, node->in[2]);
        value = LLVMBuildSelect(e->builder, predicate, value, otherwise, "");
    }
    return (sn_emitted){.value = value, .shape = SN_EMIT_VECTOR};
}

static void store_vector(sn_emitter *e, const sn_kir_node *node, LLVMValueRef value) {
    const sn_kir_buffer *b = node->buffer;
    sn_emitted index = sn_codegen_get(e, node->in[0]);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(e->context, 0);
    bool line = index.shape == SN_EMIT_LINEAR && index.stride == 1;
    if (line && !e->mask) {
        set_access(e, b, LLVMBuildStore(e->builder, value, address(e, b, index.value)));
        return;
    }
    LLVMTypeRef overloads[] = {LLVMTypeOf(value), line ? pointer : LLVMVectorType(pointer, (unsigned)e->width)};
    LLVMValueRef args[] = {value, line ? address(e, b, index.value) : addresses(e, node), alignment(e, b),
                           e->mask ? e->mask : all_lanes(e)};
    sn_codegen_call(e, line ? "llvm.masked.store" : "llvm.masked.scatter", overloads, 2, args, 4);
}

static void add_scalar(sn_emitter *e, const sn_kir_node *node, LLVMValueRef where, LLVMValueRef value) {
    LLVMValueRef old = LLVMBuildLoad2(e->builder, LLVMTypeOf(value), where, "");
    LLVMSetAlignment(old, (unsigned)sn_dtype_bytes(node->buffer->dtype));
    LLVMValueRef sum = sn_codegen_combine(e, SN_KIR_ADD, node->dtype, old, value);
    LLVMSetAlignment(LLVMBuildStore(e->builder, sum, where), (unsigned)sn_dtype_bytes(node->buffer->dtype));
}

// Lanes that may meet add one after the other.
static void add_lanes(sn_emitter *e, const sn_kir_node *node) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef where = addresses(e, node), value = sn_codegen_vector(e, node->in[1]), mask = e->mask;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
    LLVMBasicBlockRef check = LLVMAppendBasicBlockInContext(e->context, e->function, "lane");
    LLVMBasicBlockRef add = LLVMAppendBasicBlockInContext(e->context, e->function, "add");
    LLVMBasicBlockRef next = LLVMAppendBasicBlockInContext(e->context, e->function, "next");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, e->function, "done");
    LLVMBuildBr(b, check);
    LLVMPositionBuilderAtEnd(b, check);
    LLVMValueRef lane = LLVMBuildPhi(b, i32, "");
    if (mask) {
        LLVMBuildCondBr(b, LLVMBuildExtractElement(b, mask, lane, ""), add, next);
    } else {
        LLVMBuildBr(b, add);
    }
    LLVMPositionBuilderAtEnd(b, add);
    add_scalar(e, node, LLVMBuildExtractElement(b, where, lane, ""), LLVMBuildExtractElement(b, value, lane, ""));
    LLVMBuildBr(b, next);
    LLVMPositionBuilderAtEnd(b, next);
    LLVMValueRef after = LLVMBuildAdd(b, lane, LLVMConstInt(i32, 1, false), "");
    LLVMValueRef more = LLVMBuildICmp(b, LLVMIntULT, after, LLVMConstInt(i32, (unsigned)e->width, false), "");
    LLVMBuildCondBr(b, more, check, done);
    LLVMAddIncoming(lane, (LLVMValueRef[]){LLVMConstInt(i32, 0, false), after}, (LLVMBasicBlockRef[]){before, next}, 2);
    LLVMPositionBuilderAtEnd(b, done);
}

// Into all caches, for writing where the buffer may be written: the line is then no other core's.
static void prefetch(sn_emitter *e, const sn_kir_node *node) {
    enum { ALL_CACHES = 3, DATA = 1 };
    const sn_kir_buffer *b = node->buffer;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), pointer = LLVMPointerTypeInContext(e->context, 0);
    LLVMValueRef args[] = {address(e, b, sn_codegen_scalar(e, node->in[0])),
                           LLVMConstInt(i32, b->access != SN_KIR_READ, false), LLVMConstInt(i32, ALL_CACHES, false),
                           LLVMConstInt(i32, DATA, false)};
    sn_codegen_call(e, "llvm.prefetch", &pointer, 1, args, 4);
}

void sn_codegen_access(sn_emitter *e, const sn_kir_node *node) {
    const sn_kir_buffer *b = node->buffer;
    if (node->op == SN_KIR_PREFETCH) {
        prefetch(e, node);
    } else if (node->op == SN_KIR_LOAD) {
        e->values[node->id] = load(e, node);
    } else if (!e->in_lanes) {
        LLVMValueRef where = address(e, b, sn_codegen_scalar(e, node->in[0])),
                     value = sn_codegen_scalar(e, node->in[1]);
        if (node->op == SN_KIR_ATOMIC_ADD) {
            add_scalar(e, node, where, value);
        } else {
            set_access(e, b, LLVMBuildStore(e->builder, to_memory(e, b->dtype, value, false), where));
        }
    } else if (node->op == SN_KIR_ATOMIC_ADD) {
        add_lanes(e, node);
    } else {
        store_vector(e, node, to_memory(e, b->dtype, sn_codegen_vector(e, node->in[1]), true));
    }
}

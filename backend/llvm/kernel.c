// The functions of a kernel. The work is in an internal one whose parameters are `noalias` pointers: pointers loaded
// from the public function's table could not say so.
#include "backend/llvm/emit.h"

#include <string.h>

static void set_noalias(sn_emitter *e, LLVMValueRef function, unsigned parameter) {
    unsigned kind = LLVMGetEnumAttributeKindForName("noalias", 7);
    LLVMAddAttributeAtIndex(function, parameter + 1, LLVMCreateEnumAttribute(e->context, kind, 0));
}

static void set_nounwind(sn_emitter *e, LLVMValueRef function) {
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->context, kind, 0));
}

static void allocate_scratch(sn_emitter *e) {
    LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
    e->scratch = SN_NEW_N(&e->memory, LLVMValueRef, e->k->n_scratch + 1);
    for (int i = 0; i < e->k->n_scratch; i++) {
        const sn_kir_buffer *b = e->k->scratch[i];
        uint64_t bytes = (uint64_t)b->count * sn_dtype_bytes(b->dtype);
        e->scratch[i] = LLVMBuildAlloca(e->builder, LLVMArrayType2(i8, bytes), b->name);
        LLVMSetAlignment(e->scratch[i], 64);
    }
}

static void emit_blocks(sn_emitter *e, LLVMValueRef begin, LLVMValueRef end) {
    LLVMBuilderRef b = e->builder;
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(b);
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->context, e->function, "block");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, e->function, "done");
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, begin, end, ""), body, done);
    LLVMPositionBuilderAtEnd(b, body);
    e->block = LLVMBuildPhi(b, LLVMTypeOf(begin), "block");
    sn_codegen_region(e, &e->k->body);
    LLVMValueRef next = LLVMBuildNSWAdd(b, e->block, LLVMConstInt(LLVMTypeOf(begin), 1, false), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, end, ""), body, done);
    LLVMAddIncoming(e->block, (LLVMValueRef[]){begin, next}, (LLVMBasicBlockRef[]){entry, latch}, 2);
    LLVMPositionBuilderAtEnd(b, done);
    LLVMBuildRetVoid(b);
}

static LLVMValueRef emit_worker(sn_emitter *e, LLVMTypeRef *type) {
    const sn_kir *k = e->k;
    LLVMTypeRef *types = SN_NEW_N(&e->memory, LLVMTypeRef, k->n_params + 2);
    for (int i = 0; i < k->n_params; i++) types[i] = LLVMPointerTypeInContext(e->context, 0);
    types[k->n_params] = types[k->n_params + 1] = LLVMInt64TypeInContext(e->context);
    *type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, (unsigned)k->n_params + 2, false);
    e->function = LLVMAddFunction(e->module, sn_arena_printf(&e->memory, "%s.blocks", k->name), *type);
    LLVMSetLinkage(e->function, LLVMInternalLinkage);
    set_nounwind(e, e->function);
    e->params = SN_NEW_N(&e->memory, LLVMValueRef, k->n_params + 1);
    for (int i = 0; i < k->n_params; i++) {
        e->params[i] = LLVMGetParam(e->function, (unsigned)i);
        LLVMSetValueName2(e->params[i], k->params[i]->name, strlen(k->params[i]->name));
        set_noalias(e, e->function, (unsigned)i);
    }
    LLVMPositionBuilderAtEnd(e->builder, LLVMAppendBasicBlockInContext(e->context, e->function, "entry"));
    allocate_scratch(e);
    emit_blocks(e, LLVMGetParam(e->function, (unsigned)k->n_params),
                LLVMGetParam(e->function, (unsigned)k->n_params + 1));
    return e->function;
}

LLVMValueRef sn_codegen_kernel(sn_emitter *e, const sn_kir *k) {
    LLVMTypeRef worker_type, pointer = LLVMPointerTypeInContext(e->context, 0);
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context), types[] = {pointer, i64, i64};
    e->k = k;
    e->values = SN_NEW_N(&e->memory, sn_emitted, k->n_nodes + 1);
    LLVMValueRef worker = emit_worker(e, &worker_type);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), types, 3, false);
    LLVMValueRef entry = LLVMAddFunction(e->module, k->name, type);
    set_nounwind(e, entry);
    LLVMPositionBuilderAtEnd(e->builder, LLVMAppendBasicBlockInContext(e->context, entry, "entry"));
    LLVMValueRef *args = SN_NEW_N(&e->memory, LLVMValueRef, k->n_params + 2);
    for (int i = 0; i < k->n_params; i++) {
        LLVMValueRef at = LLVMConstInt(i64, (unsigned)i, false);
        LLVMValueRef slot = LLVMBuildGEP2(e->builder, pointer, LLVMGetParam(entry, 0), &at, 1, "");
        args[i] = LLVMBuildLoad2(e->builder, pointer, slot, "");
    }
    args[k->n_params] = LLVMGetParam(entry, 1);
    args[k->n_params + 1] = LLVMGetParam(entry, 2);
    LLVMBuildCall2(e->builder, worker_type, worker, args, (unsigned)k->n_params + 2, "");
    LLVMBuildRetVoid(e->builder);
    sn_arena_free(&e->memory);
    return worker;
}

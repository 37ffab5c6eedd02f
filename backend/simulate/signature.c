#include "backend/simulate/signature.h"

#include "base/map.h"

#include <inttypes.h>
#include <string.h>

const char **sn_kernel_signatures(const sn_kernels *kernels, sn_arena *arena) {
    const char **signatures = SN_NEW_N(arena, const char *, kernels->n + 1);
    sn_str text = {0};
    for (size_t i = 0; i < kernels->n; i++) {
        sn_str_clear(&text);
        sn_kir_print(kernels->kirs[i], &text);
        // the name says where the kernel came from, not what it does: it ends before the parameters
        size_t skip = strcspn(sn_str_text(&text), "(");
        uint64_t hash = sn_hash_bytes(sn_str_text(&text) + skip, text.length - skip, 0);
        signatures[i] = sn_arena_printf(arena, "kernel %016" PRIx64, hash);
    }
    sn_str_free(&text);
    return signatures;
}

static void print_dims(sn_str *out, const char *name, const int64_t *dims, int64_t n) {
    sn_str_printf(out, " %s", name);
    for (int64_t i = 0; i < n; i++) sn_str_printf(out, "%c%" PRId64, i ? 'x' : '=', dims[i]);
}

static void print_gemm(const sn_do_gemm *g, sn_str *out) {
    sn_str_printf(out, " %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s", g->m, g->n, g->k, g->transpose_a ? " ta" : "",
                  g->transpose_b ? " tb" : "");
    if (g->batch_rank) print_dims(out, "batch", g->batch, g->batch_rank);
    if (g->beta != 0) sn_str_puts(out, " add");
}

static void print_conv(const sn_do_conv *c, sn_str *out) {
    sn_str_printf(out, " n=%" PRId64 " c=%" PRId64 " o=%" PRId64 " g=%" PRId64, c->batch, c->in_channels,
                  c->out_channels, c->groups);
    print_dims(out, "in", c->in, c->spatial);
    print_dims(out, "kernel", c->kernel, c->spatial);
    print_dims(out, "stride", c->stride, c->spatial);
    print_dims(out, "dilation", c->dilation, c->spatial);
}

static void print_attention(const sn_do_attention *a, sn_str *out) {
    if (a->dtype != SN_F32) sn_str_printf(out, " %s", sn_dtype_name(a->dtype));
    sn_str_printf(out,
                  " b=%" PRId64 " h=%" PRId64 "/%" PRId64 " s=%" PRId64 "x%" PRId64 " d=%" PRId64 "/%" PRId64 "%s%s",
                  a->batch, a->heads, a->kv_heads, a->sq, a->skv, a->d, a->dv, a->causal ? " causal" : "",
                  a->mask.buffer >= 0 ? " mask" : "");
}

void sn_instr_signature(const sn_instr *in, const char *const *kernels, sn_str *out) {
    if (in->kind == SN_INSTR_KERNEL) {
        sn_str_printf(out, "%s x%" PRId64, kernels[in->kernel.symbol], in->kernel.grid);
        return;
    }
    sn_str_puts(out, sn_instr_name(in->kind));
    switch (in->kind) {
    case SN_INSTR_GEMM:
        print_gemm(&in->gemm, out);
        break;
    case SN_INSTR_CONV:
    case SN_INSTR_CONV_INPUT_GRAD:
    case SN_INSTR_CONV_WEIGHT_GRAD:
        print_conv(&in->conv, out);
        break;
    case SN_INSTR_ATTENTION:
    case SN_INSTR_ATTENTION_GRAD:
        print_attention(&in->attention, out);
        break;
    case SN_INSTR_COPY:
        print_dims(out, "dims", in->copy.dims, in->copy.rank);
        print_dims(out, "from", in->copy.from_stride, in->copy.rank);
        print_dims(out, "to", in->copy.to_stride, in->copy.rank);
        break;
    case SN_INSTR_FILL:
        sn_str_printf(out, " %" PRId64, in->fill.count);
        break;
    default:
        break;
    }
}

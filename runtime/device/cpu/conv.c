// Convolutions through oneDNN. The library chooses the layouts it is fast with; what differs from ours (dense, channels
// before space) is reordered on the way in and out, through a scratch memory that all convolutions share because they
// run one after the other.
#include "base/alloc.h"
#include "runtime/device/cpu/cpu.h"

#include <string.h>

enum { X, W, Y, OPERANDS };

typedef struct operand {
    dnnl_memory_desc_t ours;
    dnnl_memory_t mine, theirs; // in our layout; in the library's (NULL when it is the same)
    dnnl_primitive_t reorder;
    int64_t offset; // of theirs in the scratch
} operand;

struct sn_cpu_conv {
    operand operands[OPERANDS];
    int written; // the one that is the result
    int argument[OPERANDS];
    dnnl_primitive_t primitive;
    dnnl_memory_t pad; // the library's own scratch
    int64_t pad_offset, scratch_bytes;
};

static sn_status check(dnnl_status_t status) {
    return sn_cpu_library_status(status, "convolution");
}

static sn_status describe(const sn_do_conv *c, operand *operands) {
    static const dnnl_format_tag_t plain[] = {[3] = dnnl_abc, [4] = dnnl_abcd, [5] = dnnl_abcde, [6] = dnnl_abcdef};
    int s = (int)c->spatial;
    dnnl_dims_t x = {c->batch, c->in_channels}, y = {c->batch, c->out_channels}, w;
    int at = 0;
    if (c->groups > 1) w[at++] = c->groups;
    w[at++] = c->out_channels / c->groups, w[at++] = c->in_channels / c->groups;
    for (int i = 0; i < s; i++) x[2 + i] = c->in[i], y[2 + i] = c->out[i], w[at++] = c->kernel[i];
    SN_TRY(check(dnnl_memory_desc_init_by_tag(&operands[X].ours, s + 2, x, dnnl_f32, plain[s + 2])));
    SN_TRY(check(dnnl_memory_desc_init_by_tag(&operands[Y].ours, s + 2, y, dnnl_f32, plain[s + 2])));
    return check(dnnl_memory_desc_init_by_tag(&operands[W].ours, at, w, dnnl_f32, plain[at]));
}

// The convolution of the kind asked for, with the given descriptors (any layout).
static sn_status init_desc(sn_instr_kind kind, const sn_do_conv *c, const dnnl_memory_desc_t md[OPERANDS],
                           dnnl_convolution_desc_t *out) {
    dnnl_dims_t stride, dilation, begin, end;
    for (int64_t i = 0; i < c->spatial; i++) {
        int64_t span = (c->kernel[i] - 1) * c->dilation[i] + 1;
        stride[i] = c->stride[i], dilation[i] = c->dilation[i] - 1, begin[i] = c->pad_begin[i];
        end[i] = (c->out[i] - 1) * c->stride[i] + span - c->in[i] - c->pad_begin[i]; // what is really read
    }
    switch (kind) {
    case SN_INSTR_CONV:
        return check(dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_training, dnnl_convolution_direct,
                                                                &md[X], &md[W], NULL, &md[Y], stride, dilation, begin,
                                                                end));
    case SN_INSTR_CONV_INPUT_GRAD:
        return check(dnnl_dilated_convolution_backward_data_desc_init(out, dnnl_convolution_direct, &md[X], &md[W],
                                                                      &md[Y], stride, dilation, begin, end));
    default:
        return check(dnnl_dilated_convolution_backward_weights_desc_init(out, dnnl_convolution_direct, &md[X], &md[W],
                                                                         NULL, &md[Y], stride, dilation, begin, end));
    }
}

// The gradients want the forward primitive as a hint.
static sn_status make_desc(dnnl_engine_t engine, sn_instr_kind kind, const sn_do_conv *c,
                           const dnnl_memory_desc_t md[OPERANDS], dnnl_primitive_attr_t attr,
                           dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t forward = NULL;
    if (kind != SN_INSTR_CONV) {
        SN_TRY(init_desc(SN_INSTR_CONV, c, md, &desc));
        SN_TRY(check(dnnl_primitive_desc_create(&forward, &desc, attr, engine, NULL)));
    }
    sn_status status = init_desc(kind, c, md, &desc);
    if (!status) status = check(dnnl_primitive_desc_create(out, &desc, attr, engine, forward));
    if (forward) dnnl_primitive_desc_destroy(forward);
    return status;
}

static int64_t reserve(sn_cpu_conv *conv, size_t bytes) {
    int64_t at = conv->scratch_bytes;
    conv->scratch_bytes = at + (int64_t)((bytes + 63) / 64 * 64);
    return at;
}

static sn_status make_operand(sn_cpu_conv *conv, dnnl_engine_t engine, int which, const dnnl_memory_desc_t *wanted) {
    operand *o = &conv->operands[which];
    SN_TRY(check(dnnl_memory_create(&o->mine, &o->ours, engine, NULL)));
    if (dnnl_memory_desc_equal(wanted, &o->ours)) return SN_OK;
    SN_TRY(check(dnnl_memory_create(&o->theirs, wanted, engine, NULL)));
    o->offset = reserve(conv, dnnl_memory_desc_get_size(wanted));
    bool out = which == conv->written;
    dnnl_primitive_desc_t desc;
    SN_TRY(check(dnnl_reorder_primitive_desc_create(&desc, out ? wanted : &o->ours, engine, out ? &o->ours : wanted,
                                                    engine, NULL)));
    sn_status status = check(dnnl_primitive_create(&o->reorder, desc));
    dnnl_primitive_desc_destroy(desc);
    return status;
}

static sn_status build(sn_cpu_conv *conv, dnnl_engine_t engine, sn_instr_kind kind, const sn_do_conv *c,
                       dnnl_primitive_desc_t desc) {
    // Where each operand is found, as source, weights or destination, or a gradient of them.
    static const struct {
        dnnl_query_t query[OPERANDS];
        int argument[OPERANDS], written;
    } roles[] = {
        [SN_INSTR_CONV] = {{dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
                           {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                           Y},
        [SN_INSTR_CONV_INPUT_GRAD] = {{dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
                                      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                      X},
        [SN_INSTR_CONV_WEIGHT_GRAD] = {{dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
                                       {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
                                       W},
    };
    (void)c;
    conv->written = roles[kind].written;
    memcpy(conv->argument, roles[kind].argument, sizeof conv->argument);
    for (int i = 0; i < OPERANDS; i++)
        SN_TRY(make_operand(conv, engine, i, dnnl_primitive_desc_query_md(desc, roles[kind].query[i], 0)));
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    SN_TRY(check(dnnl_memory_create(&conv->pad, pad, engine, NULL)));
    conv->pad_offset = reserve(conv, dnnl_memory_desc_get_size(pad));
    return check(dnnl_primitive_create(&conv->primitive, desc));
}

sn_status sn_cpu_conv_create(dnnl_engine_t engine, sn_instr_kind kind, const sn_do_conv *c, sn_cpu_conv **out) {
    sn_cpu_conv *conv = sn_alloc(sizeof *conv);
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    sn_status status = describe(c, conv->operands);
    dnnl_memory_desc_t md[OPERANDS];
    for (int i = 0; i < OPERANDS && !status; i++) {
        md[i] = conv->operands[i].ours;
        status = check(dnnl_memory_desc_init_by_tag(&md[i], md[i].ndims, md[i].dims, dnnl_f32, dnnl_format_tag_any));
    }
    if (!status) status = check(dnnl_primitive_attr_create(&attr));
    if (!status) status = check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (!status) status = make_desc(engine, kind, c, md, attr, &desc);
    if (!status) status = build(conv, engine, kind, c, desc);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (status) {
        sn_cpu_conv_destroy(conv);
        return status;
    }
    *out = conv;
    return SN_OK;
}

void sn_cpu_conv_destroy(sn_cpu_conv *conv) {
    for (int i = 0; conv && i < OPERANDS; i++) {
        operand *o = &conv->operands[i];
        if (o->mine) dnnl_memory_destroy(o->mine);
        if (o->theirs) dnnl_memory_destroy(o->theirs);
        if (o->reorder) dnnl_primitive_destroy(o->reorder);
    }
    if (conv && conv->pad) dnnl_memory_destroy(conv->pad);
    if (conv && conv->primitive) dnnl_primitive_destroy(conv->primitive);
    sn_free(conv);
}

int64_t sn_cpu_conv_scratch(const sn_cpu_conv *conv) {
    return conv->scratch_bytes;
}

static sn_status reorder(const operand *o, dnnl_stream_t stream, bool out) {
    if (!o->theirs) return SN_OK;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, out ? o->theirs : o->mine}, {DNNL_ARG_TO, out ? o->mine : o->theirs}};
    return check(dnnl_primitive_execute(o->reorder, stream, 2, args));
}

sn_status sn_cpu_conv_run(const sn_cpu_conv *conv, dnnl_stream_t stream, float *x, float *w, float *y, void *scratch) {
    float *addresses[OPERANDS] = {[X] = x, [W] = w, [Y] = y};
    dnnl_exec_arg_t args[OPERANDS + 1];
    for (int i = 0; i < OPERANDS; i++) {
        const operand *o = &conv->operands[i];
        SN_TRY(check(dnnl_memory_set_data_handle(o->mine, addresses[i])));
        if (o->theirs) SN_TRY(check(dnnl_memory_set_data_handle(o->theirs, (char *)scratch + o->offset)));
        if (i != conv->written) SN_TRY(reorder(o, stream, false));
        args[i] = (dnnl_exec_arg_t){conv->argument[i], o->theirs ? o->theirs : o->mine};
    }
    SN_TRY(check(dnnl_memory_set_data_handle(conv->pad, (char *)scratch + conv->pad_offset)));
    args[OPERANDS] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, conv->pad};
    SN_TRY(check(dnnl_primitive_execute(conv->primitive, stream, OPERANDS + 1, args)));
    SN_TRY(reorder(&conv->operands[conv->written], stream, true));
    return check(dnnl_stream_wait(stream));
}

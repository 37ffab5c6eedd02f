// Ops against the curves of a device kind.
//
// A matrix product is cut into tiles that the cores work off in waves; the last wave is rarely full, which is where
// small products lose. The library has several tile shapes and may cut K between cores; it takes the best, so the model
// does: the least, over tile shapes and cuts of K, of waves x time of a tile. Everything else streams through memory.
#include "passes/cost/analytic.h"

#include <math.h>

static sn_rate rate_of(sn_dtype dtype) {
    switch (dtype) {
    case SN_F64:
        return SN_RATE_F64;
    case SN_F16:
    case SN_BF16:
        return SN_RATE_16;
    case SN_I8:
    case SN_U8:
        return SN_RATE_8;
    default:
        return SN_RATE_F32;
    }
}

static double stream_seconds(const sn_device_kind *device, const sn_curve *curve, double bytes) {
    return (bytes + (bytes > 0 ? curve->ramp_bytes : 0)) / (device->memory_bandwidth * curve->stream);
}

// One tile shape and one cut of K over `cuts` cores; `ramp` steps fill a tile's pipeline.
static double tiled(const sn_device_kind *device, const sn_curve *curve, double rate, double ramp, int64_t batch,
                    int64_t m, int64_t n, int64_t k, int tile_m, int tile_n, int cuts) {
    double tiles = (double)batch * (double)((m + tile_m - 1) / tile_m) * (double)((n + tile_n - 1) / tile_n) * cuts;
    double waves = ceil(tiles / device->cores), area = (double)tile_m * tile_n;
    double steps = ceil((double)k / cuts / 32) * 32 + ramp;
    double efficiency = curve->tile_efficiency * pow(area / (256 * 128), curve->small_tile);
    double seconds = waves * steps * 2 * area / (rate / device->cores * efficiency);
    double partials = cuts > 1 ? 8.0 * cuts * (double)batch * (double)m * (double)n : 0; // f32, written and read
    return seconds + partials / (device->memory_bandwidth * curve->stream);
}

double sn_cost_matmul(const sn_device_kind *device, sn_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k) {
    static const struct { int m, n; } tile[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
    const sn_curve *curve = device->curve;
    double rate = device->flops[rate_of(dtype)], width = (double)sn_dtype_bytes(dtype), best = INFINITY;
    double work = 2.0 * (double)batch * (double)m * (double)n * (double)k;
    double bytes = width * (double)batch * ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n);
    if (device->cores == 1) return fmax(work / rate, stream_seconds(device, curve, bytes)) + curve->start;
    // Filling takes time, not steps: of a rate below that of 16 bits, for which it was measured, fewer.
    double half = device->flops[SN_RATE_16], ramp = curve->tile_ramp * (half > rate ? rate / half : 1);
    if (rate_of(dtype) == SN_RATE_8) rate *= curve->eight_bit;
    int64_t row = 16 / (int64_t)width;
    if (n % row || k % row) rate *= curve->misaligned;
    for (size_t i = 0; i < sizeof tile / sizeof *tile; i++)
        for (int cuts = 1; cuts <= 16 && cuts <= (k + 255) / 256; cuts *= 2)
            best = fmin(best, tiled(device, curve, rate, ramp, batch, m, n, k, tile[i].m, tile[i].n, cuts));
    return fmax(best, stream_seconds(device, curve, bytes)) + curve->start;
}

// batch x [m, k] x [k, n]
typedef struct product {
    int64_t batch, m, n, k;
} product;

static product product_of(const sn_op *op) {
    sn_type a = op->operands[0]->type, b = op->operands[1]->type, out = op->results[0]->type;
    bool turned = sn_op_int(op, "transpose_a") != 0;
    product p = {.m = out.dim[out.rank - 2], .n = out.dim[out.rank - 1], .k = a.dim[turned ? a.rank - 2 : a.rank - 1]};
    p.batch = p.m * p.n > 0 ? sn_type_count(out) / (p.m * p.n) : 0;
    // A weight without batch dims: the rows of all batches are one product.
    if (sn_type_count(b) == p.k * p.n && !turned) p.m *= p.batch, p.batch = 1;
    return p;
}

static double matmul_seconds(const sn_device_kind *device, const sn_op *op) {
    product p = product_of(op);
    return sn_cost_matmul(device, op->operands[0]->type.dtype, p.batch, p.m, p.n, p.k);
}

static double attention_seconds(const sn_device_kind *device, const sn_op *op, sn_work work) {
    const sn_curve *curve = device->curve;
    double keys = (double)op->operands[1]->type.dim[2];
    double efficiency = curve->attention[op->kind == SN_OP_ATTENTION_GRAD] * keys / (keys + curve->attention_ramp);
    double rate = device->flops[rate_of(op->operands[0]->type.dtype)] * efficiency;
    return fmax(work.flops / rate, stream_seconds(device, curve, work.bytes)) + curve->start;
}

// A fused kernel streams. A contraction that the CPU's runtime has no library call for is in one, too; other devices
// have a library for it.
static double kernel_seconds(const sn_device_kind *device, const sn_op *op, sn_work work) {
    const sn_curve *curve = device->curve;
    sn_arena scratch = {0};
    double seconds = 0;
    SN_FOR_OPS(inner, sn_op_func(op, "body")) {
        if (device->cores == 1 || !sn_op_is_contraction(inner->kind)) continue;
        sn_work part = sn_op_work(inner, &scratch);
        seconds += sn_analytic_op(device, inner, part);
        work.flops -= part.flops;
    }
    sn_arena_free(&scratch);
    double rest = fmax(work.flops / device->vector_flops, stream_seconds(device, curve, work.bytes));
    return (seconds > 0 ? fmax(seconds, rest) : rest) + curve->start;
}

double sn_analytic_op(const sn_device_kind *device, const sn_op *op, sn_work work) {
    const sn_curve *curve = device->curve;
    if (sn_op_is_free(op->kind)) return 0;
    if (op->kind == SN_OP_KERNEL) return kernel_seconds(device, op, work);
    if (op->kind == SN_OP_MATMUL) return matmul_seconds(device, op);
    if (op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD) return attention_seconds(device, op, work);
    double rate = device->vector_flops;
    if (sn_op_is_contraction(op->kind))
        rate = device->flops[rate_of(op->operands[0]->type.dtype)] * curve->tile_efficiency;
    return fmax(work.flops / rate, stream_seconds(device, curve, work.bytes)) + curve->start;
}

// Parameter updates, as PyTorch documents them for torch.optim.SGD, Adam and AdamW.
#include "ir/interp_reference.h"

#include <math.h>

const char *sn_reference_sgd(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    double momentum = sn_op_float(op, "momentum"), dampening = sn_op_float(op, "dampening");
    double decay = sn_op_float(op, "weight_decay"), rate = sn_at_f64(&in[2], 0);
    bool nesterov = sn_op_int(op, "nesterov"), has_buffer = op->n_operands > 3;
    int64_t count = sn_type_count(out->type);
    for (int64_t i = 0; i < count; i++) {
        double p = sn_at_f64(&in[0], i), direction = sn_at_f64(&in[1], i) + decay * p;
        if (has_buffer) {
            double buffer = momentum * sn_at_f64(&in[3], i) + (1 - dampening) * direction;
            sn_put_f64(&out[1], i, buffer);
            direction = nesterov ? direction + momentum * buffer : buffer;
        }
        sn_put_f64(&out[0], i, p - rate * direction);
        if (!has_buffer) sn_put_f64(&out[1], i, p - rate * direction); // nothing to carry over
    }
    return NULL;
}

const char *sn_reference_adam(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    double beta1 = sn_op_float(op, "beta1"), beta2 = sn_op_float(op, "beta2"), eps = sn_op_float(op, "eps");
    double decay = sn_op_float(op, "weight_decay"), rate = sn_at_f64(&in[4], 0), step = (double)sn_at_i64(&in[5], 0);
    bool decoupled = sn_op_int(op, "decoupled");
    double correction1 = 1 - pow(beta1, step), correction2 = sqrt(1 - pow(beta2, step));
    int64_t count = sn_type_count(out->type);
    for (int64_t i = 0; i < count; i++) {
        double p = sn_at_f64(&in[0], i), g = sn_at_f64(&in[1], i);
        if (decoupled)
            p *= 1 - rate * decay;
        else
            g += decay * p;
        double m = beta1 * sn_at_f64(&in[2], i) + (1 - beta1) * g;
        double v = beta2 * sn_at_f64(&in[3], i) + (1 - beta2) * g * g;
        sn_put_f64(&out[0], i, p - rate / correction1 * m / (sqrt(v) / correction2 + eps));
        sn_put_f64(&out[1], i, m);
        sn_put_f64(&out[2], i, v);
    }
    return NULL;
}

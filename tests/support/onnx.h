// Builds small ONNX models, byte by byte, for tests: fields of protocol buffers appended to strings.
#pragma once
#include "base/str.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void pb_varint(sn_str *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) sn_str_putc(out, (char)(value | 0x80));
    sn_str_putc(out, (char)value);
}

static inline void pb_int(sn_str *out, unsigned field, int64_t value) {
    pb_varint(out, (uint64_t)field << 3);
    pb_varint(out, (uint64_t)value);
}

static inline void pb_bytes(sn_str *out, unsigned field, const void *data, size_t bytes) {
    pb_varint(out, (uint64_t)field << 3 | 2);
    pb_varint(out, bytes);
    sn_str_append(out, data, bytes);
}

static inline void pb_text(sn_str *out, unsigned field, const char *text) {
    pb_bytes(out, field, text, strlen(text));
}

// Appends `inner` as a message and frees it.
static inline void pb_message(sn_str *out, unsigned field, sn_str *inner) {
    pb_bytes(out, field, sn_str_text(inner), inner->length);
    sn_str_free(inner);
}

// An input or output (ValueInfoProto): dims are numbers or names, separated by blanks.
static inline void onnx_port(sn_str *graph, unsigned field, const char *name, int onnx_type, const char *dims) {
    sn_str port = {0}, type = {0}, tensor = {0}, shape = {0};
    for (const char *at = dims; *at;) {
        size_t length = strcspn(at, " ");
        sn_str dim = {0}, word = {0};
        sn_str_append(&word, at, length);
        if (*at >= '0' && *at <= '9')
            pb_int(&dim, 1, atoll(sn_str_text(&word)));
        else
            pb_text(&dim, 2, sn_str_text(&word));
        pb_message(&shape, 1, &dim);
        sn_str_free(&word);
        at += length + (at[length] == ' ');
    }
    pb_int(&tensor, 1, onnx_type);
    pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    pb_text(&port, 1, name);
    pb_message(&port, 2, &type);
    pb_message(graph, field, &port);
}

static inline void onnx_input(sn_str *graph, const char *name, const char *dims) {
    onnx_port(graph, 11, name, 1, dims);
}
static inline void onnx_output(sn_str *graph, const char *name, const char *dims) {
    onnx_port(graph, 12, name, 1, dims);
}

// A node; names are separated by blanks. `attributes` (freed, may be NULL) holds AttributeProto fields.
static inline void onnx_node(sn_str *graph, const char *type, const char *inputs, const char *outputs,
                             sn_str *attributes) {
    sn_str node = {0};
    const char *lists[] = {inputs, outputs};
    for (unsigned l = 0; l < 2; l++)
        for (const char *at = lists[l]; *at;) {
            size_t length = strcspn(at, " ");
            pb_bytes(&node, l + 1, at, length);
            at += length + (at[length] == ' ');
        }
    pb_text(&node, 4, type);
    if (attributes) {
        sn_str_append(&node, sn_str_text(attributes), attributes->length);
        sn_str_free(attributes);
    }
    pb_message(graph, 1, &node);
}

// A float initializer with raw data.
static inline void onnx_weight(sn_str *graph, const char *name, int rank, const int64_t *dims, const float *data) {
    sn_str tensor = {0};
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        pb_int(&tensor, 1, dims[i]);
        count *= (size_t)dims[i];
    }
    pb_int(&tensor, 2, 1);
    pb_text(&tensor, 8, name);
    pb_bytes(&tensor, 9, data, count * sizeof *data);
    pb_message(graph, 5, &tensor);
}

// The model around a graph, which is freed. `functions` (freed, may be NULL) holds FunctionProto fields of the model.
static inline sn_str onnx_model(sn_str *graph, sn_str *functions) {
    sn_str model = {0}, opset = {0};
    pb_int(&model, 1, 10);
    pb_text(&model, 2, "test");
    pb_message(&model, 7, graph);
    pb_int(&opset, 2, 20);
    pb_message(&model, 8, &opset);
    if (functions) {
        sn_str local = {0};
        pb_text(&local, 1, "local");
        pb_int(&local, 2, 1);
        pb_message(&model, 8, &local);
        sn_str_append(&model, sn_str_text(functions), functions->length);
        sn_str_free(functions);
    }
    return model;
}

// y = relu(x w + b) with x [batch, 3]
static inline sn_str onnx_linear_model(void) {
    static const float w[6] = {1, 2, 3, 4, 5, 6}, b[2] = {-20, 0.5f};
    sn_str graph = {0};
    onnx_node(&graph, "MatMul", "x w", "xw", NULL);
    onnx_node(&graph, "Add", "xw b", "sum", NULL);
    onnx_node(&graph, "Relu", "sum", "y", NULL);
    pb_text(&graph, 2, "linear");
    onnx_weight(&graph, "w", 2, (int64_t[]){3, 2}, w);
    onnx_weight(&graph, "b", 1, (int64_t[]){2}, b);
    onnx_input(&graph, "x", "batch 3");
    onnx_output(&graph, "y", "batch 2");
    return onnx_model(&graph, NULL);
}

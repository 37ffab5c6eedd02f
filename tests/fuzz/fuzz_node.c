// libFuzzer target of the operators' handlers: the bytes choose a small model of well-formed ONNX, mostly of what its
// operators take, and now and then not: other ranks, element types, kinds of attributes, contents of initializers.
// Operators and what they take come from the frontend's table, names of attributes and string values from a scan of the
// handlers' sources (words.inc, which CMake writes).
#include "base/dtype.h"
#include "frontend/signature.h"
#include "tests/fuzz/import.h"
#include "tests/support/onnx.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MOST_VALUES = 64,
    MOST_ELEMENTS = 256, // of an initializer: what is not there is not looked at
    DEEPEST_GRAPH = 2,
};

static const struct {
    const char *type, *domain, *handler, *inputs;
    int since, until;
} operators[] = {
#define SN_ONNX_OP(type, domain, since, until, handler, kind, inputs) {#type, domain, #handler, inputs, since, until},
#include "frontend/opset.def"
#undef SN_ONNX_OP
};
enum { N_OPERATORS = sizeof operators / sizeof *operators };

// Words of a source file: names that a handler gives to the reader of an attribute, with the reader's name; other
// string constants, which are values or names, with "". And which handlers a file has.
static const struct {
    const char *file, *word, *reader;
} words[] = {
#define FUZZ_WORD(file, word, reader) {file, word, reader},
#define FUZZ_HANDLER(file, handler)
#include "words.inc"
#undef FUZZ_WORD
#undef FUZZ_HANDLER
};
static const struct {
    const char *file, *handler;
} handlers[] = {
#define FUZZ_WORD(file, word, reader)
#define FUZZ_HANDLER(file, handler) {file, handler},
#include "words.inc"
#undef FUZZ_WORD
#undef FUZZ_HANDLER
};
enum { N_WORDS = sizeof words / sizeof *words };

typedef struct tensor {
    int onnx, rank;
    int64_t dims[SN_MAX_RANK + 2];
} tensor;

typedef struct maker {
    const uint8_t *at, *end;
    int opset, n_values, depth;
    char names[MOST_VALUES][8];
    tensor last; // the previous input of the node
    int n_named;
} maker;

// 0 … choices - 1 from the next byte; 0 when there is none.
static int take(maker *m, int choices) {
    return m->at < m->end ? *m->at++ % choices : 0;
}

static bool rarely(maker *m) {
    return take(m, 16) == 15;
}

static int64_t extreme(maker *m) {
    static const int64_t values[] = {INT64_MAX,
                                     INT64_MIN,
                                     INT32_MAX,
                                     (int64_t)INT32_MAX + 1,
                                     INT32_MIN,
                                     1 << 20,
                                     INT64_C(1) << 40,
                                     -(INT64_C(1) << 40),
                                     65,
                                     -9,
                                     4096,
                                     INT64_C(1) << 48};
    return values[take(m, sizeof values / sizeof *values)];
}

static int64_t number(maker *m) {
    int choice = take(m, 16);
    return choice == 15 ? extreme(m) : choice == 14 ? take(m, 28) : (choice + 3) % 14 - 3; // 0, 1, 2, … -3, -2, -1
}

static double real(maker *m) {
    static const double values[] = {0, 1, 0.5, -1, 2, 3, -0.25, 1e-8, 1e30, -1e30, 1e300, (double)INFINITY, NAN, 255};
    return values[take(m, sizeof values / sizeof *values)];
}

static int64_t dim(maker *m) {
    static const int64_t values[] = {2, 1, 3, 4, 2, 1, 5, 0};
    return values[take(m, 8)];
}

static sn_dtype dtype_of_class(maker *m, char class, sn_dtype usual) {
    sn_dtype chosen = rarely(m) ? (sn_dtype)take(m, SN_DTYPE_COUNT) : usual;
    if (class == 'f' && !sn_dtype_is_float(chosen)) chosen = SN_F32;
    if (class == 'i' && !strchr("iu", sn_dtype_class(chosen))) chosen = SN_I64;
    if (class == 'b') chosen = SN_BOOL;
    if (class == 'n' && chosen == SN_BOOL) chosen = SN_F32;
    return chosen;
}

// A tensor that `spec` takes, mostly with the dims of the previous one as far as it has them.
static tensor choose_tensor(maker *m, const sn_input_spec *spec, sn_dtype usual) {
    tensor t = {0};
    bool odd = rarely(m);
    int low = odd ? 0 : spec->min_rank, high = odd ? SN_MAX_RANK + 1 : spec->max_rank;
    int likely = m->last.rank >= low && m->last.rank <= high ? m->last.rank : low;
    t.rank = take(m, 3) == 2 ? low + take(m, high - low + 1) : likely;
    t.onnx = odd && take(m, 2) ? take(m, 28) : sn_dtype_onnx(dtype_of_class(m, spec->class, usual));
    bool same = take(m, 3) != 2;
    for (int d = 0; d < t.rank; d++) t.dims[d] = same && d < m->last.rank ? m->last.dims[d] : dim(m);
    m->last = t;
    return t;
}

static void fill(maker *m, const tensor *t, int64_t count, sn_str *out) {
    sn_dtype dtype = sn_dtype_from_onnx(t->onnx);
    if (dtype == SN_DTYPE_COUNT) dtype = SN_U8;
    uint8_t element[8] = {0};
    bool all_same = take(m, 2), in_order = take(m, 4) == 3;
    for (int64_t i = 0; i < count; i++) {
        if (sn_dtype_is_float(dtype) && (i == 0 || !all_same))
            sn_store_f64(dtype, element, 0, real(m));
        else if (i == 0 || !all_same)
            sn_store_i64(dtype, element, 0, in_order ? i : number(m));
        sn_str_append(out, (const char *)element, sn_dtype_bytes(dtype));
    }
}

// TensorProto's fields.
static void write_tensor(maker *m, sn_str *out, tensor t, const char *name) {
    int64_t count = 1;
    for (int d = 0; d < t.rank; d++) {
        if (count * t.dims[d] > MOST_ELEMENTS) t.dims[d] = 1;
        count *= t.dims[d];
        pb_int(out, 1, t.dims[d]);
    }
    pb_int(out, 2, t.onnx);
    pb_text(out, 8, name);
    sn_str data = {0};
    fill(m, &t, count, &data);
    pb_bytes(out, 9, sn_str_text(&data), data.length);
    sn_str_free(&data);
}

static void write_input(maker *m, sn_str *graph, const tensor *t, const char *name) {
    sn_str dims = {0};
    for (int d = 0; d < t->rank; d++) {
        bool symbolic = rarely(m), huge = rarely(m);
        if (symbolic)
            sn_str_printf(&dims, "s%d ", take(m, 3));
        else
            sn_str_printf(&dims, "%lld ", (long long)(huge ? (INT64_C(1) << (15 + take(m, 32))) : t->dims[d]));
    }
    onnx_port(graph, 11, name, t->onnx, sn_str_text(&dims));
    sn_str_free(&dims);
}

static const char *new_name(maker *m) {
    if (m->n_values == MOST_VALUES) return m->names[take(m, MOST_VALUES)]; // defined twice: refused
    char *name = m->names[m->n_values++];
    snprintf(name, sizeof m->names[0], "v%d", m->n_named++);
    return name;
}

static const char *choose_input(maker *m, sn_str *graph, const sn_input_spec *spec, sn_dtype usual) {
    int how = take(m, 16);
    if (how == 15 || (spec->optional && how >= 10)) return "";
    bool is_sequence = spec->class == 's' || spec->class == 'x';
    if (m->n_values && (how >= 13 || is_sequence)) return m->names[take(m, m->n_values)];
    if (how == 12 && m->n_values) return m->names[m->n_values - 1];
    tensor t = choose_tensor(m, spec, usual);
    const char *name = new_name(m);
    if (m->depth == 0 && how < 5) {
        write_input(m, graph, &t, name);
    } else {
        sn_str proto = {0};
        write_tensor(m, &proto, t, name);
        pb_message(graph, 5, &proto);
    }
    return name;
}

static void write_inputs(maker *m, sn_str *graph, sn_str *node, const char *signature) {
    static const sn_dtype usual[] = {SN_F32, SN_F32, SN_F32, SN_I64, SN_F64, SN_F16, SN_I32, SN_U8};
    sn_dtype common = usual[take(m, sizeof usual / sizeof *usual)];
    sn_input_spec spec = {.class = 'a', .max_rank = SN_MAX_RANK};
    while (sn_signature_next(&signature, &spec)) {
        int times = spec.variadic ? 1 + take(m, 4) : 1;
        for (int i = 0; i < times; i++) pb_text(node, 1, choose_input(m, graph, &spec, common));
    }
    if (rarely(m)) pb_text(node, 1, choose_input(m, graph, &spec, common));
}

static const char *file_of(const char *handler) {
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        if (strcmp(handlers[i].handler, handler) == 0) return handlers[i].file;
    SN_BUG("no file has the handler %s", handler);
}

// A word of the file, mostly.
static int choose_word(maker *m, const char *file, bool anywhere) {
    int first = 0, count = 0;
    for (int i = 0; i < N_WORDS; i++) {
        if (strcmp(words[i].file, file) != 0) continue;
        if (!count++) first = i;
    }
    if (anywhere || !count) return take(m, 256) % N_WORDS;
    return first + take(m, 256) % count;
}

static void write_graph(maker *m, sn_str *out);

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

// AttributeProto.type of what a reader expects; -1 when the scan does not know.
static int kind_of(const char *reader) {
    static const struct {
        const char *end;
        int kind;
    } kinds[] = {{"_list_string", 8}, {"_string", 3}, {"_string_is", 3}, {"_ints", 7},  {"_list", 7}, {"_input", 7},
                 {"_float", 1},       {"_int", 2},    {"_within", 2},    {"_dtype", 2}, {"_graph", 5}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(reader, kinds[i].end)) return kinds[i].kind;
    return -1;
}

static void write_value(maker *m, sn_str *out, int kind, const char *file) {
    static const sn_input_spec any = {.class = 'a', .max_rank = 3};
    int count = take(m, 8);
    sn_str inner = {0};
    float f;
    switch (kind) {
    case 1:
        f = (float)real(m);
        pb_varint(out, 2 << 3 | 5);
        sn_str_append(out, (const char *)&f, sizeof f);
        break;
    case 2:
        pb_int(out, 3, number(m));
        break;
    case 3:
        pb_text(out, 4, words[choose_word(m, file, rarely(m))].word);
        break;
    case 4:
        write_tensor(m, &inner, choose_tensor(m, &any, SN_F32), "t");
        pb_message(out, 5, &inner);
        break;
    case 5:
        m->depth++;
        if (m->depth <= DEEPEST_GRAPH) write_graph(m, &inner);
        m->depth--;
        pb_message(out, 6, &inner);
        break;
    case 6:
        for (int i = 0; i < count; i++) {
            f = (float)real(m);
            pb_varint(out, 7 << 3 | 5);
            sn_str_append(out, (const char *)&f, sizeof f);
        }
        break;
    case 7:
        for (int i = 0; i < count; i++) pb_int(out, 8, number(m));
        break;
    default:
        for (int i = 0; i < count; i++) pb_text(out, 9, words[choose_word(m, file, rarely(m))].word);
    }
}

static void write_attribute(maker *m, sn_str *node, const char *file) {
    int word = choose_word(m, file, rarely(m)), kind = kind_of(words[word].reader);
    if (kind < 0 || rarely(m)) kind = 1 + take(m, 9);
    sn_str attr = {0};
    pb_text(&attr, 1, words[word].word);
    pb_int(&attr, 20, kind);
    write_value(m, &attr, rarely(m) ? 1 + take(m, 9) : kind, file);
    pb_message(node, 5, &attr);
}

static void write_node(maker *m, sn_str *graph) {
    int op = (take(m, 256) << 8 | take(m, 256)) % N_OPERATORS, attributes = take(m, 6), outputs = 1 + take(m, 4);
    sn_str node = {0};
    if (!m->opset) m->opset = operators[op].since + take(m, operators[op].until - operators[op].since + 1);
    m->last = (tensor){0};
    write_inputs(m, graph, &node, operators[op].inputs);
    pb_text(&node, 4, operators[op].type);
    pb_text(&node, 7, operators[op].domain);
    for (int i = 0; i < attributes; i++) write_attribute(m, &node, file_of(operators[op].handler));
    for (int i = 0; i < outputs; i++) pb_text(&node, 2, rarely(m) ? "" : new_name(m));
    pb_message(graph, 1, &node);
}

// GraphProto's fields. A subgraph sees the values so far; its own go again at its end.
static void write_graph(maker *m, sn_str *graph) {
    int before = m->n_values, inputs = m->depth ? take(m, 5) : 0, nodes = 1 + take(m, 3);
    for (int i = 0; i < inputs; i++) onnx_port(graph, 11, new_name(m), 1, "");
    for (int i = 0; i < nodes; i++) write_node(m, graph);
    int outputs = m->depth ? take(m, 5) : 1;
    for (int i = 0; i < outputs && m->n_values; i++)
        onnx_port(graph, 12, m->names[m->n_values - 1 - take(m, m->n_values)], 1, "");
    if (m->depth) m->n_values = before;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t symbols[] = {2, 1, 3, 0, INT64_C(1) << 40, INT64_MAX};
    maker m = {.at = data, .end = data + size};
    int64_t bound = symbols[take(&m, 6)];
    sn_str graph = {0}, model = {0};
    write_graph(&m, &graph);
    pb_int(&model, 1, 10);
    pb_message(&model, 7, &graph);
    static const char *const domains[] = {"", "ai.onnx.preview", "ai.onnx.preview.training"};
    for (int i = 0; i < 3; i++) {
        sn_str opset = {0};
        pb_text(&opset, 1, domains[i]);
        pb_int(&opset, 2, i ? 1 : m.opset);
        pb_message(&model, 8, &opset);
    }
    fuzz_import(sn_str_text(&model), model.length, bound, NULL);
    sn_str_free(&model);
    return 0;
}

#include "passes/partition/intra/contest.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/vec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { MAX_DEPTH = 32, MAX_STRATEGIES = 1 << 20 };
static const size_t max_text = (size_t)4 << 30;

// A list of lists of numbers: list i is numbers[start[i]] to numbers[start[i + 1]].
typedef struct table {
    SN_VEC(int64_t) numbers;
    SN_VEC(size_t) start;
    bool present;
} table;

typedef struct reader {
    const char *at, *end, *text;
    const char *subject;
    sn_diags *diags;
    bool failed;
    bool has_limit;
    int64_t limit;
    table intervals, costs, usages, pairs, matrices;
} reader;

static void fail(reader *r, const char *problem) {
    if (r->failed) return;
    size_t line = 1;
    for (const char *c = r->text; c < r->at; c++) line += *c == '\n';
    sn_error(r->diags, "E0490", r->subject, "the format is described in docs/iopddl.md", "line %zu: %s", line, problem);
    r->failed = true;
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

// The next character that is no space, not consumed; 0 at the end.
static char peek(reader *r) {
    skip_space(r);
    return r->at < r->end ? *r->at : 0;
}

static bool accept(reader *r, char wanted) {
    if (peek(r) != wanted) return false;
    r->at++;
    return true;
}

static bool expect(reader *r, char wanted) {
    if (r->failed || accept(r, wanted)) return !r->failed;
    char problem[] = "expected 'x'";
    problem[10] = wanted;
    fail(r, r->at < r->end ? problem : "the text ends too early");
    return false;
}

// The characters between the quotes, escapes as they stand.
static bool read_text(reader *r, const char **start, size_t *bytes) {
    if (!expect(r, '"')) return false;
    *start = r->at;
    while (r->at < r->end && *r->at != '"') r->at += *r->at == '\\' && r->at + 1 < r->end ? 2 : 1;
    *bytes = (size_t)(r->at - *start);
    return expect(r, '"');
}

static bool read_integer(reader *r, int64_t *out) {
    bool negative = accept(r, '-');
    if (r->at >= r->end || *r->at < '0' || *r->at > '9') {
        fail(r, "expected an integer");
        return false;
    }
    uint64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (value > (INT64_MAX - 9) / 10) {
            fail(r, "a number is too large for 63 bits");
            return false;
        }
        value = value * 10 + (uint64_t)(*r->at - '0');
    }
    if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E')) {
        fail(r, "expected an integer, found a fraction or an exponent");
        return false;
    }
    *out = negative ? -(int64_t)value : (int64_t)value;
    return true;
}

static void skip_value(reader *r, int depth) {
    const char *start;
    size_t bytes;
    char first = peek(r);
    if (depth > MAX_DEPTH)
        fail(r, "nested too deeply");
    else if (first == '"')
        read_text(r, &start, &bytes);
    else if (first == '[' || first == '{') {
        char last = first == '[' ? ']' : '}';
        r->at++;
        if (accept(r, last)) return;
        do {
            if (first == '{' && (!read_text(r, &start, &bytes) || !expect(r, ':'))) return;
            skip_value(r, depth + 1);
        } while (!r->failed && accept(r, ','));
        expect(r, last);
    } else {
        start = r->at;
        while (r->at < r->end && strchr("+-.eE0123456789truefalsn", *r->at) && *r->at) r->at++;
        if (r->at == start) fail(r, r->at < r->end ? "expected a value" : "the text ends too early");
    }
}

// [[1, 2], [], …]
static void read_table(reader *r, table *out) {
    if (out->present) {
        fail(r, "the same key twice");
        return;
    }
    out->present = true;
    sn_vec_push(&out->start, (size_t)0);
    if (!expect(r, '[') || accept(r, ']')) return;
    do {
        if (!expect(r, '[')) return;
        if (!accept(r, ']')) {
            do {
                int64_t number;
                if (!read_integer(r, &number)) return;
                sn_vec_push(&out->numbers, number);
            } while (accept(r, ','));
            if (!expect(r, ']')) return;
        }
        sn_vec_push(&out->start, out->numbers.count);
    } while (accept(r, ','));
    expect(r, ']');
}

typedef void read_member(reader *r, const char *key, size_t bytes);

static bool is(const char *key, size_t bytes, const char *name) {
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

static void read_object(reader *r, read_member *member) {
    const char *key;
    size_t bytes;
    if (!expect(r, '{') || accept(r, '}')) return;
    do {
        if (!read_text(r, &key, &bytes) || !expect(r, ':')) return;
        member(r, key, bytes);
    } while (!r->failed && accept(r, ','));
    expect(r, '}');
}

static void read_nodes_member(reader *r, const char *key, size_t bytes) {
    if (is(key, bytes, "intervals"))
        read_table(r, &r->intervals);
    else if (is(key, bytes, "costs"))
        read_table(r, &r->costs);
    else if (is(key, bytes, "usages"))
        read_table(r, &r->usages);
    else
        skip_value(r, 0);
}

static void read_edges_member(reader *r, const char *key, size_t bytes) {
    if (is(key, bytes, "nodes"))
        read_table(r, &r->pairs);
    else if (is(key, bytes, "costs"))
        read_table(r, &r->matrices);
    else
        skip_value(r, 0);
}

static void read_problem_member(reader *r, const char *key, size_t bytes) {
    if (is(key, bytes, "nodes"))
        read_object(r, read_nodes_member);
    else if (is(key, bytes, "edges"))
        read_object(r, read_edges_member);
    else if (is(key, bytes, "usage_limit"))
        r->has_limit = peek(r) != 'n' && read_integer(r, &r->limit);
    else
        skip_value(r, 0);
    if (!r->has_limit && !r->failed && is(key, bytes, "usage_limit")) skip_value(r, 0); // null: no limit
}

static void read_file_member(reader *r, const char *key, size_t bytes) {
    if (is(key, bytes, "problem"))
        read_object(r, read_problem_member);
    else
        skip_value(r, 0);
}

static size_t rows(const table *t) {
    return t->start.count ? t->start.count - 1 : 0;
}

static size_t length(const table *t, size_t row) {
    return t->start.data[row + 1] - t->start.data[row];
}

static const int64_t *row(const table *t, size_t index) {
    return t->numbers.data + t->start.data[index];
}

static bool refuse(reader *r, const char *format, ...) SN_PRINTF(2, 3);
static bool refuse(reader *r, const char *format, ...) {
    char message[200];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    sn_error(r->diags, "E0491", r->subject, "the format is described in docs/iopddl.md", "%s", message);
    r->failed = true;
    return false;
}

static bool check_numbers(reader *r, const table *t, const char *what) {
    for (size_t i = 0; i < rows(t); i++)
        for (size_t k = 0; k < length(t, i); k++)
            if (row(t, i)[k] < 0) return refuse(r, "%s[%zu][%zu] is negative", what, i, k);
    return true;
}

// Any choice's cost or memory, or the price of either, must not overflow.
static bool check_sum(reader *r, const table *t, int64_t forbidden, const char *what) {
    int64_t total = 0;
    for (size_t i = 0; i < rows(t); i++) {
        int64_t most = 0;
        for (size_t k = 0; k < length(t, i); k++)
            if (row(t, i)[k] < forbidden && row(t, i)[k] > most) most = row(t, i)[k];
        if (__builtin_add_overflow(total, most, &total) || total >= forbidden)
            return refuse(r, "the sum of the largest %s reaches %" PRId64, what, forbidden);
    }
    return true;
}

static bool check_nodes(reader *r) {
    if (!r->intervals.present || !r->costs.present || !r->usages.present)
        return refuse(r, "problem.nodes lacks intervals, costs or usages");
    size_t n = rows(&r->costs);
    if (rows(&r->intervals) != n || rows(&r->usages) != n)
        return refuse(r, "problem.nodes has %zu costs, %zu usages and %zu intervals", n, rows(&r->usages),
                      rows(&r->intervals));
    if (n > INT32_MAX / 2) return refuse(r, "problem.nodes has %zu entries: too many", n);
    for (size_t i = 0; i < n; i++) {
        size_t strategies = length(&r->costs, i);
        if (!strategies || strategies > MAX_STRATEGIES)
            return refuse(r, "problem.nodes.costs[%zu] has %zu strategies", i, strategies);
        if (length(&r->usages, i) != strategies)
            return refuse(r, "problem.nodes.usages[%zu] has %zu entries for %zu strategies", i, length(&r->usages, i),
                          strategies);
        if (length(&r->intervals, i) != 2) return refuse(r, "problem.nodes.intervals[%zu] is no pair [begin, end]", i);
    }
    return check_numbers(r, &r->costs, "problem.nodes.costs") && check_numbers(r, &r->usages, "problem.nodes.usages") &&
           check_sum(r, &r->costs, SN_NETWORK_FORBIDDEN, "node costs") &&
           check_sum(r, &r->usages, INT64_MAX / 4, "usages");
}

static bool check_edges(reader *r) {
    if (rows(&r->pairs) != rows(&r->matrices))
        return refuse(r, "problem.edges has %zu nodes and %zu costs", rows(&r->pairs), rows(&r->matrices));
    for (size_t e = 0; e < rows(&r->pairs); e++) {
        if (length(&r->pairs, e) != 2) return refuse(r, "problem.edges.nodes[%zu] is no pair of nodes", e);
        const int64_t *pair = row(&r->pairs, e);
        for (int side = 0; side < 2; side++)
            if (pair[side] < 0 || (uint64_t)pair[side] >= rows(&r->costs))
                return refuse(r, "problem.edges.nodes[%zu] names node %" PRId64 " of %zu", e, pair[side],
                              rows(&r->costs));
        size_t cells = length(&r->costs, (size_t)pair[0]) * length(&r->costs, (size_t)pair[1]);
        if (length(&r->matrices, e) != cells)
            return refuse(r, "problem.edges.costs[%zu] has %zu entries; nodes %" PRId64 " and %" PRId64 " need %zu", e,
                          length(&r->matrices, e), pair[0], pair[1], cells);
    }
    return check_numbers(r, &r->matrices, "problem.edges.costs") &&
           check_sum(r, &r->matrices, SN_NETWORK_FORBIDDEN, "edge costs");
}

// An edge from a node to itself is a cost of its strategies: the diagonal.
static void add_own_edges(reader *r) {
    for (size_t e = 0; e < rows(&r->pairs); e++) {
        const int64_t *pair = row(&r->pairs, e);
        if (pair[0] != pair[1]) continue;
        size_t node = (size_t)pair[0], n = length(&r->costs, node);
        int64_t *cost = r->costs.numbers.data + r->costs.start.data[node];
        for (size_t k = 0; k < n; k++) {
            int64_t own = row(&r->matrices, e)[k * n + k];
            cost[k] =
                cost[k] >= SN_NETWORK_FORBIDDEN || own >= SN_NETWORK_FORBIDDEN ? SN_NETWORK_FORBIDDEN : cost[k] + own;
        }
    }
}

static void build(reader *r, sn_network *network) {
    network->limit = r->has_limit ? r->limit : INT64_MAX;
    add_own_edges(r);
    for (size_t i = 0; i < rows(&r->costs); i++) {
        int node = sn_network_add_node(network, (int)length(&r->costs, i), row(&r->costs, i));
        const int64_t *interval = row(&r->intervals, i);
        sn_network_add_term(network, node, interval[0], interval[1], row(&r->usages, i));
    }
    for (size_t e = 0; e < rows(&r->pairs); e++) {
        const int64_t *pair = row(&r->pairs, e);
        if (pair[0] != pair[1]) sn_network_add_edge(network, (int)pair[0], (int)pair[1], row(&r->matrices, e));
    }
}

static void table_free(table *t) {
    sn_vec_free(&t->numbers);
    sn_vec_free(&t->start);
}

bool sn_contest_parse(const char *text, size_t bytes, const char *subject, sn_network *network, sn_diags *diags) {
    reader r = {.text = text, .at = text, .end = text + bytes, .subject = subject, .diags = diags};
    read_object(&r, read_file_member);
    if (!r.failed && peek(&r)) fail(&r, "there is text after the problem");
    if (!r.failed && r.has_limit && r.limit < 0) refuse(&r, "problem.usage_limit is negative");
    if (!r.failed && check_nodes(&r) && check_edges(&r)) build(&r, network);
    table *tables[] = {&r.intervals, &r.costs, &r.usages, &r.pairs, &r.matrices};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) table_free(tables[i]);
    return !r.failed;
}

// zlib reads plain files too. False after a diagnostic.
static bool read_file(const char *path, char **text, size_t *bytes, sn_diags *diags) {
    struct stat info;
    bool regular = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    gzFile file = regular ? gzopen(path, "rb") : NULL;
    if (!file) {
        sn_error(diags, "E0492", path, "check the path and its permissions", "cannot be read: %s",
                 errno ? strerror(errno) : "not a regular file");
        return false;
    }
    gzbuffer(file, 1 << 18);
    size_t capacity = (size_t)info.st_size * 8 + 4096, count = 0;
    char *data = sn_alloc(capacity);
    int got;
    while ((got = gzread(file, data + count, (unsigned)(capacity - count < 1 << 30 ? capacity - count : 1 << 30))) >
           0) {
        count += (size_t)got;
        if (count > max_text) break;
        if (count == capacity) data = sn_realloc(data, capacity *= 2);
    }
    int code;
    const char *problem = gzerror(file, &code);
    bool good = got == 0 && code == Z_OK;
    if (!good)
        sn_error(diags, "E0492", path, "unpack it with gunzip to see whether it is whole", "%s",
                 count > max_text ? "holds more than 4 GiB of text" : (code == Z_ERRNO ? strerror(errno) : problem));
    gzclose(file);
    if (!good) sn_free(data);
    *text = good ? data : NULL;
    *bytes = count;
    return good;
}

bool sn_contest_read(const char *path, sn_network *network, sn_diags *diags) {
    char *text;
    size_t bytes;
    errno = 0;
    if (!read_file(path, &text, &bytes, diags)) return false;
    bool good = sn_contest_parse(text, bytes, path, network, diags);
    sn_free(text);
    return good;
}

sn_status sn_contest_write(const char *path, const int *choice, size_t count) {
    sn_atomic_file file;
    SN_TRY(sn_atomic_open(path, &file));
    fputc('[', file.stream);
    for (size_t i = 0; i < count; i++) fprintf(file.stream, i ? ", %d" : "%d", choice[i]);
    fputs("]\n", file.stream);
    return sn_atomic_commit(&file);
}

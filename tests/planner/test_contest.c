// The contest's file format: good files are read, plain and compressed; bad ones are diagnosed and leave nothing; and
// no mutation of a good file crashes the reader or yields a network that the solver cannot take.
#include "base/alloc.h"
#include "base/file.h"
#include "passes/partition/intra/contest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static const char example[] = SENNIT_SOURCE_DIR "/tests/data/iopddl/example.json";

static char *read_example(size_t *bytes) {
    sn_mapped_file file;
    assert_null(sn_file_map(example, &file));
    char *text = sn_alloc(file.bytes + 1);
    memcpy(text, file.data, file.bytes);
    *bytes = file.bytes;
    sn_file_unmap(&file);
    return text;
}

static void check_example(sn_network *n) {
    assert_int_equal(n->n_nodes, 5);
    assert_int_equal(n->n_edges, 5);
    assert_int_equal(n->limit, 50);
    int best[5] = {0}, choice[5] = {0};
    int64_t least = INT64_MAX;
    for (size_t at = 0; at < 5;) {
        int64_t cost = sn_network_cost(n, choice);
        if (cost < least && sn_network_peak(n, choice) <= n->limit) {
            least = cost;
            memcpy(best, choice, sizeof best);
        }
        for (at = 0; at < 5 && ++choice[at] == n->nodes[at].n_strategies; at++) choice[at] = 0;
    }
    assert_int_equal(least, 445);
    sn_network_budget budget = {.work = 1000000};
    sn_network_answer a = sn_network_solve(n, &budget);
    assert_int_equal(a.result, SN_NETWORK_OPTIMAL);
    assert_int_equal(a.cost, 445);
    assert_int_equal(a.lower_bound, 445);
    assert_memory_equal(a.choice, best, sizeof best);
    sn_free(a.choice);
}

static void test_reads(void **unused) {
    (void)unused;
    sn_network n = {.limit = INT64_MAX};
    sn_diags diags = {0};
    assert_true(sn_contest_read(example, &n, &diags));
    check_example(&n);
    sn_network_free(&n);

    size_t bytes;
    char *text = read_example(&bytes), path[] = "/tmp/sennit-contest-XXXXXX";
    int handle = mkstemp(path);
    assert_true(handle >= 0);
    gzFile file = gzdopen(handle, "wb");
    assert_int_equal(gzwrite(file, text, (unsigned)bytes), bytes);
    gzclose(file);
    assert_true(sn_contest_read(path, &n, &diags));
    check_example(&n);
    sn_network_free(&n);
    assert_int_equal(truncate(path, 60), 0); // a compressed file that stops early
    assert_false(sn_contest_read(path, &n, &diags));
    unlink(path);
    assert_false(sn_contest_read(path, &n, &diags));
    assert_false(sn_contest_read("/tmp", &n, &diags));
    assert_int_equal(diags.errors, 3);
    for (size_t i = 0; i < diags.count; i++) assert_string_equal(diags.items[i].code, "E0492");
    sn_diags_free(&diags);
    sn_free(text);
}

// The key order is free, unknown keys are skipped, an edge to itself is a node cost, and no limit is none.
static void test_variants(void **unused) {
    (void)unused;
    const char *text =
        "{\"note\": [1, {\"a\": null}, \"\\\"]\"], \"problem\": {\"edges\": {\"costs\": [[1, 9, 9, 2]], "
        "\"nodes\": [[0, 0]]}, \"nodes\": {\"usages\": [[5, 5]], \"costs\": [[7, 3]], \"intervals\": [[4, 2]]}}}";
    sn_network n = {.limit = INT64_MAX};
    sn_diags diags = {0};
    assert_true(sn_contest_parse(text, strlen(text), "text", &n, &diags));
    int first = 0, second = 1;
    assert_int_equal(sn_network_cost(&n, &first), 8);
    assert_int_equal(sn_network_cost(&n, &second), 5);
    assert_int_equal(sn_network_peak(&n, &first), 0);
    assert_int_equal(n.limit, INT64_MAX);
    sn_network_free(&n);
    sn_diags_free(&diags);
}

#define PROBLEM(intervals, costs, usages, nodes, matrices, limit)                                                      \
    "{\"problem\": {\"nodes\": {\"intervals\": " intervals ", \"costs\": " costs ", \"usages\": " usages               \
    "}, \"edges\": {\"nodes\": " nodes ", \"costs\": " matrices "}, \"usage_limit\": " limit "}}"

static void test_bad(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *code, *message;
    } cases[] = {
        {"", "E0490", "ends too early"},
        {"[]", "E0490", "line 1: expected '{'"},
        {"{\"problem\": 1}", "E0490", "expected '{'"},
        {"{}", "E0491", "lacks"},
        {"{\"problem\": {}} x", "E0490", "after the problem"},
        {PROBLEM("[[0, 1]]", "[[1.5]]", "[[1]]", "[]", "[]", "9"), "E0490", "fraction"},
        {PROBLEM("[[0, 1]]", "[[1e3]]", "[[1]]", "[]", "[]", "9"), "E0490", "exponent"},
        {PROBLEM("[[0, 1]]", "[[true]]", "[[1]]", "[]", "[]", "9"), "E0490", "expected an integer"},
        {PROBLEM("[[0, 1]]", "[\"1\"]", "[[1]]", "[]", "[]", "9"), "E0490", "expected '['"},
        {PROBLEM("[[0, 1]]", "[[99999999999999999999]]", "[[1]]", "[]", "[]", "9"), "E0490", "too large"},
        {PROBLEM("[[0, 1]]", "[[]]", "[[]]", "[]", "[]", "9"), "E0491", "0 strategies"},
        {PROBLEM("[[0, 1]]", "[[1, 2]]", "[[1]]", "[]", "[]", "9"), "E0491", "usages[0] has 1 entries"},
        {PROBLEM("[[0, 1], [0, 1]]", "[[1]]", "[[1]]", "[]", "[]", "9"), "E0491", "1 costs, 1 usages and 2 intervals"},
        {PROBLEM("[[0]]", "[[1]]", "[[1]]", "[]", "[]", "9"), "E0491", "intervals[0]"},
        {PROBLEM("[[0, 1]]", "[[-1]]", "[[1]]", "[]", "[]", "9"), "E0491", "negative"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[-1]]", "[]", "[]", "9"), "E0491", "negative"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]]", "[]", "[]", "-9"), "E0491", "usage_limit is negative"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]]", "[[0, 1]]", "[[1]]", "9"), "E0491", "names node 1 of 1"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]]", "[[-1, 0]]", "[[1]]", "9"), "E0491", "names node -1"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]]", "[[0]]", "[[1]]", "9"), "E0491", "no pair"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]]", "[[0, 0]]", "[]", "9"), "E0491", "1 nodes and 0 costs"},
        {PROBLEM("[[0, 1], [0, 1]]", "[[1], [1, 2]]", "[[1], [1, 2]]", "[[0, 1]]", "[[1]]", "9"), "E0491", "need 2"},
        {PROBLEM("[[0, 1], [0, 1]]", "[[999999999999999999], [2]]", "[[1], [1]]", "[]", "[]", "9"), "E0491", "sum"},
        {PROBLEM("[[0, 1]]", "[[1]]", "[[1]], \"usages\": [[1]]", "[]", "[]", "9"), "E0490", "twice"},
        {"{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "E0490", "too deeply"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_network n = {.limit = INT64_MAX};
        sn_diags diags = {0};
        assert_false(sn_contest_parse(cases[i].text, strlen(cases[i].text), "text", &n, &diags));
        assert_int_equal(diags.errors, 1);
        assert_string_equal(diags.items[0].code, cases[i].code);
        if (!strstr(diags.items[0].message, cases[i].message)) fail_msg("%zu: %s", i, diags.items[0].message);
        assert_int_equal(n.n_nodes, 0);
        sn_diags_free(&diags);
    }
}

// Every prefix is an error; the line of the message is where the text ends.
static void test_truncated(void **unused) {
    (void)unused;
    size_t bytes;
    char *text = read_example(&bytes);
    while (bytes && text[bytes - 1] != '}') bytes--;
    for (size_t length = 0; length < bytes; length++) {
        char *prefix = sn_alloc(length + 1); // of its own: a sanitizer sees a read past the end
        memcpy(prefix, text, length);
        sn_network n = {.limit = INT64_MAX};
        sn_diags diags = {0};
        assert_false(sn_contest_parse(prefix, length, "text", &n, &diags));
        assert_int_equal(diags.errors, 1);
        assert_int_equal(n.n_nodes, 0);
        sn_diags_free(&diags);
        sn_free(prefix);
    }
    sn_free(text);
}

static uint64_t state = 1;
static size_t below(size_t count) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % count;
}

// Changes of digits, of brackets, cuts and repeats. What still parses is solved, and the answer must be consistent.
static void test_mutations(void **unused) {
    (void)unused;
    size_t bytes;
    char *text = read_example(&bytes);
    int good = 0;
    for (int round = 0; round < 20000; round++) {
        char *mutant = sn_alloc(bytes + 1);
        memcpy(mutant, text, bytes);
        size_t length = bytes;
        for (size_t changes = 1 + below(3); changes > 0; changes--) {
            size_t at = below(length);
            switch (below(4)) {
            case 0:
                mutant[at] = "0123456789[]{},:-\". \n"[below(21)];
                break;
            case 1:
                mutant[at] = (char)below(256);
                break;
            case 2:
                memmove(mutant + at, mutant + at + 1, length - at - 1);
                length--;
                break;
            default:
                if (mutant[at] >= '0' && mutant[at] <= '9') mutant[at] = (char)('0' + below(10));
                break;
            }
        }
        sn_network n = {.limit = INT64_MAX};
        sn_diags diags = {0};
        if (sn_contest_parse(mutant, length, "mutant", &n, &diags)) {
            sn_network_budget budget = {.work = 100000};
            sn_network_answer a = sn_network_solve(&n, &budget);
            bool feasible = a.result == SN_NETWORK_OPTIMAL || a.result == SN_NETWORK_FEASIBLE;
            assert_true(!feasible || (a.peak <= n.limit && a.lower_bound <= a.cost));
            sn_free(a.choice);
            good++;
        } else
            assert_int_equal(diags.errors, 1);
        sn_network_free(&n);
        sn_diags_free(&diags);
        sn_free(mutant);
    }
    assert_true(good > 1000);
    sn_free(text);
}

static void test_writes(void **unused) {
    (void)unused;
    char path[] = "/tmp/sennit-solution-XXXXXX";
    close(mkstemp(path));
    int choice[3] = {2, 0, 11};
    assert_null(sn_contest_write(path, choice, 3));
    sn_mapped_file file;
    assert_null(sn_file_map(path, &file));
    assert_int_equal(file.bytes, strlen("[2, 0, 11]\n"));
    assert_memory_equal(file.data, "[2, 0, 11]\n", file.bytes);
    sn_file_unmap(&file);
    unlink(path);
    sn_status status = sn_contest_write("/nowhere/solution.json", choice, 3);
    assert_non_null(status);
    sn_status_free(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads),     cmocka_unit_test(test_variants),
                                       cmocka_unit_test(test_bad),       cmocka_unit_test(test_truncated),
                                       cmocka_unit_test(test_mutations), cmocka_unit_test(test_writes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

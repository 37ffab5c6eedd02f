// Clusters: what people write is read, what is wrong is reported with its line, and groups span the levels they should.
#include "passes/cost/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool parse(const char *text, sn_diags *diags, sn_cluster *out) {
    return sn_cluster_parse(text, strlen(text), "c.json", diags, out);
}

static const char two_kinds[] =
    "{\n"
    "  \"name\": \"lab\",\n"
    "  \"nodes\": [\n"
    "    {\"count\": 2, \"devices\": 4, \"device\": \"v100-sxm-16\"},\n"
    "    {\"devices\": 8, \"device\": \"a100-sxm-80\", \"memory\": \"40 GB\"}\n"
    "  ],\n"
    "  \"links\": [\n"
    "    {\"name\": \"nvlink\", \"devices\": \"all\", \"latency\": \"3 us\", \"bandwidth\": \"200 GB/s\"},\n"
    "    {\"name\": \"ib\", \"nodes\": \"all\", \"latency\": 8e-6, \"bandwidth\": \"100 Gb/s\", \"shared\": true}\n"
    "  ]\n"
    "}\n";

static void test_reads_nodes_that_differ(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_cluster c;
    assert_true(parse(two_kinds, &diags, &c));
    assert_int_equal(sn_cluster_devices(&c), 16);
    assert_int_equal(sn_cluster_node(&c, 7), 1);
    assert_int_equal(sn_cluster_node(&c, 8), 2);
    assert_string_equal(sn_cluster_nodes_of(&c, 8)->device->name, "a100-sxm-80");
    assert_true(sn_cluster_nodes_of(&c, 15)->memory == 40e9);
    assert_false(sn_cluster_is_uniform(&c));
    assert_true(c.level[0].alpha == 3e-6 && c.level[0].beta == 2e11 && c.level[1].beta == 1.25e10);
    sn_diags_free(&diags);
}

// text, what the message must hold
static const char *const wrong[][2] = {
    {"{\n\"nodes\": [\n{\"device\": \"cpu\"},\n{\"device\": \"cpux\"}], \"links\": []}", "line 4: device 'cpux'"},
    {"{\n\"nodes\": [{\"device\": \"cpu\",\n \"devices\": 0}]}", "line 3: nodes[0].devices"},
    {"{\n\"nodes\": [{\"device\": \"cpu\",\n \"devcies\": 2}]}", "line 3: 'devcies'"},
    {"{\n\"nodes\": [{\"device\": \"cpu\"}\n}", "line 3: "},
    {"{\n\"nodes\": [{\"device\": \"cpu\", \"devices\": 2}],\n\"links\": [{\"devices\": 2, \"latency\": \"3 "
     "lightyears\",\n"
     "\"bandwidth\": 1}]}",
     "line 3: links[0].latency"},
    {"{\n\n\"nodes\": [{\"device\": \"cpu\", \"devices\": 2}]}", "no link joins"},
    {"{\"nodes\": [{\"device\": \"cpu\", \"count\": 2}],\n\"links\": [{\"nodes\": \"all\", \"latency\": 0, "
     "\"bandwidth\": 1},\n"
     "{\"devices\": 2, \"latency\": 0, \"bandwidth\": 1}]}",
     "line 3: a link inside a node"},
    {"{\"nodes\": [{\"device\": \"cpu\", \"devices\": 8}],\n\"links\": [{\"devices\": 3, \"latency\": 0, "
     "\"bandwidth\": 1},\n"
     "{\"devices\": \"all\", \"latency\": 0, \"bandwidth\": 1}]}",
     "line 2: link 'link' joins groups of 3, which do not divide the devices"},
    {"{\"nodes\": [{\"device\": \"cpu\", \"count\": 6}],\n\"links\": [{\"nodes\": 2, \"latency\": 0, \"bandwidth\": "
     "1},\n"
     "{\"nodes\": 4, \"latency\": 0, \"bandwidth\": 1},\n{\"nodes\": \"all\", \"latency\": 0, \"bandwidth\": 1}]}",
     "line 3: link 'link' joins groups of 4, which do not divide the nodes"},
    {"{\"nodes\": [{\"device\": \"cpu\", \"count\": 2}],\n\"links\": [{\"nodes\": 4, \"latency\": 0, \"bandwidth\": "
     "1}]}",
     "line 2: link 'link' joins groups of 4"},
    {"{\"nodes\": [{\"device\": \"cpu\", \"devices\": 4}, {\"device\": \"cpu\", \"devices\": 6}],\n"
     "\"links\": [{\"devices\": 4, \"latency\": 0, \"bandwidth\": 1},\n"
     "{\"devices\": \"all\", \"latency\": 0, \"bandwidth\": 1}, {\"nodes\": 2, \"latency\": 0, \"bandwidth\": 1}]}",
     "line 2: link 'link' joins groups of 4"},
    {"[1]", "line 1: a cluster is an object"},
    {"{\"nodes\": 3}", "line 1: a cluster needs \"nodes\""},
};

static void test_mistakes_have_their_line(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sn_diags diags = {0};
        sn_cluster c;
        assert_false(parse(wrong[i][0], &diags, &c));
        assert_true(diags.errors >= 1);
        if (!strstr(diags.items[0].message, wrong[i][1])) fail_msg("%zu: %s", i, diags.items[0].message);
        sn_diags_free(&diags);
    }
}

// The files that people are shown.
static void test_samples(void **state) {
    (void)state;
    static const char *const files[] = {"two-generations.json", "pcie-workstations.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/samples/clusters/%s", SENNIT_SOURCE_DIR, files[i]);
        sn_diags diags = {0};
        sn_cluster c;
        if (!sn_cluster_load(path, &diags, &c)) fail_msg("%s: %s", files[i], diags.items[0].message);
        int64_t last = sn_cluster_devices(&c) - 1;
        sn_group all = sn_cluster_group(&c, 0, last + 1, 1);
        assert_int_equal(all.n_levels, c.n_levels);
        assert_int_equal(sn_cluster_node(&c, last), sn_cluster_node_count(&c) - 1);
        sn_diags_free(&diags);
    }
}

static void test_presets(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_cluster c, d;
    assert_true(sn_cluster_load("dgx-a100:16", &diags, &c));
    assert_int_equal(sn_cluster_devices(&c), 128);
    assert_true(sn_cluster_load("local:4", &diags, &d));
    assert_int_equal(sn_cluster_devices(&d), 4);
    assert_int_equal(sn_cluster_node_count(&d), 1);
    assert_true(sn_cluster_hash(&c) != sn_cluster_hash(&d));
    assert_false(sn_cluster_load("dgx-a100:zero", &diags, &c));
    assert_string_equal(diags.items[0].code, "E0413");
    assert_false(sn_cluster_load("no-such-file", &diags, &c));
    assert_string_equal(diags.items[1].code, "E0410");
    sn_diags_free(&diags);
}

// A preset written as JSON and read back is the same cluster.
static void test_round_trip(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_cluster c, d;
    assert_true(sn_cluster_preset("dgx-h100", 4, &c));
    json_t *json = sn_cluster_to_json(&c);
    char *text = json_dumps(json, JSON_INDENT(1));
    assert_true(parse(text, &diags, &d));
    assert_true(sn_cluster_hash(&c) == sn_cluster_hash(&d));
    free(text);
    json_decref(json);
    sn_diags_free(&diags);
}

static void test_groups_span_levels(void **state) {
    (void)state;
    sn_cluster c;
    assert_true(sn_cluster_preset("dgx-a100", 4, &c));
    sn_group inner = sn_cluster_group(&c, 8, 8, 1), outer = sn_cluster_group(&c, 3, 4, 8),
             all = sn_cluster_group(&c, 0, 32, 1);
    assert_int_equal(inner.n_levels, 1);
    assert_int_equal(inner.level[0].parties, 8);
    assert_int_equal(outer.n_levels, 2);
    assert_int_equal(outer.level[0].parties, 1);
    assert_int_equal(outer.level[1].parties, 4);
    assert_true(outer.level[1].members == 1);
    assert_int_equal(all.level[0].parties, 8);
    assert_int_equal(all.level[1].parties, 4);
    assert_true(all.level[1].members == 8);
    int64_t some[] = {6, 7, 8, 9};
    sn_group across = sn_cluster_group_of(&c, 4, some);
    assert_int_equal(across.level[0].parties, 2);
    assert_int_equal(across.level[1].parties, 2);
}

// One adapter for a node: its ranks share it.
static void test_shared_links(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_cluster c;
    assert_true(parse(two_kinds, &diags, &c));
    sn_group strided = sn_cluster_group(&c, 0, 2, 4);
    assert_true(strided.level[1].beta == 1.25e10 / 4);
    sn_diags_free(&diags);
}

static sn_cost_model model_of(const sn_cluster *c) {
    return (sn_cost_model){.device = c->nodes[0].device};
}

// All-gather and reduce-scatter move the same bytes the same way, an all-reduce is both, and large ones run at beta.
static void test_collective_closed_forms(void **state) {
    (void)state;
    sn_cluster c;
    assert_true(sn_cluster_preset("dgx-a100", 2, &c));
    sn_cost_model model = model_of(&c);
    sn_group node = sn_cluster_group(&c, 0, 8, 1), all = sn_cluster_group(&c, 0, 16, 1);
    double gather = sn_cost_collective(&model, SN_OP_ALL_GATHER, 1e10, &node);
    assert_true(gather == sn_cost_collective(&model, SN_OP_REDUCE_SCATTER, 1e10, &node));
    double reduce = sn_cost_collective(&model, SN_OP_ALL_REDUCE, 1e10, &node);
    assert_true(reduce < 2 * gather * 1.0001 && reduce > 2 * gather * 0.99);
    double ideal = 2 * 1e10 * 7 / 8 / c.level[0].beta;
    assert_true(reduce > ideal && reduce < 1.02 * ideal);
    ideal = 2 * 1e10 * 15 / 16 / (8 * c.level[1].beta);
    reduce = sn_cost_collective(&model, SN_OP_ALL_REDUCE, 1e10, &all);
    assert_true(reduce > ideal && reduce < 1.02 * ideal);
    sn_group one = sn_cluster_group(&c, 0, 1, 1);
    assert_true(sn_cost_collective(&model, SN_OP_ALL_REDUCE, 1e10, &one) == 0);
}

static void test_costs_rise(void **state) {
    (void)state;
    sn_cluster c;
    assert_true(sn_cluster_preset("dgx-h100", 8, &c));
    sn_cost_model model = model_of(&c);
    static const sn_op_kind kinds[] = {SN_OP_ALL_REDUCE, SN_OP_ALL_GATHER, SN_OP_REDUCE_SCATTER, SN_OP_ALL_TO_ALL};
    for (int k = 0; k < 4; k++)
        for (int64_t ranks = 2; ranks <= 64; ranks *= 2) {
            double before = 0;
            for (double bytes = 1; bytes < 1e10; bytes *= 2) {
                sn_group group = sn_cluster_group(&c, 0, ranks, 1);
                double now = sn_cost_collective(&model, kinds[k], bytes, &group);
                assert_true(now >= before);
                before = now;
            }
        }
    for (size_t i = 0; sn_device_kind_at(i); i++) {
        double before = 0;
        for (int64_t n = 64; n <= 16384; n *= 2) {
            double now = sn_cost_matmul(sn_device_kind_at(i), SN_BF16, 1, n, n, n);
            assert_true(now >= before);
            before = now;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_nodes_that_differ),
        cmocka_unit_test(test_mistakes_have_their_line),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_groups_span_levels),
        cmocka_unit_test(test_shared_links),
        cmocka_unit_test(test_collective_closed_forms),
        cmocka_unit_test(test_costs_rise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

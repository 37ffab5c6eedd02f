#include "passes/partition/stages_cut.h"

#include "ir/build.h"
#include "passes/partition/stages_assign.h"

#include <string.h>

// Tables are by value of the function that is cut (value->id) and by cell or rank.
typedef struct cut {
    sn_stage_cutter *cutter;
    sn_func *from;
    int n_cells, n_values;
    const sn_stage_cell *cells;
    const int *home;   // by op mark
    sn_func **func;    // by cell; NULL until it has something
    sn_value **mapped; // [cell][value]
    const char **kept; // [cell][value]: the name under which the cell's copy is kept
    int *arrival;      // [rank][value]: cell + 1 that receives the value
    int *first_reader; // [rank][value]: cell + 1 that reads it first
    sn_arena scratch;
} cut;

static size_t at(const cut *c, int row, const sn_value *value) {
    return (size_t)row * (size_t)c->n_values + value->id;
}

static sn_func *func_of(cut *c, int cell) {
    if (c->func[cell]) return c->func[cell];
    char name[64];
    snprintf(name, sizeof name, "stage%d.%s", c->cells[cell].stage, sn_stage_part_name(c->cells[cell].part));
    sn_func *known = sn_module_func(c->cutter->module, name);
    return c->func[cell] = known ? known : sn_module_add_func(c->cutter->module, name);
}

static sn_value *find_arg(const sn_func *func, const char *name) {
    for (size_t i = 0; i < func->args.count; i++)
        if (strcmp(func->args.data[i]->name, name) == 0) return func->args.data[i];
    return NULL;
}

static sn_value *argument(sn_func *func, const char *name, const sn_value *like) {
    sn_value *arg = find_arg(func, name);
    if (arg) return arg;
    arg = sn_func_add_arg(func, name, like->type);
    arg->layout = like->layout;
    arg->range = like->range;
    return arg;
}

static sn_op *transfer(sn_func *func, sn_op *before, sn_op_kind kind, sn_value *value, const sn_value *like,
                       int channel, int stage, sn_stage_part part) {
    sn_attr attrs[] = {sn_attr_int("channel", channel), sn_attr_int("stage", stage)};
    bool send = kind == SN_OP_SEND;
    sn_op *op = sn_op_new(func, before, kind, send, &value, 2, attrs, !send, &like->type);
    const sn_origin *origin = like->kind == SN_VALUE_RESULT ? like->def->origin : NULL;
    op->origin = sn_origin_new(func->module, "stages", origin);
    op->phase = sn_stage_part_phase(part);
    if (!send) op->results[0]->layout = like->layout;
    return op;
}

// A parameter of another rank, for this rank's functions: its @stageN.tie receives it at the start of each sequence.
static sn_value *tied(cut *c, int cell, sn_value *global) {
    sn_stage_cutter *cutter = c->cutter;
    sn_module *module = cutter->module;
    int rank = c->cells[cell].rank;
    const char *key = sn_arena_printf(&module->arena, "%s@%d", global->name, rank);
    const char *name = sn_map_get(&cutter->tied, key);
    if (!name) {
        int stage = (int)(intptr_t)sn_map_get(cutter->owner, global->name) - 1;
        sn_stage_cell ends[] = {{SN_PART_TIE, stage % cutter->ranks, stage % cutter->ranks, 0},
                                {SN_PART_TIE, rank, rank, 0}};
        sn_func *funcs[2] = {0};
        cut tie = *c;
        tie.cells = ends, tie.func = funcs;
        int channel = cutter->channels++;
        transfer(func_of(&tie, 0), NULL, SN_OP_SEND, global, global, channel, rank, SN_PART_TIE);
        sn_op *received = transfer(func_of(&tie, 1), NULL, SN_OP_RECV, NULL, global, channel, stage, SN_PART_TIE);
        name = sn_arena_printf(&module->arena, "$keep.%d", cutter->kept++);
        sn_func_add_result(funcs[1], received->results[0], name);
        sn_map_put(&cutter->tied, key, (void *)(uintptr_t)name);
    }
    return argument(func_of(c, cell), name, global);
}

// Tensors that never change are there on each rank that reads them.
static sn_value *replica(cut *c, int cell, sn_value *value) {
    sn_stage_cutter *cutter = c->cutter;
    sn_module *module = cutter->module;
    int rank = c->cells[cell].rank;
    int owner = (int)(intptr_t)sn_map_get(cutter->owner, value->name) - 1;
    if (owner < 0) sn_map_put(cutter->owner, value->name, (void *)(intptr_t)(rank + 1));
    if (owner < 0 || owner % cutter->ranks == rank) return value;
    const char *key = sn_arena_printf(&module->arena, "%s@%d", value->name, rank);
    sn_global *copy = sn_map_get(&cutter->tied, key);
    if (!copy) {
        const sn_global *of = value->global;
        copy = sn_module_add_global(module, of->name, value->type, of->role, of->source);
        copy->value->layout = value->layout;
        copy->why = of->why;
        sn_map_put(cutter->owner, copy->name, (void *)(intptr_t)(rank + 1));
        sn_map_put(&cutter->tied, key, copy);
    }
    return copy->value;
}

static sn_value *global_in(cut *c, int cell, sn_value *value) {
    sn_role role = value->global->role;
    if (role == SN_ROLE_CONSTANT || role == SN_ROLE_FROZEN) return replica(c, cell, value);
    int owner = (int)(intptr_t)sn_map_get(c->cutter->owner, value->name) - 1;
    if (owner < 0 || owner % c->cutter->ranks == c->cells[cell].rank) return value;
    SN_CHECK(role == SN_ROLE_PARAMETER || role == SN_ROLE_STATE);
    return tied(c, cell, value);
}

static sn_value *lookup(cut *c, int cell, sn_value *value);

static void clone_into(cut *c, int cell, const sn_op *op) {
    sn_func *func = func_of(c, cell);
    sn_value **operands = SN_NEW_N(&c->scratch, sn_value *, op->n_operands + 1);
    sn_type *types = SN_NEW_N(&c->scratch, sn_type, op->n_results + 1);
    bool assign = op->kind == SN_OP_ASSIGN;
    if (assign) operands[0] = op->operands[0];
    for (int i = assign; i < op->n_operands; i++) operands[i] = lookup(c, cell, op->operands[i]);
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    sn_op *copy =
        sn_op_new(func, NULL, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, op->n_results, types);
    copy->origin = op->origin;
    copy->phase = sn_stage_part_phase(c->cells[cell].part);
    for (int i = 0; i < op->n_results; i++) {
        copy->results[i]->name = op->results[i]->name;
        copy->results[i]->layout = op->results[i]->layout;
        c->mapped[at(c, cell, op->results[i])] = copy->results[i];
    }
}

// The cell on `rank` that receives a value: the first that reads it; but what only the backward pass of a later stage
// reads arrives in its forward pass, when the sender has it, and waits there.
static int receiver(cut *c, int from, int rank, const sn_value *value) {
    int *arrival = &c->arrival[at(c, rank, value)];
    if (*arrival) return *arrival - 1;
    int to = c->first_reader[at(c, rank, value)] - 1;
    const sn_stage_cell *a = &c->cells[from], *b = &c->cells[to];
    bool waits = a->part == SN_PART_FORWARD && sn_stage_part_phase(b->part) == SN_PHASE_BACKWARD && b->stage > a->stage;
    for (int i = 0; waits && i < c->n_cells; i++)
        if (c->cells[i].part == SN_PART_FORWARD && c->cells[i].stage == b->stage) to = i;
    b = &c->cells[to];
    int channel = c->cutter->channels++;
    sn_value *sent = c->mapped[at(c, from, value)];
    sn_op *after = sent->kind == SN_VALUE_RESULT ? sent->def->next : func_of(c, from)->first;
    transfer(func_of(c, from), after, SN_OP_SEND, sent, value, channel, b->stage, a->part);
    sn_op *received = transfer(func_of(c, to), NULL, SN_OP_RECV, NULL, value, channel, a->stage, b->part);
    c->mapped[at(c, to, value)] = received->results[0];
    *arrival = to + 1;
    return to;
}

static const char *keep(cut *c, int cell, const sn_value *value) {
    const char **name = &c->kept[at(c, cell, value)];
    if (*name) return *name;
    *name = sn_arena_printf(&c->cutter->module->arena, "$keep.%d", c->cutter->kept++);
    sn_func_add_result(func_of(c, cell), c->mapped[at(c, cell, value)], *name);
    return *name;
}

// The value as `cell` sees it.
static sn_value *lookup(cut *c, int cell, sn_value *value) {
    if (value->kind == SN_VALUE_GLOBAL) return global_in(c, cell, value);
    sn_value **here = &c->mapped[at(c, cell, value)];
    if (*here) return *here;
    if (value->kind == SN_VALUE_ARG) return *here = argument(func_of(c, cell), value->name, value);
    int home = c->home[value->def->mark];
    if (home == SN_HOME_ANYWHERE) {
        clone_into(c, cell, value->def);
        return *here;
    }
    int rank = c->cells[cell].rank;
    int source = c->cells[home].rank == rank ? home : receiver(c, home, rank, value);
    if (*here) return *here; // received in this cell
    return *here = argument(func_of(c, cell), keep(c, source, value), value);
}

static void note_reader(cut *c, int cell, const sn_value *value) {
    while (value->kind == SN_VALUE_RESULT && c->home[value->def->mark] == SN_HOME_ANYWHERE &&
           sn_op_has(value->def->kind, SN_TRAIT_VIEW))
        value = value->def->operands[0];
    if (value->kind != SN_VALUE_RESULT || c->home[value->def->mark] == SN_HOME_ANYWHERE) return;
    int *first = &c->first_reader[at(c, c->cells[cell].rank, value)];
    if (!*first || c->cells[cell].order < c->cells[*first - 1].order) *first = cell + 1;
}

static void number_values(cut *c) {
    uint32_t n = 0, mark = 0;
    for (size_t i = 0; i < c->from->args.count; i++) c->from->args.data[i]->id = n++;
    SN_FOR_OPS(op, c->from) {
        op->mark = mark++;
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = n++;
    }
    c->n_values = (int)n;
}

// The cell of the last stage, for results that are computed anywhere.
static int last_cell(const cut *c) {
    int last = 0;
    for (int i = 1; i < c->n_cells; i++)
        if (c->cells[i].order > c->cells[last].order) last = i;
    return last;
}

static void add_results(cut *c) {
    for (size_t i = 0; i < c->from->results.count; i++) {
        sn_value *value = c->from->results.data[i];
        int cell = value->kind == SN_VALUE_RESULT ? c->home[value->def->mark] : SN_HOME_ANYWHERE;
        if (cell == SN_HOME_ANYWHERE) cell = last_cell(c);
        sn_func_add_result(func_of(c, cell), lookup(c, cell, value), c->from->result_names.data[i]);
    }
}

void sn_stage_cut(sn_stage_cutter *cutter, sn_func *func, int n_cells, const sn_stage_cell *cells, const int *home) {
    cut c = {.cutter = cutter, .from = func, .n_cells = n_cells, .cells = cells, .home = home};
    number_values(&c);
    size_t by_cell = (size_t)n_cells * (size_t)(c.n_values + 1),
           by_rank = (size_t)cutter->ranks * (size_t)(c.n_values + 1);
    c.func = sn_alloc(sizeof *c.func * (size_t)n_cells);
    c.mapped = sn_alloc(sizeof *c.mapped * by_cell);
    c.kept = sn_alloc(sizeof *c.kept * by_cell);
    c.arrival = sn_alloc(sizeof *c.arrival * by_rank);
    c.first_reader = sn_alloc(sizeof *c.first_reader * by_rank);
    SN_FOR_OPS(op, func) {
        for (int i = 0; home[op->mark] != SN_HOME_ANYWHERE && i < op->n_operands; i++)
            note_reader(&c, home[op->mark], op->operands[i]);
    }
    SN_FOR_OPS(op, func) {
        if (home[op->mark] != SN_HOME_ANYWHERE) clone_into(&c, home[op->mark], op);
    }
    add_results(&c);
    sn_module_remove_func(cutter->module, func);
    sn_free(c.func);
    sn_free(c.mapped);
    sn_free(c.kept);
    sn_free(c.arrival);
    sn_free(c.first_reader);
    sn_arena_free(&c.scratch);
}

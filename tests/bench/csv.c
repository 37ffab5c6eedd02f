#include "csv.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <stdio.h>
#include <string.h>

static char *read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *text = bytes >= 0 ? sn_alloc((size_t)bytes + 2) : NULL;
    if (text) text[fread(text, 1, (size_t)bytes, file)] = 0;
    fclose(file);
    return text;
}

// Takes one field and writes it over the text it came from. *end: what stood behind it: ',', '\n' or 0.
static char *field(char **at, char *end) {
    char *in = *at, *out = *at, *start = *at;
    bool quoted = *in == '"';
    if (quoted) in++;
    for (; *in; in++) {
        if (quoted && *in == '"') {
            if (in[1] != '"') {
                quoted = false;
                continue;
            }
            in++;
        } else if (!quoted && (*in == ',' || *in == '\n' || *in == '\r')) {
            break;
        }
        *out++ = *in;
    }
    *end = *in == '\r' && in[1] == '\n' ? '\n' : *in;
    *at = in + (*in == '\r') + (*in != 0);
    *out = 0;
    return start;
}

bool csv_read(const char *path, csv_table *out) {
    csv_table table = {.text = read_all(path)};
    if (!table.text) return false;
    SN_VEC(char *) fields = {0};
    int in_row = 0;
    bool even = true;
    for (char *at = table.text, end = '\n'; *at;) {
        char *f = field(&at, &end);
        if (in_row == 0 && end != ',' && !*f) continue; // a blank line
        sn_vec_push(&fields, f);
        in_row++;
        if (end == ',') continue;
        if (!table.n_columns) table.n_columns = in_row;
        even &= in_row == table.n_columns;
        in_row = 0;
    }
    table.field = fields.data;
    table.n_rows = table.n_columns ? (int)fields.count / table.n_columns - 1 : 0;
    if (!even || !table.n_columns) {
        csv_free(&table);
        return false;
    }
    *out = table;
    return true;
}

void csv_free(csv_table *table) {
    sn_free(table->text);
    sn_free(table->field);
    *table = (csv_table){0};
}

const char *csv_get(const csv_row *row, const char *column) {
    const csv_table *t = row->table;
    for (int i = 0; i < t->n_columns; i++)
        if (strcmp(t->field[i], column) == 0) return t->field[(row->index + 1) * t->n_columns + i];
    return "";
}

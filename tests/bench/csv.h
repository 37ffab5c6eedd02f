// CSV with quoted fields, read whole: a header line and rows that are asked by column name.
#pragma once
#include <stdbool.h>

typedef struct csv_table {
    char *text;   // fields, NUL-terminated, in place
    char **field; // (1 + n_rows) * n_columns, the header first
    int n_columns, n_rows;
} csv_table;

typedef struct csv_row {
    const csv_table *table;
    int index;
} csv_row;

bool csv_read(const char *path, csv_table *out); // false when there is no such file, or it is no table
void csv_free(csv_table *table);
const char *csv_get(const csv_row *row, const char *column); // "" when there is no such column

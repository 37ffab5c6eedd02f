#include "backend/simulate/mesh.h"

#include <inttypes.h>

enum { MOST_AXES = 64 };

static void coordinates(const sn_schedule *s, int64_t rank, int64_t *out) {
    for (size_t i = s->mesh.count; i-- > 0; rank /= s->mesh.items[i].size) out[i] = rank % s->mesh.items[i].size;
}

static int64_t rank_at(const sn_schedule *s, const int64_t *at) {
    int64_t rank = 0;
    for (size_t i = 0; i < s->mesh.count; i++) rank = rank * s->mesh.items[i].size + at[i];
    return rank;
}

int64_t sn_schedule_group_size(const sn_schedule *s, int64_t axes) {
    int64_t size = 1;
    for (size_t i = 0; i < s->mesh.count; i++)
        if (axes >> i & 1) size *= s->mesh.items[i].size;
    return size;
}

int64_t sn_schedule_member(const sn_schedule *s, int64_t rank, int64_t axes, int64_t index) {
    int64_t at[MOST_AXES];
    coordinates(s, rank, at);
    for (size_t i = s->mesh.count; i-- > 0;) {
        if (!(axes >> i & 1)) continue;
        at[i] = index % s->mesh.items[i].size;
        index /= s->mesh.items[i].size;
    }
    return rank_at(s, at);
}

int64_t sn_schedule_color(const sn_schedule *s, int64_t rank, int64_t axes) {
    int64_t at[MOST_AXES], color = 0;
    coordinates(s, rank, at);
    for (size_t i = 0; i < s->mesh.count; i++)
        if (!(axes >> i & 1)) color = color * s->mesh.items[i].size + at[i];
    return color;
}

int64_t sn_schedule_peer(const sn_schedule *s, int64_t rank, int64_t coordinate) {
    int64_t at[MOST_AXES];
    if (s->pipeline_axis < 0) return rank;
    coordinates(s, rank, at);
    at[s->pipeline_axis] = coordinate;
    return rank_at(s, at);
}

int64_t sn_schedule_first_rank(const sn_schedule *s, int64_t rank_class) {
    return sn_schedule_peer(s, 0, rank_class);
}

void sn_schedule_describe_rank(const sn_schedule *s, int64_t rank, sn_str *out) {
    int64_t at[MOST_AXES];
    coordinates(s, rank, at);
    for (size_t i = 0; i < s->mesh.count; i++)
        sn_str_printf(out, "%s%s=%" PRId64, i ? ", " : "", s->mesh.items[i].name, at[i]);
}

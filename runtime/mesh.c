#include "runtime/mesh.h"

#include <inttypes.h>

int64_t sn_schedule_coordinate(const sn_schedule *s, int64_t rank, size_t axis) {
    for (size_t i = s->mesh.count - 1; i > axis; i--) rank /= s->mesh.items[i].size;
    return rank % s->mesh.items[axis].size;
}

int64_t sn_schedule_group_size(const sn_schedule *s, int64_t axes) {
    int64_t size = 1;
    for (size_t i = 0; i < s->mesh.count; i++) size *= axes >> i & 1 ? s->mesh.items[i].size : 1;
    return size;
}

int64_t sn_schedule_place(const sn_schedule *s, int64_t rank, int64_t axes) {
    int64_t place = 0;
    for (size_t i = 0; i < s->mesh.count; i++)
        if (axes >> i & 1) place = place * s->mesh.items[i].size + sn_schedule_coordinate(s, rank, i);
    return place;
}

static int64_t moved(const sn_schedule *s, int64_t rank, size_t axis, int64_t coordinate) {
    int64_t stride = 1; // from one coordinate to the next
    for (size_t i = axis + 1; i < s->mesh.count; i++) stride *= s->mesh.items[i].size;
    return rank + (coordinate - sn_schedule_coordinate(s, rank, axis)) * stride;
}

int64_t sn_schedule_member(const sn_schedule *s, int64_t rank, int64_t axes, int64_t place) {
    for (size_t i = s->mesh.count; i-- > 0;) {
        if (!(axes >> i & 1)) continue;
        rank = moved(s, rank, i, place % s->mesh.items[i].size);
        place /= s->mesh.items[i].size;
    }
    return rank;
}

int64_t sn_schedule_color(const sn_schedule *s, int64_t rank, int64_t axes) {
    return sn_schedule_place(s, rank, ~axes);
}

int64_t sn_schedule_peer(const sn_schedule *s, int64_t rank, int64_t coordinate) {
    return s->pipeline_axis < 0 ? rank : moved(s, rank, (size_t)s->pipeline_axis, coordinate);
}

int64_t sn_schedule_first_rank(const sn_schedule *s, int64_t rank_class) {
    return sn_schedule_peer(s, 0, rank_class);
}

void sn_schedule_describe_rank(const sn_schedule *s, int64_t rank, sn_str *out) {
    for (size_t i = 0; i < s->mesh.count; i++)
        sn_str_printf(out, "%s%s=%" PRId64, i ? ", " : "", s->mesh.items[i].name, sn_schedule_coordinate(s, rank, i));
}

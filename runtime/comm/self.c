// The communicator of one rank.
#include "base/alloc.h"
#include "base/vec.h"
#include "runtime/comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct message { // sent and not yet received
    int64_t tag;
    size_t bytes;
    char *data;
} message;

typedef struct self {
    sn_comm base;
    pthread_mutex_t lock; // two streams may transfer at once
    SN_VEC(message) messages;
} self;

static void destroy(sn_comm *comm) {
    self *s = (self *)comm;
    for (size_t i = 0; i < s->messages.count; i++) sn_free(s->messages.data[i].data);
    sn_vec_free(&s->messages);
    pthread_mutex_destroy(&s->lock);
    sn_free(s);
}

static sn_status set_mesh(sn_comm *comm, const sn_schedules *schedules) {
    (void)comm;
    int64_t ranks = schedules->classes.items[0].ranks;
    if (ranks != 1)
        return sn_status_make("the program is for %lld ranks; use mpirun -n %lld", (long long)ranks, (long long)ranks);
    return SN_OK;
}

// The oldest with the tag, so that messages meet in order.
static sn_status receive(self *s, const sn_transfer *t) {
    size_t i = 0;
    while (i < s->messages.count && s->messages.data[i].tag != t->tag) i++;
    if (i == s->messages.count) return sn_status_make("nobody sent what this rank receives from itself");
    message m = s->messages.data[i];
    s->messages.count--;
    memmove(&s->messages.data[i], &s->messages.data[i + 1], (s->messages.count - i) * sizeof m);
    bool fits = m.bytes == t->bytes;
    if (fits) memcpy(t->data, m.data, m.bytes);
    sn_free(m.data);
    return fits ? SN_OK : sn_status_make("received %zu bytes, not %zu", m.bytes, t->bytes);
}

static sn_status transfer(sn_comm *comm, const sn_transfer *t) {
    self *s = (self *)comm;
    sn_status status = SN_OK;
    pthread_mutex_lock(&s->lock);
    if (t->send) {
        message m = {t->tag, t->bytes, sn_alloc(t->bytes + 1)};
        memcpy(m.data, t->data, t->bytes);
        sn_vec_push(&s->messages, m);
    } else {
        status = receive(s, t);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static sn_status give(sn_comm *comm, int peer, const void *data, size_t bytes) {
    (void)comm, (void)data, (void)bytes;
    SN_BUG("there is no rank %d", peer);
}

static sn_status take(sn_comm *comm, int peer, void *data, size_t bytes) {
    (void)comm, (void)data, (void)bytes;
    SN_BUG("there is no rank %d", peer);
}

static sn_status run(sn_comm *comm, const sn_collective *c) {
    (void)comm;
    if (c->from != c->to) memcpy(c->to, c->from, (size_t)c->count * sn_dtype_bytes(c->dtype));
    return SN_OK;
}

static sn_status barrier(sn_comm *comm) {
    (void)comm;
    return SN_OK;
}

static _Noreturn void abort_run(sn_comm *comm, const char *message) {
    (void)comm;
    fputs(message, stderr);
    fflush(NULL);
    _Exit(1);
}

static const sn_comm_vtable vtable = {
    .destroy = destroy,
    .set_mesh = set_mesh,
    .run = run,
    .run_all = run,
    .transfer = transfer,
    .give = give,
    .take = take,
    .barrier = barrier,
    .abort = abort_run,
};

sn_status sn_comm_self_create(sn_comm **out) {
    self *s = sn_alloc(sizeof *s);
    s->base = (sn_comm){.vtable = &vtable, .rank = 0, .ranks = 1};
    pthread_mutex_init(&s->lock, NULL);
    *out = &s->base;
    return SN_OK;
}

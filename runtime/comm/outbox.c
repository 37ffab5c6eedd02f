#include "runtime/comm/outbox.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

typedef struct letter {
    MPI_Request request;
    char *data;
    size_t capacity;
} letter;

struct sn_outbox {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    SN_VEC(letter) letters; // under way
    SN_VEC(letter) spare;   // delivered: their memory serves again, as touching new pages is slow
    bool quit;
};

enum { PAUSE_US = 100 }; // between two looks at what is under way

// Drops what has been delivered. An error of a message is the receiver's to find: it waits in vain.
static void collect(sn_outbox *o) {
    for (size_t i = 0; i < o->letters.count;) {
        int done = 0;
        if (MPI_Test(&o->letters.data[i].request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
        if (!done) {
            i++;
            continue;
        }
        sn_vec_push(&o->spare, o->letters.data[i]);
        o->letters.data[i] = sn_vec_last(&o->letters);
        o->letters.count--;
    }
}

static void *push_on(void *user) {
    sn_outbox *o = user;
    pthread_mutex_lock(&o->lock);
    while (!o->quit || o->letters.count) {
        if (!o->letters.count) {
            pthread_cond_wait(&o->changed, &o->lock);
            continue;
        }
        collect(o);
        pthread_mutex_unlock(&o->lock);
        usleep(PAUSE_US);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

sn_status sn_outbox_create(sn_outbox **out) {
    sn_outbox *o = sn_alloc(sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    if (pthread_create(&o->thread, NULL, push_on, o) != 0) {
        pthread_mutex_destroy(&o->lock), pthread_cond_destroy(&o->changed);
        sn_free(o);
        return sn_status_errno("cannot start the thread that sends");
    }
    *out = o;
    return SN_OK;
}

void sn_outbox_destroy(sn_outbox *o) {
    if (!o) return;
    pthread_mutex_lock(&o->lock);
    o->quit = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    for (size_t i = 0; i < o->spare.count; i++) sn_free(o->spare.data[i].data);
    sn_vec_free(&o->letters);
    sn_vec_free(&o->spare);
    pthread_mutex_destroy(&o->lock), pthread_cond_destroy(&o->changed);
    sn_free(o);
}

static letter take_paper(sn_outbox *o, size_t bytes) {
    for (size_t i = 0; i < o->spare.count; i++) {
        letter l = o->spare.data[i];
        if (l.capacity < bytes || l.capacity / 2 > bytes) continue;
        o->spare.data[i] = sn_vec_last(&o->spare);
        o->spare.count--;
        return l;
    }
    return (letter){.data = sn_realloc(NULL, bytes + 1), .capacity = bytes + 1};
}

int sn_outbox_send(sn_outbox *o, MPI_Comm comm, int peer, int tag, const void *data, size_t bytes) {
    const char *from = data;
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&o->lock);
    for (size_t at = 0; code == MPI_SUCCESS && (at == 0 || at < bytes);) {
        size_t n = bytes - at < SN_OUTBOX_PIECE ? bytes - at : SN_OUTBOX_PIECE;
        letter l = take_paper(o, n);
        memcpy(l.data, from + at, n);
        code = MPI_Isend(l.data, (int)n, MPI_BYTE, peer, tag, comm, &l.request);
        if (code == MPI_SUCCESS) {
            sn_vec_push(&o->letters, l);
        } else {
            sn_vec_push(&o->spare, l);
        }
        at += n;
        if (!n) break;
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return code;
}

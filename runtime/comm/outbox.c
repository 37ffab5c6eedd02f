#include "runtime/comm/outbox.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

typedef struct letter {
    MPI_Request request;
    int peer;
    char *data;
    size_t capacity;
} letter;

typedef SN_VEC(letter) letters;

struct sn_outbox {
    sn_host_group *host;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    letters sent;  // since the thread last looked
    letters spare; // delivered: their memory serves again, as touching new pages is slow
    bool quit;
};

enum { PAUSE_US = 100, LONGEST_PAUSE_US = 1600 }; // between two looks at what is under way

static void ring(const sn_outbox *o, int peer) {
    if (o->host) sn_signal_raise(sn_host_group_bell(o->host, peer));
}

static void move_all(letters *from, letters *to) {
    for (size_t i = 0; i < from->count; i++) sn_vec_push(to, from->data[i]);
    from->count = 0;
}

// Keeps what is under way and rings for it, in case it comes by pieces. An error of a message is the receiver's to
// find: it waits in vain.
static void test(const sn_outbox *o, letters *under_way, letters *delivered) {
    size_t kept = 0;
    for (size_t i = 0; i < under_way->count; i++) {
        letter *l = &under_way->data[i];
        int done = 0;
        if (MPI_Test(&l->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
        if (done)
            sn_vec_push(delivered, *l);
        else
            ring(o, l->peer), under_way->data[kept++] = *l;
    }
    under_way->count = kept;
}

// MPI is called without the lock: it may yield, and a sender would wait for the thread's next turn.
static void *push_on(void *user) {
    sn_outbox *o = user;
    letters under_way = {0}, delivered = {0};
    useconds_t pause = PAUSE_US;
    pthread_mutex_lock(&o->lock);
    while (!o->quit || o->sent.count || under_way.count) {
        if (!o->sent.count && !under_way.count) {
            pthread_cond_wait(&o->changed, &o->lock);
            continue;
        }
        bool news = o->sent.count > 0;
        move_all(&o->sent, &under_way);
        pthread_mutex_unlock(&o->lock);
        test(o, &under_way, &delivered);
        pause = news || delivered.count ? PAUSE_US : pause < LONGEST_PAUSE_US ? 2 * pause : pause;
        usleep(pause);
        pthread_mutex_lock(&o->lock);
        move_all(&delivered, &o->spare);
    }
    pthread_mutex_unlock(&o->lock);
    sn_vec_free(&under_way);
    sn_vec_free(&delivered);
    return NULL;
}

sn_status sn_outbox_create(sn_host_group *host, sn_outbox **out) {
    sn_outbox *o = sn_alloc(sizeof *o);
    o->host = host;
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
    sn_vec_free(&o->sent);
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
        l.peer = peer;
        memcpy(l.data, from + at, n);
        code = MPI_Isend(l.data, (int)n, MPI_BYTE, peer, tag, comm, &l.request);
        if (code == MPI_SUCCESS) {
            sn_vec_push(&o->sent, l);
        } else {
            sn_vec_push(&o->spare, l);
        }
        at += n;
        if (!n) break;
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    ring(o, peer);
    return code;
}

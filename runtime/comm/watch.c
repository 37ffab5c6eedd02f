#include "runtime/comm/watch.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TICK_MS = 100, MOST_ADDRESSES = 8, CONNECT_MS = 3000, GRACE_MS = 300, PAUSE_MS = 3000, MOST_LINES = 16 };

// Bytes per second that a network brings at the least: large messages take their time.
static const double slowest_link = 10e6;

// A rank that computes uses more of the processor than this, however crowded the machine; one that sleeps does not.
static const double idle_share = 0.02;

typedef enum word { HELLO, BEAT, BYE, VERDICT } word;

// What ranks tell each other; all of the same executable, so of the same byte order.
typedef struct beat {
    uint64_t token; // of the run: others may knock at the port
    int32_t word, rank, activity;
    int32_t faults; // pages that were read from disk
    uint64_t done;
    int64_t step, program, micro_batch, instr[SN_STREAM_COUNT];
    double cpu_seconds;
} beat;

// Where rank 0 listens.
typedef struct meeting {
    uint64_t token;
    uint32_t addresses[MOST_ADDRESSES]; // IPv4, network byte order; 0: none
    uint16_t port;                      // network byte order; 0: rank 0 cannot listen
    char host[64];
} meeting;

typedef struct peer {
    int socket; // -1: not connected
    bool left, gone;
    beat said;
    size_t partial; // bytes of `incoming`
    char incoming[sizeof(beat)];
    double heard, moved; // times of the last word, and of the last progress
    double cpu_moved;    // processor time at the last progress
} peer;

struct sn_watch {
    sn_watch_setup setup;
    uint64_t token;
    pthread_t thread;
    _Atomic bool stop;
    int listener; // rank 0
    peer *peers;  // rank 0: all, itself included; others: rank 0 alone
    int count;
    double clock;   // seconds in which this process was not stopped itself
    double last;    // sn_seconds of the last tick
    double gone_at; // clock of the first loss; 0: none
    double quiet_until;
};

static beat make_beat(const sn_watch *w, word word) {
    const sn_progress *p = w->setup.progress;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    beat b = {.token = w->token, .word = word, .rank = w->setup.comm->rank, .faults = (int32_t)used.ru_majflt};
    b.cpu_seconds = (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
                    1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    b.done = atomic_load_explicit(&p->done, memory_order_relaxed);
    b.step = atomic_load_explicit(&p->step, memory_order_relaxed);
    b.activity = atomic_load_explicit(&p->activity, memory_order_relaxed);
    b.program = atomic_load_explicit(&p->program, memory_order_relaxed);
    b.micro_batch = atomic_load_explicit(&p->micro_batch, memory_order_relaxed);
    for (int i = 0; i < SN_STREAM_COUNT; i++) b.instr[i] = atomic_load_explicit(&p->instr[i], memory_order_relaxed);
    return b;
}

static void to_progress(const beat *b, sn_progress *out) {
    atomic_init(&out->done, b->done), atomic_init(&out->step, b->step), atomic_init(&out->activity, b->activity);
    atomic_init(&out->program, b->program), atomic_init(&out->micro_batch, b->micro_batch);
    for (int i = 0; i < SN_STREAM_COUNT; i++) atomic_init(&out->instr[i], b->instr[i]);
}

static const sn_schedule *schedule_of(const sn_watch *w, int rank) {
    return &w->setup.schedules->classes.items[sn_schedules_class(w->setup.schedules, rank)];
}

static bool waits(const sn_watch *w, const beat *b) {
    sn_progress p;
    to_progress(b, &p);
    return sn_progress_waits(&p, schedule_of(w, b->rank));
}

static double bytes_under_way(const sn_watch *w, const beat *b) {
    sn_progress p;
    to_progress(b, &p);
    return sn_progress_bytes(&p, schedule_of(w, b->rank));
}

static void describe(const sn_watch *w, const beat *b, sn_str *out) {
    sn_progress p;
    to_progress(b, &p);
    sn_progress_describe(&p, schedule_of(w, b->rank), out);
}

// The messages are small and rare: a full socket means that nobody reads, which the other side's silence shows.
static void say(const sn_watch *w, int socket, word word) {
    beat b = make_beat(w, word);
    if (socket >= 0 && send(socket, &b, sizeof b, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

static void take_word(sn_watch *w, peer *p, const beat *b) {
    p->heard = w->clock;
    if (b->done != p->said.done || b->activity != p->said.activity || b->faults != p->said.faults || p->moved == 0)
        p->moved = w->clock, p->cpu_moved = b->cpu_seconds;
    p->said = *b;
    if (b->word == BYE) p->left = true;
    if (b->word == VERDICT) _exit(1); // rank 0 has said why
}

static void listen_to(sn_watch *w, peer *p) {
    while (p->socket >= 0) {
        ssize_t n = recv(p->socket, p->incoming + p->partial, sizeof p->incoming - p->partial, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            close(p->socket);
            p->socket = -1, p->gone = true;
            return;
        }
        p->partial += (size_t)n;
        if (p->partial < sizeof(beat)) continue;
        beat b;
        memcpy(&b, p->incoming, sizeof b);
        p->partial = 0;
        take_word(w, p, &b);
    }
}

// A stopped process must not take its own sleep for that of others; when it wakes, they may have ended for its sake.
static void tick(sn_watch *w) {
    double now = sn_seconds(), passed = now - w->last;
    w->clock += passed < 1 ? passed : 1;
    if (passed > 1) w->quiet_until = w->clock + 1e-3 * PAUSE_MS;
    w->last = now;
}

static void begin_report(sn_str *out, const sn_watch *w, const beat *lost, const char *what) {
    sn_str_printf(out, "error[E0717]: rank %d %s", lost->rank, what);
    if (lost->word != HELLO || lost->done) {
        sn_str_puts(out, "\n  it was last seen at ");
        describe(w, lost, out);
    }
    sn_str_putc(out, '\n');
}

static void report_waiting(sn_str *out, const sn_watch *w, const beat *b) {
    sn_str_printf(out, "  rank %d %s ", b->rank, waits(w, b) ? "waits at" : "is at");
    describe(w, b, out);
    sn_str_putc(out, '\n');
}

static _Noreturn void end_all(const sn_watch *w, sn_str *text) {
    fputs(sn_str_text(text), stderr);
    fflush(NULL);
    for (int i = 0; w->setup.comm->rank == 0 && i < w->count; i++) say(w, w->peers[i].socket, VERDICT);
    usleep(GRACE_MS * 1000); // mpirun passes the text on, the others end
    _exit(1);
}

// Rank 0: tells on `lost`, or on all when there is none.
static _Noreturn void judge(const sn_watch *w, const peer *lost, const char *what) {
    sn_str text = {0};
    if (lost) {
        begin_report(&text, w, &lost->said, what);
    } else {
        sn_str_printf(&text, "error[E0717]: %s\n", what);
    }
    int lines = 0;
    for (int i = 0; i < w->count; i++) {
        const peer *p = &w->peers[i];
        if (p == lost || p->left || p->gone) continue;
        if (lines++ < MOST_LINES) report_waiting(&text, w, &p->said);
    }
    if (lines > MOST_LINES) sn_str_printf(&text, "  and %d more\n", lines - MOST_LINES);
    end_all(w, &text);
}

static bool is_computing(const peer *p) {
    return p->said.program >= 0 && (p->said.instr[0] >= 0 || p->said.instr[1] >= 0);
}

// What the others say for a moment shows where they wait for the one that is gone.
static void check_gone(sn_watch *w, const peer *p) {
    if (w->gone_at == 0) w->gone_at = w->clock;
    if (w->clock - w->gone_at > 1e-3 * GRACE_MS) judge(w, p, "is gone: its process has ended");
}

// Whether the rank waits for others, and has for too long.
static bool check_alive(const sn_watch *w, const peer *p) {
    double still = w->clock - p->moved, silent = p == &w->peers[0] ? 0 : w->clock - p->heard;
    double used = p->said.cpu_seconds - p->cpu_moved, timeout = w->setup.timeout;
    sn_str what = {0};
    if (silent > timeout) {
        sn_str_printf(&what, "has not been heard of for %.0f s: its process is stopped or its machine lost", silent);
        judge(w, p, sn_str_text(&what));
    }
    bool waiting = waits(w, &p->said);
    if (is_computing(p) && !waiting && still > timeout && used < idle_share * still) {
        sn_str_printf(&what, "hangs: no progress for %.0f s, and no processor time used", still);
        judge(w, p, sn_str_text(&what));
    }
    return waiting && silent < 1 && still > timeout + bytes_under_way(w, &p->said) / slowest_link;
}

static void check_peers(sn_watch *w) {
    bool all_wait = true;
    if (w->clock < w->quiet_until) return;
    for (int i = 0; i < w->count; i++) {
        const peer *p = &w->peers[i];
        bool absent = p->left || p->gone || (p->socket < 0 && i > 0); // has ended, is lost, or never came
        if (p->gone && !p->left) check_gone(w, p);
        all_wait = !absent && check_alive(w, p) && all_wait;
    }
    if (!all_wait) return;
    sn_str what = {0};
    sn_str_printf(&what, "all ranks have waited for each other for %.0f s", w->setup.timeout);
    judge(w, NULL, sn_str_text(&what));
}

static void accept_peer(sn_watch *w) {
    int socket = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) return;
    struct timeval patience = {.tv_sec = 1};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    beat b;
    bool known = recv(socket, &b, sizeof b, MSG_WAITALL) == (ssize_t)sizeof b && b.token == w->token &&
                 b.word == HELLO && b.rank > 0 && b.rank < w->count && w->peers[b.rank].socket < 0;
    if (!known) {
        close(socket);
        return;
    }
    w->peers[b.rank].socket = socket;
    take_word(w, &w->peers[b.rank], &b);
}

static void *watch_all(void *user) {
    sn_watch *w = user;
    struct pollfd *polled = sn_alloc(((size_t)w->count + 1) * sizeof *polled);
    while (!atomic_load(&w->stop)) {
        for (int i = 0; i < w->count; i++) polled[i] = (struct pollfd){.fd = w->peers[i].socket, .events = POLLIN};
        polled[w->count] = (struct pollfd){.fd = w->listener, .events = POLLIN};
        poll(polled, (nfds_t)w->count + 1, TICK_MS);
        tick(w);
        if (polled[w->count].revents) accept_peer(w);
        for (int i = 1; i < w->count; i++) {
            if (polled[i].revents) listen_to(w, &w->peers[i]);
        }
        beat own = make_beat(w, BEAT);
        take_word(w, &w->peers[0], &own);
        check_peers(w);
        for (int i = 1; i < w->count; i++) say(w, w->peers[i].socket, BEAT);
        usleep(1000); // many ranks' words in one go
    }
    for (int i = 1; i < w->count; i++) say(w, w->peers[i].socket, BYE);
    sn_free(polled);
    return NULL;
}

// Rank 0 is lost: on each machine one of the others speaks, the one that gets a name that only one process can have.
static _Noreturn void tell_on_first(const sn_watch *w, const char *what) {
    int socket_of_name = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "sennit-%016" PRIx64, w->token);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(socket_of_name, (struct sockaddr *)&name, size) != 0) {
        usleep(2 * GRACE_MS * 1000);
        _exit(1);
    }
    sn_str text = {0};
    beat own = make_beat(w, BEAT);
    begin_report(&text, w, &w->peers[0].said, what);
    report_waiting(&text, w, &own);
    end_all(w, &text);
}

static void *watch_first(void *user) {
    sn_watch *w = user;
    peer *first = &w->peers[0];
    while (!atomic_load(&w->stop)) {
        struct pollfd polled = {.fd = first->socket, .events = POLLIN};
        poll(&polled, 1, TICK_MS);
        tick(w);
        if (polled.revents) listen_to(w, first);
        if (first->left) break;
        if (first->gone) {
            usleep(GRACE_MS * 1000); // to see where this rank comes to wait for it
            if (!atomic_load(&w->stop)) tell_on_first(w, "is gone: its process has ended");
            break;
        }
        if (w->clock - first->heard > w->setup.timeout) {
            sn_str what = {0};
            sn_str_printf(&what, "has not been heard of for %.0f s: its process is stopped or its machine lost",
                          w->clock - first->heard);
            tell_on_first(w, sn_str_text(&what));
        }
        say(w, first->socket, BEAT);
        usleep(TICK_MS * 1000 / 2);
    }
    say(w, first->socket, BYE);
    return NULL;
}

// Ranks of one machine need no port that other machines see.
static int listen_for(int ranks, meeting *m) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (local && atoi(local) == ranks) any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    if (listener >= 0 && bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 1024) == 0 &&
        getsockname(listener, (struct sockaddr *)&any, &size) == 0) {
        m->port = any.sin_port;
        return listener;
    }
    if (listener >= 0) close(listener);
    return -1;
}

static void list_addresses(meeting *m) {
    struct ifaddrs *list;
    int n = 0;
    if (getifaddrs(&list) != 0) return;
    for (struct ifaddrs *i = list; i && n < MOST_ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        uint32_t address = ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr;
        if (ntohl(address) >> 24 != 127) m->addresses[n++] = address;
    }
    freeifaddrs(list);
}

static int connect_to(uint32_t address, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {address}};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed = 0;
    socklen_t size = sizeof failed;
    if (s < 0) return -1;
    if (connect(s, (struct sockaddr *)&to, sizeof to) != 0 && errno == EINPROGRESS) {
        struct pollfd polled = {.fd = s, .events = POLLOUT};
        if (poll(&polled, 1, CONNECT_MS) == 1 && getsockopt(s, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && !failed)
            return s;
        close(s);
        return -1;
    }
    return s;
}

static int connect_first(const meeting *m) {
    char host[sizeof m->host] = {0};
    gethostname(host, sizeof host - 1);
    int s = -1;
    if (!m->port) return -1;
    if (!strcmp(host, m->host)) s = connect_to(htonl(INADDR_LOOPBACK), m->port);
    for (int i = 0; s < 0 && i < MOST_ADDRESSES && m->addresses[i]; i++) s = connect_to(m->addresses[i], m->port);
    return s;
}

// Rank 0 says where it listens; the others come.
static sn_status meet(sn_watch *w) {
    sn_comm *comm = w->setup.comm;
    meeting m = {0};
    if (comm->rank == 0) {
        if (getrandom(&m.token, sizeof m.token, 0) != sizeof m.token) m.token = (uint64_t)getpid();
        gethostname(m.host, sizeof m.host - 1);
        list_addresses(&m);
        w->listener = listen_for(comm->ranks, &m);
    }
    sn_collective c = {.kind = SN_INSTR_BROADCAST, .dtype = SN_U8, .count = sizeof m, .from = &m, .to = &m};
    SN_TRY(comm->vtable->run_all(comm, &c));
    w->token = m.token;
    if (comm->rank == 0) return SN_OK;
    w->peers[0].socket = connect_first(&m);
    if (w->peers[0].socket < 0) {
        fprintf(stderr,
                "warning[W0717]: rank %d cannot reach rank 0 over TCP: nobody notices when it hangs\n"
                "  help: does a firewall stand between their machines?\n",
                comm->rank);
        return SN_OK;
    }
    int yes = 1;
    setsockopt(w->peers[0].socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    say(w, w->peers[0].socket, HELLO);
    return SN_OK;
}

static void release(sn_watch *w) {
    for (int i = 0; i < w->count; i++)
        if (w->peers[i].socket >= 0) close(w->peers[i].socket);
    if (w->listener >= 0) close(w->listener);
    sn_free(w->peers);
    sn_free(w);
}

sn_status sn_watch_start(const sn_watch_setup *setup, sn_watch **out) {
    *out = NULL;
    if (setup->comm->ranks == 1 || setup->timeout <= 0) return SN_OK;
    sn_watch *w = sn_alloc(sizeof *w);
    *w = (sn_watch){.setup = *setup, .listener = -1, .last = sn_seconds()};
    w->count = setup->comm->rank == 0 ? setup->comm->ranks : 1;
    w->peers = sn_alloc((size_t)w->count * sizeof *w->peers);
    for (int i = 0; i < w->count; i++) w->peers[i] = (peer){.socket = -1, .said = {.rank = i}};
    sn_status status = meet(w);
    bool watches = setup->comm->rank == 0 ? w->listener >= 0 : w->peers[0].socket >= 0;
    if (status || !watches) {
        release(w);
        return status;
    }
    if (pthread_create(&w->thread, NULL, setup->comm->rank == 0 ? watch_all : watch_first, w) != 0) {
        release(w);
        return sn_status_errno("cannot start the thread that watches the other ranks");
    }
    *out = w;
    return SN_OK;
}

void sn_watch_stop(sn_watch *w) {
    if (!w) return;
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    release(w);
}

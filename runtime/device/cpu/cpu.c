// The CPU device: an arena of huge pages, and a function per kind of instruction.
#include "runtime/device/cpu/cpu.h"

#include "base/alloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <omp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct cpu {
    sn_device base;
    int threads;
    char *arena;
    size_t arena_bytes, mapped_bytes;
    void *library; // of the kernels
    sn_kernel_function *kernels;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void *scratch; // of the library calls, as large as the neediest
    size_t scratch_bytes;
} cpu;

typedef sn_status (*run_op)(cpu *device, const sn_device_op *op);

struct sn_device_op {
    run_op run;
    const sn_instr *instr;
    int64_t micro_batch;
    int threads; // one beside the computation, which has the rest
    sn_kernel_function kernel;
    sn_cpu_conv *conv;
    sn_attention_operands attention;
    void *at[3];  // operands of the rest
    void *args[]; // of a kernel
};

enum {
    HUGE_PAGE = 2 << 20,
    WORTH_THREADS = 32 << 10, // bytes: less is done before other threads have begun
};

// First touch of memory is slow in virtual machines (0.2 GB/s in 4 KiB pages, 11 in huge ones), so everything lies in
// one arena that is kept.
static sn_status map_pages(size_t bytes, char **out, size_t *mapped) {
    size_t room = bytes + HUGE_PAGE;
    char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return sn_status_errno("cannot allocate %zu MiB", bytes >> 20);
    size_t skip = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (skip) munmap(memory, skip);
    *out = memory + skip, *mapped = room - skip;
    madvise(*out, *mapped, MADV_HUGEPAGE); // only advice: works without
    return SN_OK;
}

static sn_status grow_scratch(cpu *c, size_t bytes) {
    if (bytes <= c->scratch_bytes) return SN_OK;
    if (c->scratch) munmap(c->scratch, c->scratch_bytes);
    c->scratch = NULL, c->scratch_bytes = 0;
    char *memory;
    SN_TRY(map_pages(bytes, &memory, &c->scratch_bytes));
    c->scratch = memory;
    return SN_OK;
}

static sn_status allocate(sn_device *device, int64_t bytes) {
    cpu *c = (cpu *)device;
    SN_CHECK(!c->arena);
    SN_TRY(map_pages((size_t)bytes, &c->arena, &c->mapped_bytes));
    c->arena_bytes = (size_t)bytes;
    return SN_OK;
}

static sn_status write_all(int fd, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno != EINTR) return sn_status_errno("cannot load the kernels");
        if (n > 0) done += (size_t)n;
    }
    return SN_OK;
}

// From memory: the shared object needs no file of its own.
static sn_status open_library(sn_blob kernels, void **out) {
    int fd = memfd_create("sennit-kernels", MFD_CLOEXEC);
    if (fd < 0) return sn_status_errno("cannot load the kernels");
    sn_status status = write_all(fd, kernels.data, kernels.bytes);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!status) {
        *out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!*out) status = sn_status_make("cannot load the kernels: %s", dlerror());
    }
    close(fd);
    return status;
}

static sn_status load(sn_device *device, sn_blob kernels, const sn_texts *symbols) {
    cpu *c = (cpu *)device;
    if (!symbols->count) return SN_OK;
    SN_TRY(open_library(kernels, &c->library));
    c->kernels = sn_alloc(symbols->count * sizeof *c->kernels);
    for (size_t i = 0; i < symbols->count; i++) {
        void *symbol = dlsym(c->library, symbols->items[i]);
        if (!symbol) return sn_status_make("the kernels lack '%s'", symbols->items[i]);
        memcpy(&c->kernels[i], &symbol, sizeof symbol);
    }
    return SN_OK;
}

// Always on all threads: OpenMP ends the threads of a pool that a smaller team leaves over.
static sn_status run_kernel(cpu *c, const sn_device_op *op) {
    int64_t grid = op->instr->kernel.grid;
    (void)c;
    if (op->threads == 1) {
        op->kernel(op->args, 0, grid);
        return SN_OK;
    }
#pragma omp parallel num_threads(op->threads)
    {
        int64_t t = omp_get_thread_num(), n = omp_get_num_threads();
        int64_t begin = grid * t / n, end = grid * (t + 1) / n;
        if (begin < end) op->kernel(op->args, begin, end);
    }
    return SN_OK;
}

static sn_status run_gemm(cpu *c, const sn_device_op *op) {
    (void)c;
    return sn_cpu_gemm(&op->instr->gemm, op->at[0], op->at[1], op->at[2], op->threads);
}

static sn_status run_conv(cpu *c, const sn_device_op *op) {
    return sn_cpu_conv_run(op->conv, c->stream, op->at[0], op->at[1], op->at[2], c->scratch);
}

static sn_status run_attention(cpu *c, const sn_device_op *op) {
    return sn_cpu_attention(&op->instr->attention, &op->attention, op->threads, c->scratch);
}

static sn_status run_attention_grad(cpu *c, const sn_device_op *op) {
    return sn_cpu_attention_grad(&op->instr->attention, &op->attention, op->threads, c->scratch);
}

static sn_status run_copy(cpu *c, const sn_device_op *op) {
    (void)c;
    sn_cpu_copy(&op->instr->copy, op->at[0], op->at[1], op->threads);
    return SN_OK;
}

static sn_status run_fill(cpu *c, const sn_device_op *op) {
    (void)c;
    sn_cpu_fill(&op->instr->fill, op->at[0], op->threads);
    return SN_OK;
}

static void *resolve(const cpu *c, const sn_schedule *s, const sn_device_op *op, sn_view view) {
    if (view.buffer < 0) return NULL;
    return c->arena + sn_buffer_offset(&s->buffers.items[view.buffer], op->micro_batch) + view.offset;
}

static sn_status prepare_kernel(cpu *c, const sn_schedule *s, sn_device_op *op) {
    const sn_do_kernel *k = &op->instr->kernel;
    op->kernel = c->kernels[k->symbol];
    int64_t bytes = 0;
    for (size_t i = 0; i < k->args.count; i++) {
        op->args[i] = resolve(c, s, op, k->args.items[i]);
        bytes += k->arg_bytes.items[i];
    }
    if (k->one_thread || k->grid <= 1 || bytes < WORTH_THREADS) op->threads = 1;
    return SN_OK;
}

static sn_status prepare_gemm(cpu *c, const sn_schedule *s, sn_device_op *op) {
    const sn_do_gemm *g = &op->instr->gemm;
    op->at[0] = resolve(c, s, op, g->a), op->at[1] = resolve(c, s, op, g->b), op->at[2] = resolve(c, s, op, g->c);
    return SN_OK;
}

static sn_status prepare_conv(cpu *c, const sn_schedule *s, sn_device_op *op) {
    const sn_do_conv *v = &op->instr->conv;
    op->at[0] = resolve(c, s, op, v->x), op->at[1] = resolve(c, s, op, v->w), op->at[2] = resolve(c, s, op, v->y);
    SN_TRY(sn_cpu_conv_create(c->engine, op->instr->kind, v, &op->conv));
    return grow_scratch(c, (size_t)sn_cpu_conv_scratch(op->conv));
}

static sn_status prepare_attention(cpu *c, const sn_schedule *s, sn_device_op *op) {
    const sn_do_attention *a = &op->instr->attention;
    op->attention = (sn_attention_operands){
        .q = resolve(c, s, op, a->q),
        .k = resolve(c, s, op, a->k),
        .v = resolve(c, s, op, a->v),
        .mask = resolve(c, s, op, a->mask),
        .o = resolve(c, s, op, a->o),
        .lse = resolve(c, s, op, a->lse),
        .grad_o = resolve(c, s, op, a->grad_o),
        .grad_q = resolve(c, s, op, a->grad_q),
        .grad_k = resolve(c, s, op, a->grad_k),
        .grad_v = resolve(c, s, op, a->grad_v),
    };
    return grow_scratch(c, (size_t)(sn_cpu_attention_scratch(a) * c->threads) * sizeof(float));
}

static sn_status prepare_copy(cpu *c, const sn_schedule *s, sn_device_op *op) {
    op->at[0] = resolve(c, s, op, op->instr->copy.from), op->at[1] = resolve(c, s, op, op->instr->copy.to);
    return SN_OK;
}

static sn_status prepare_fill(cpu *c, const sn_schedule *s, sn_device_op *op) {
    op->at[0] = resolve(c, s, op, op->instr->fill.to);
    return SN_OK;
}

static const struct {
    sn_status (*prepare)(cpu *device, const sn_schedule *schedule, sn_device_op *op);
    run_op run;
} kinds[SN_INSTR_COUNT] = {
    [SN_INSTR_KERNEL] = {prepare_kernel, run_kernel},
    [SN_INSTR_GEMM] = {prepare_gemm, run_gemm},
    [SN_INSTR_CONV] = {prepare_conv, run_conv},
    [SN_INSTR_CONV_INPUT_GRAD] = {prepare_conv, run_conv},
    [SN_INSTR_CONV_WEIGHT_GRAD] = {prepare_conv, run_conv},
    [SN_INSTR_ATTENTION] = {prepare_attention, run_attention},
    [SN_INSTR_ATTENTION_GRAD] = {prepare_attention, run_attention_grad},
    [SN_INSTR_COPY] = {prepare_copy, run_copy},
    [SN_INSTR_FILL] = {prepare_fill, run_fill},
};

static void release(sn_device *device, sn_device_op *op) {
    (void)device;
    if (op) sn_cpu_conv_destroy(op->conv);
    sn_free(op);
}

static sn_status prepare(sn_device *device, const sn_schedule *s, const sn_instr *instr, int64_t micro_batch,
                         sn_device_op **out) {
    if (!kinds[instr->kind].prepare) return sn_status_make("the CPU does not run %s", sn_instr_name(instr->kind));
    size_t args = instr->kind == SN_INSTR_KERNEL ? instr->kernel.args.count : 0;
    sn_device_op *op = sn_alloc(sizeof *op + args * sizeof *op->args);
    op->instr = instr, op->micro_batch = micro_batch, op->run = kinds[instr->kind].run;
    op->threads = instr->stream == SN_STREAM_COMPUTE ? ((cpu *)device)->threads : 1;
    sn_status status = kinds[instr->kind].prepare((cpu *)device, s, op);
    if (status) {
        release(device, op);
        return status;
    }
    *out = op;
    return SN_OK;
}

static sn_status launch(sn_device *device, const sn_device_op *op) {
    return op->run((cpu *)device, op);
}

static sn_status write_arena(sn_device *device, int64_t offset, const void *from, size_t bytes) {
    memcpy(((cpu *)device)->arena + offset, from, bytes);
    return SN_OK;
}

static sn_status read_arena(sn_device *device, int64_t offset, void *to, size_t bytes) {
    memcpy(to, ((cpu *)device)->arena + offset, bytes);
    return SN_OK;
}

static void *address(sn_device *device, int64_t offset) {
    cpu *c = (cpu *)device;
    return c->arena ? c->arena + offset : NULL;
}

static void destroy(sn_device *device) {
    cpu *c = (cpu *)device;
    if (c->stream) dnnl_stream_destroy(c->stream);
    if (c->engine) dnnl_engine_destroy(c->engine);
    if (c->library) dlclose(c->library);
    if (c->arena) munmap(c->arena, c->mapped_bytes);
    if (c->scratch) munmap(c->scratch, c->scratch_bytes);
    sn_free(c->kernels);
    sn_free(c);
}

static const sn_device_vtable vtable = {
    .destroy = destroy,
    .allocate = allocate,
    .load = load,
    .prepare = prepare,
    .release = release,
    .launch = launch,
    .write = write_arena,
    .read = read_arena,
    .address = address,
};

sn_status sn_device_cpu_create(int threads, sn_device **out) {
    SN_CHECK(threads >= 1);
    cpu *c = sn_alloc(sizeof *c);
    c->base.vtable = &vtable;
    c->threads = threads;
    omp_set_num_threads(threads); // what the library takes
    omp_set_dynamic(0);
    sn_status status = sn_cpu_library_status(dnnl_engine_create(&c->engine, dnnl_cpu, 0), "engine");
    if (!status)
        status = sn_cpu_library_status(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags), "stream");
    if (status) {
        destroy(&c->base);
        return status;
    }
    *out = &c->base;
    return SN_OK;
}

/*
 * A plugin for QEMU (TCG) that reports the instructions executed by each core.
 *
 * stream.rs documents and reads the stream that the plugin writes to its socket. Arguments:
 *
 *   socket=PATH         the socket
 *   stores=on           report stores
 *   accesses=on         report the address of each load and store with the executed instructions
 *   limit=N             interrupt the program after N instructions (a system waits there for a command)
 *   inputs=RULES        report each system call with its result and what the kernel wrote; one thread executes at a
 *                       time, and its turns are reported. RULES has 8 hexadecimal digits for each buffer that a
 *                       call fills: 3 for the number of the call, 1 for the argument with the address, and 4 for
 *                       the size: bytes; 8000 + the argument with the size, of which the call returns how much
 *                       was filled; 9000 + 10 * bytes + the argument with a number of structures; a000 + bytes of
 *                       each of the structures whose number is returned; b000 + the argument with the address of
 *                       the size; c000 + the argument with the number of struct iovec at the address; d000 for a
 *                       struct msghdr
 *   checkpoints=N       ask for a checkpoint after N events: interrupt the program before a block to which a branch
 *                       led, as long as it has one thread (programs with inputs= only)
 *   log=PATH            forward the emulator's log (systems only)
 *   state=on            take addresses and instruction sets from the executing core (AArch64 systems only)
 *   place=WORDS/OFFSET  find the code that starts with these eight bytes, and report the first execution
 *                       of the code at this offset from it (the core waits there for a command)
 *
 * An emulator of Linux programs also preloads this file (LD_PRELOAD), so that it can serialise the
 * threads that enter the emulator's GDB server; see enter_gdb().
 *
 * Independent of trace protocols, snapshots, and what GDB's packets mean.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The used part of the plugin interface of QEMU 7.2 (version 1). */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    const char *target_name;
    struct { int min, cur; } version;
    _Bool system_emulation;
    union { struct { int smp_vcpus, max_vcpus; } system; };
} qemu_info_t;
enum { CB_NO_REGS = 0, INLINE_ADD_U64 = 0, MEM_W = 2, MEM_RW = 3 };
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned));
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned));
void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(
    struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_insn_exec_inline(
    struct qemu_plugin_insn *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_mem_cb(
    struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
unsigned qemu_plugin_mem_size_shift(uint32_t);
_Bool qemu_plugin_mem_is_store(uint32_t);
void qemu_plugin_register_vcpu_syscall_cb(
    qemu_plugin_id_t,
    void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
             uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t, int64_t));
void qemu_plugin_uninstall(qemu_plugin_id_t, void (*)(qemu_plugin_id_t));
void qemu_plugin_register_atexit_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

/* Kinds of chunks, events and commands; see stream.rs. */
enum { BLOCKS = 1, EVENTS, BEGIN, STOPPED, END, HANDLER, LOG, MASK, LIMIT, STORE, EXIT, CHILD, PLACE, FAILED, MEMORY, CALL, CHECKPOINT };
enum { LEFT = 0x80000000u, ACCESS = 0xa0000000u, ACCESS_STORES = 0x10000000u, EXCEPTION = 0xc0000000u, TURN = 0xd0000000u, TIME = 0xe0000000u, CONTEXT = 0xf0000000u };
enum { SET_UNKNOWN, SET_A64, SET_A32, SET_T32 };
enum { NOTE = 1, FREEZE, RESUME, FLUSH, LEAVE, TRAP, ASK };
enum { RUNNING, IN_SYSCALL, FROZEN, CUT, ENDING, WAITING };

/* QEMU gives a new thread a higher index than all threads that are alive. */
#define MAX_CORES (64u << 10)
#define WORDS (32u << 10)
#define DEFINITIONS (64u << 10)
#define MAX_DISASSEMBLED 4

struct chunk {
    uint32_t kind, core, bytes, extra;
};

/* A translated block. */
struct block {
    uint32_t id, count;
    uint32_t complete;  /* the progress once all its instructions were started */
    uint64_t pc;
    uint64_t last;      /* address of its last instruction */
    uint32_t last_size;
    /* With state=on: */
    uint32_t set;       /* instruction set; unknown before the first execution */
    struct block *next; /* the same code at another address */
    uint8_t *code;      /* the size of each instruction, then their bytes */
    uint32_t bytes;
    uint8_t context;    /* 1 + the register that the last instruction writes to CONTEXTIDR */
    uint8_t place;      /* the code whose first execution is reported */
    /* With checkpoints=N: */
    uint8_t branches;   /* its last instruction is a branch */
};

/*
 * The start of the emulator's state of an Arm core (CPUArchState of QEMU 7.2), which generated code
 * has in a fixed register of the host. Several virtual addresses of one page of code share its
 * translation, so the address of a block is known only from here. It is valid when a block starts.
 */
struct state {
    uint32_t r[16];
    uint64_t x[32];
    uint64_t pc;
    uint32_t pstate;
    uint8_t aarch64, thumb;
};

struct vcpu {
    uint32_t core, tid;
    uint32_t count;     /* words filled */
    uint32_t expected;  /* instructions of the last block */
    uint64_t complete;  /* the progress once all of them were started */
    uint64_t progress;  /* started ones among these, as noted by note_progress() */
    uint64_t pc;        /* address at which it is frozen or cut */
    struct block *block; /* the last executed block */
    int left;           /* not all of its instructions were started */
    int state, live;
    int cut;            /* execution is no longer recorded */
    uint32_t untimed;   /* instructions since the last reported time */
    int called;         /* made a system call since then */
    int ends;           /* is in the system call that ends its thread */
    struct vcpu *ending; /* the next one in the list of those that were in this call */
    int listed;         /* is in this list */
    uint32_t *words;
    int64_t call;       /* the system call that it is in, its instruction and arguments */
    uint64_t call_pc, arguments[6];
    uint32_t access;    /* 1 + the place of the last access among the words, if the block has one */
    /* With inputs=, if there are several threads: */
    uint64_t ticket;    /* its place among those that wait for their turn; 0: it does not wait */
    pthread_cond_t has_turn;
    uint64_t turn;      /* the number of its last turn */
    uint32_t blocks;    /* blocks executed in this turn */
    volatile int sends; /* may wait for the reader */
};

struct command {
    uint32_t kind, tid, a, wait_ms;
    uint64_t value;
};

static struct vcpu *vcpus[MAX_CORES];
static unsigned vcpu_count;
static uint32_t cores;
static int one_thread = 1; /* one host thread has executed all cores so far */
static int in_system;
static int is_arm;
static struct vcpu *current;
static uint64_t progress; /* started instructions of the current block; if one_thread */
static struct vcpu *sole; /* the core that executes everything, and whose blocks are only listed */
static uint64_t limit = UINT64_MAX, instructions;

static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t definitions[DEFINITIONS];
static size_t defined;
static uint32_t block_id;
static int64_t guest_base;
static int have_guest_base;
static int out = -1;
static volatile int dead;
static volatile int halting; /* bits: */
enum { FREEZING = 1, EXITING = 2, IN_GDB = 4, ASKING = 8 };
enum { HOLDING = FREEZING | EXITING };
static struct vcpu *exiting; /* the thread that exits the program */
static volatile int may_leave;
static int child; /* this is a fork of the recorded process */
static int stores; /* stores are reported */
static int use_state; /* addresses come from the state of the core */
static uint64_t place_words, place_offset; /* see the arguments */
static uintptr_t place_at; /* where this is in the emulator's memory; 0: not known yet */
static int place_wanted;
static int inputs; /* system calls are reported */
#define MOST_FILLS 4
static struct { uint8_t argument, known; uint16_t size; } fills[1024][MOST_FILLS]; /* by number; see the arguments */
static uint64_t heap_end; /* the end of the heap; 0: not known yet */
static uint64_t until_checkpoint; /* events until a checkpoint is asked for; 0: none is */
static int accesses; /* addresses of loads and stores are reported with the events */
static uint64_t clock_now; /* counted instructions of all threads */
static volatile int held; /* waiting at the limit of instructions */
static struct vcpu *ending; /* those that were in the system call that ends a thread */
static __thread struct vcpu *own; /* the core of this host thread, once it has executed a block */
static __thread int in_gdb; /* this host thread has the GDB server to itself */
static int gdb_users; /* 1: a thread has it */
static volatile int in_turns; /* one thread executes at a time */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vcpu *volatile turn; /* the thread whose turn it is; NULL: none of them executes */
static struct vcpu *last_turn; /* the thread whose turn it was last */
static uint64_t turns, tickets; /* turns and tickets so far */
static volatile unsigned waiting; /* threads that wait for their turn */
static pthread_key_t turn_ends; /* ends the turn of a thread that is gone */

static void put(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    while (length > 0 && !dead) {
        ssize_t n = send(out, at, length, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EINTR)
                dead = 1;
            continue;
        }
        at += n;
        length -= n;
    }
}

static void put_chunk(uint32_t kind, uint32_t core, uint32_t extra, const void *bytes, size_t length)
{
    struct chunk chunk = { kind, core, length, extra };
    put(&chunk, sizeof chunk);
    put(bytes, length);
}

static void put_definitions(void)
{
    if (defined > 0)
        put_chunk(BLOCKS, 0, 0, definitions, defined);
    defined = 0;
}

static void flush_locked(struct vcpu *v)
{
    put_definitions();
    if (v->count > 0)
        put_chunk(EVENTS, v->core, v->tid, v->words, v->count * 4);
    if (until_checkpoint > v->count) {
        until_checkpoint -= v->count;
    } else if (until_checkpoint > 0) {
        until_checkpoint = 0;
        __atomic_fetch_or(&halting, ASKING, __ATOMIC_SEQ_CST);
    }
    v->count = 0;
    v->access = 0;
}

static void flush(struct vcpu *v)
{
    v->sends = 1;
    pthread_mutex_lock(&out_lock);
    flush_locked(v);
    pthread_mutex_unlock(&out_lock);
    v->sends = 0;
}

/* Reports if the last block was left early. room() has reserved space for this. */
static inline void settle(struct vcpu *v)
{
    uint64_t begun = one_thread ? progress : v->progress;
    if (v->expected)
        v->left = begun != v->complete;
    if (begun != v->complete) {
        v->words[v->count++] = LEFT | (uint32_t)begun;
        if (begun < v->expected)
            __atomic_fetch_sub(&instructions, v->expected - begun, __ATOMIC_RELAXED);
    }
    v->expected = 0;
    v->complete = 0;
    v->progress = 0;
    progress = 0;
}

/* Reserves space for the events of one step. */
static inline void room(struct vcpu *v)
{
    if (v->count > WORDS - 16)
        flush(v);
}

/*
 * Waits until no other thread is in the emulator's GDB server, and keeps others out of it.
 *
 * A signal stops one thread, which then handles GDB's packets; the others run. The server of QEMU 7.2
 * has one state and one connection, without a lock: threads that are stopped at the same time take
 * bytes of each other's packets. So a thread has the server to itself from its stop until it executes a
 * block again, however it was resumed.
 */
static void enter_gdb(void)
{
    if (in_gdb || out < 0)
        return;
    int before = own ? __atomic_exchange_n(&own->state, WAITING, __ATOMIC_SEQ_CST) : RUNNING;
    int none = 0;
    while (!__atomic_compare_exchange_n(
               &gdb_users, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
           && !dead) {
        none = 0;
        usleep(200);
    }
    if (own)
        __atomic_store_n(&own->state, before, __ATOMIC_SEQ_CST);
    if (dead)
        return;
    in_gdb = 1;
    __atomic_fetch_or(&halting, IN_GDB, __ATOMIC_SEQ_CST);
}

static void leave_gdb(void)
{
    in_gdb = 0;
    __atomic_fetch_and(&halting, ~IN_GDB, __ATOMIC_SEQ_CST);
    __atomic_store_n(&gdb_users, 0, __ATOMIC_SEQ_CST);
}

/*
 * When a signal stops a thread, the emulator first calls this function of GLib. As this file is preloaded,
 * its definition replaces GLib's.
 */
void g_string_vprintf(void *, const char *, va_list);
EXPORT void g_string_printf(void *string, const char *format, ...)
{
    if (!in_system && !child && !strncmp(format, "T%02xthread:", 12))
        enter_gdb();
    va_list arguments;
    va_start(arguments, format);
    g_string_vprintf(string, format, arguments);
    va_end(arguments);
}

/* Keeps LD_PRELOAD from the recorded program: it gets the variable that the emulator would have had. */
__attribute__((constructor)) static void hide_from_program(void)
{
    const char *value = getenv("ARMSNAP_LD_PRELOAD");
    if (!value)
        return;
    if (*value)
        setenv("LD_PRELOAD", value, 1);
    else
        unsetenv("LD_PRELOAD");
    unsetenv("ARMSNAP_LD_PRELOAD");
}

/* Freezes a core at the start of a block. Returns whether it is cut. */
static int halt(struct vcpu *v, uint64_t pc)
{
    if (!v->cut) {
        v->pc = pc;
        if (halting & EXITING) {
            room(v);
            settle(v);
            v->cut = 1;
        }
    }
    __atomic_store_n(&v->state, FROZEN, __ATOMIC_SEQ_CST);
    while (halting & FREEZING && !dead)
        usleep(500);
    __atomic_store_n(&v->state, RUNNING, __ATOMIC_SEQ_CST);
    return v->cut;
}

/* Waits until the reader resumes the core. */
static void hold(struct vcpu *v, uint32_t kind, const void *bytes, size_t length)
{
    held = 1;
    pthread_mutex_lock(&out_lock);
    put_chunk(kind, v->core, 0, bytes, length);
    pthread_mutex_unlock(&out_lock);
    while (held && !dead)
        usleep(500);
}

/*
 * Turns. The order in which threads access memory is known because only one of them executes at a time, from its
 * turn to a system call, or until it has executed many blocks and another one waits. What the kernel writes in a
 * call is visible to others before the call returns; calls that change mappings keep the turn.
 *
 * The emulator itself sometimes makes a thread wait until no other one executes code, where those that wait here
 * count as executing. So a thread that sleeps anywhere else loses its turn to the first one in the queue, which then
 * gets out of the way. It waits for its next turn before it executes another block.
 */
#define BLOCKS_OF_TURN (16u << 10)
#define POLL_TURN_US 2000

/* The thread that waits longest; turn_lock is held. */
static struct vcpu *first_waiting(void)
{
    struct vcpu *first = NULL;
    for (unsigned i = 0; waiting > 0 && i < vcpu_count; i++) {
        struct vcpu *v = vcpus[i];
        if (v && v->ticket && (!first || v->ticket < first->ticket))
            first = v;
    }
    return first;
}

static void leave_turn(struct vcpu *v)
{
    pthread_mutex_lock(&turn_lock);
    if (turn == v) {
        turn = first_waiting();
        if (turn)
            pthread_cond_signal(&turn->has_turn);
    }
    pthread_mutex_unlock(&turn_lock);
}

/* Returns whether a thread sleeps, according to the host's kernel, and not for this plugin. */
static int sleeps(const struct vcpu *v)
{
    char path[64], text[512];
    if (halting & HOLDING || v->sends || v->tid == 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/task/%u/stat", v->tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

/* Waits until it is the turn of a thread, which is in a system call or before the block at `pc`. */
static void take_turn(struct vcpu *v, int in_call, uint64_t pc)
{
    int new = 0, asleep = 0;
    v->pc = in_call ? v->pc : pc;
    __atomic_store_n(&v->state, in_call ? IN_SYSCALL : FROZEN, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&turn_lock);
    if (turn && turn != v) {
        v->ticket = ++tickets;
        waiting++;
        while (turn != v && !dead) {
            /* The emulator ends only once no thread executes code. */
            if (may_leave && !in_call)
                break;
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += POLL_TURN_US * 1000;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&v->has_turn, &turn_lock, &until);
            if (turn == v || first_waiting() != v)
                continue;
            asleep = !turn || sleeps(turn) ? asleep + 1 : 0;
            if (!turn || asleep > 3)
                turn = v;
        }
        waiting--;
        v->ticket = 0;
        if (turn != v && may_leave && !in_call) {
            pthread_mutex_unlock(&turn_lock);
            v->cut = 1;
            __atomic_store_n(&v->state, RUNNING, __ATOMIC_SEQ_CST);
            return;
        }
    }
    turn = v;
    v->blocks = 0;
    if (last_turn != v) {
        last_turn = v;
        v->turn = ++turns;
        new = 1;
    }
    pthread_mutex_unlock(&turn_lock);
    do {
        __atomic_store_n(&v->state, in_call ? IN_SYSCALL : FROZEN, __ATOMIC_SEQ_CST);
        while (halting & FREEZING && !dead && !in_gdb)
            usleep(500);
        __atomic_store_n(&v->state, RUNNING, __ATOMIC_SEQ_CST);
    } while (halting & FREEZING && !dead && !in_gdb);
    if (new && !v->cut) {
        room(v);
        settle(v);
        v->words[v->count++] = TURN;
        v->words[v->count++] = (uint32_t)v->turn;
        v->words[v->count++] = (uint32_t)(v->turn >> 32);
    }
}

/* Ends the turn of a thread when it is gone. */
static void thread_is_gone(void *v)
{
    if (in_turns)
        leave_turn(v);
}

/* Called in the system call that starts the second thread. */
static void begin_turns(void)
{
    if (in_turns || pthread_key_create(&turn_ends, thread_is_gone) != 0)
        return;
    in_turns = 1;
}

/* Returns whether a thread keeps its turn in a system call. */
static int keeps_turn(int64_t number)
{
    if (is_arm)
        /* clone; brk; mmap2, munmap, mremap; mprotect; madvise */
        return number == 120 || number == 45 || number == 192 || number == 91 || number == 163 || number == 125
            || number == 220;
    return number == 220 || number == 214 || number == 222 || number == 215 || number == 216 || number == 226
        || number == 233;
}

static void count_towards_limit(struct vcpu *v, struct block *block)
{
    uint64_t before = __atomic_fetch_add(&instructions, block->count, __ATOMIC_RELAXED);
    /* The limit is reached once: instructions of blocks that were left early are taken back. */
    if (before + block->count < limit
        || __atomic_exchange_n(&limit, UINT64_MAX, __ATOMIC_RELAXED) == UINT64_MAX)
        return;
    if (in_system) {
        hold(v, LIMIT, NULL, 0);
        return;
    }
    pthread_mutex_lock(&out_lock);
    put_chunk(LIMIT, v->core, 0, NULL, 0);
    pthread_mutex_unlock(&out_lock);
    syscall(SYS_tgkill, getpid(), v->tid, SIGINT);
}

/*
 * Asks for a checkpoint. The emulator's GDB server stops the program before the next block. A program that
 * blocks or ignores the signal could notice it.
 */
static void ask_for_checkpoint(struct vcpu *v)
{
    sigset_t blocked;
    struct sigaction action;
    __atomic_fetch_and(&halting, ~ASKING, __ATOMIC_SEQ_CST);
    if (!one_thread || child || v->cut)
        return;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0 || sigismember(&blocked, SIGINT)
        || sigaction(SIGINT, NULL, &action) != 0 || action.sa_handler == SIG_IGN) {
        pthread_mutex_lock(&out_lock);
        until_checkpoint = WORDS;
        pthread_mutex_unlock(&out_lock);
        return;
    }
    pthread_mutex_lock(&out_lock);
    put_chunk(CHECKPOINT, v->core, 0, NULL, 0);
    pthread_mutex_unlock(&out_lock);
    syscall(SYS_tgkill, getpid(), v->tid, SIGINT);
}

/*
 * The emulator writes its log to a file that is mapped here. Checking one byte before every block
 * detects new text, which is sent between the blocks that it was written between. The file is kept
 * one window larger than its contents.
 */
#define WINDOW ((size_t)4 << 20)
static const char *log_path;
static int log_file = -1;
static volatile char *log_text;
static uint64_t log_begin; /* offset of the mapping in the file */
static size_t log_at;

static void map_log(void)
{
    if (log_text)
        munmap((void *)log_text, 2 * WINDOW);
    void *map = MAP_FAILED;
    if (ftruncate(log_file, log_begin + 2 * WINDOW) == 0)
        map = mmap(NULL, 2 * WINDOW, PROT_READ, MAP_SHARED, log_file, log_begin);
    log_text = map == MAP_FAILED ? NULL : map;
    log_at = 0;
}

/* The emulator has opened the log when its first core starts. */
static void open_log(void)
{
    if (!log_path || log_file >= 0)
        return;
    log_file = open(log_path, O_RDWR | O_CLOEXEC);
    if (log_file >= 0)
        map_log();
    if (!log_text)
        fprintf(stderr, "cannot read the log %s: %s\n", log_path, strerror(errno));
}

static void put_log_locked(void)
{
    while (log_text && log_text[log_at]) {
        size_t length = 0;
        while (log_at + length < 2 * WINDOW && length < DEFINITIONS && log_text[log_at + length])
            length++;
        put_chunk(LOG, 0, 0, (const char *)log_text + log_at, length);
        log_at += length;
        if (log_at >= WINDOW) {
            size_t rest = log_at - WINDOW;
            fallocate(log_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, log_begin, WINDOW);
            log_begin += WINDOW;
            map_log();
            log_at = rest;
        }
    }
}

static void put_log(struct vcpu *v)
{
    room(v);
    settle(v);
    pthread_mutex_lock(&out_lock);
    flush_locked(v);
    put_log_locked();
    pthread_mutex_unlock(&out_lock);
}

/*
 * Reports the time of a thread: each thread adds its instructions to a common clock. Times are also
 * reported after system calls, so whatever a thread does after waiting for another one's call has a
 * later time.
 */
#define TIME_EVERY 1024
static inline void report_time(struct vcpu *v, uint32_t count)
{
    v->untimed += count;
    if (v->untimed < TIME_EVERY && !v->called)
        return;
    uint64_t now = __atomic_fetch_add(&clock_now, v->untimed, __ATOMIC_SEQ_CST);
    v->words[v->count++] = TIME;
    v->words[v->count++] = (uint32_t)now;
    v->words[v->count++] = (uint32_t)(now >> 32);
    v->untimed = 0;
    v->called = 0;
}

static inline void list(struct vcpu *v, struct block *block)
{
    v->expected = block->count;
    v->complete = block->complete;
    v->block = block;
    v->words[v->count++] = block->id;
    v->access = 0;
}

static inline void enter(struct vcpu *v, struct block *block, const struct state *state)
{
    if (__builtin_expect(halting, 0)) {
        /* The thread that exits keeps it to the end. */
        if (in_gdb && v != exiting)
            leave_gdb();
        if (halting & HOLDING && halt(v, block->pc))
            return;
        if (halting & ASKING && block->branches)
            ask_for_checkpoint(v);
    }
    if (__builtin_expect(v != current, 0)) {
        if (v->tid == 0) {
            v->tid = syscall(SYS_gettid);
            own = in_system ? NULL : v;
        }
        if (one_thread) {
            if (current) {
                room(current);
                settle(current);
                flush(current);
            }
            current = v;
            sole = !log_path && limit == UINT64_MAX && !use_state ? v : NULL;
        }
    }
    if (__builtin_expect(log_text && log_text[log_at], 0))
        put_log(v);
    room(v);
    settle(v);
    if (in_turns) {
        if (turn == v && waiting > 0 && ++v->blocks > BLOCKS_OF_TURN)
            leave_turn(v);
        if (turn != v)
            take_turn(v, 0, block->pc);
        if (v->cut)
            return;
    }
    if (state && v->block && __builtin_expect(v->block->context && !v->left, 0)) {
        unsigned written = v->block->context - 1;
        v->words[v->count++] = CONTEXT;
        v->words[v->count++] = written < 31 ? (uint32_t)state->x[written] : 0;
    }
    list(v, block);
    if (!one_thread)
        report_time(v, block->count);
    if (__builtin_expect(limit != UINT64_MAX, 0))
        count_towards_limit(v, block);
}

static void block_executed(unsigned vcpu, void *data)
{
    struct vcpu *v = vcpus[vcpu];
    /* The usual case, in which enter() does the same. */
    if (__builtin_expect(v == sole && !halting && progress == v->complete && v->count < WORDS - 16, 1)) {
        list(v, data);
        progress = 0;
        return;
    }
    enter(v, data, NULL);
}

static void define(const void *bytes, size_t length)
{
    memcpy(definitions + defined, bytes, length);
    defined += length;
}

/* Starts the definition of a block with this number of bytes of code and text. The lock is held. */
static void define_head(struct block *block, size_t bytes, uint32_t text)
{
    size_t most = 24 + block->count + bytes + text;
    if (defined + most > DEFINITIONS)
        put_definitions();
    block->id = block_id++;
    uint32_t numbers[4] = { block->id, block->count, text, block->set };
    define(numbers, sizeof numbers);
    define(&block->pc, sizeof block->pc);
}

static void define_from_state(struct block *block, uint32_t set, uint64_t pc)
{
    block->last += pc - block->pc;
    block->pc = pc;
    block->set = set;
    pthread_mutex_lock(&out_lock);
    define_head(block, block->bytes, 0);
    define(block->code, block->count + block->bytes);
    pthread_mutex_unlock(&out_lock);
}

static void fail(const char *text)
{
    pthread_mutex_lock(&out_lock);
    put_chunk(FAILED, 0, 0, text, strlen(text));
    pthread_mutex_unlock(&out_lock);
    dead = 1;
}

/* Returns the block of a translation for a core in this state. */
static struct block *block_here(struct block *block, const struct state *state, struct vcpu *v)
{
    uint64_t pc = state->aarch64 ? state->pc : state->r[15];
    if (__builtin_expect(block->pc == pc && block->set, 1))
        return block;
    uint32_t set = state->aarch64 ? SET_A64 : state->thumb ? SET_T32 : SET_A32;
    static int checked;
    if (((block->pc ^ pc) & 0xfff) || state->aarch64 > 1 || state->thumb > 1
        || (!checked && block->pc != pc)) {
        fail("the state of the emulator's cores is not as in QEMU 7.2: its position differs");
        return NULL;
    }
    checked = 1;
    if (!block->set) {
        define_from_state(block, set, pc);
    } else {
        struct block *other = block->next;
        while (other && other->pc != pc)
            other = other->next;
        if (!other) {
            other = malloc(sizeof *other);
            if (!other) {
                fail("out of memory");
                return NULL;
            }
            *other = *block;
            block->next = other;
            define_from_state(other, set, pc);
        }
        block = other;
    }
    if (__builtin_expect(block->place && place_wanted, 0)) {
        place_wanted = 0;
        hold(v, PLACE, &block->pc, sizeof block->pc);
    }
    return block;
}

__attribute__((used)) static void block_executed_in_state(
    unsigned vcpu, struct block *block, const struct state *state)
{
    struct vcpu *v = vcpus[vcpu];
    if (__builtin_expect(dead, 0) || !(block = block_here(block, state, v)))
        return;
    enter(v, block, state);
}

/* Passes the register that holds the core's state in generated code (TCG_AREG0) as the third argument. */
#if defined(__x86_64__)
#define HAVE_STATE 1
__asm__(".text\n.type with_state, @function\nwith_state:\n\tmov %rbp, %rdx\n\tjmp block_executed_in_state\n");
#elif defined(__aarch64__)
#define HAVE_STATE 1
__asm__(".text\n.type with_state, %function\nwith_state:\n\tmov x2, x19\n\tb block_executed_in_state\n");
#else
#define HAVE_STATE 0
#endif
#if HAVE_STATE
void with_state(unsigned, void *) __attribute__((visibility("hidden")));
#else
static void with_state(unsigned vcpu, void *block) {}
#endif

static void instruction_executed(unsigned vcpu, void *number)
{
    vcpus[vcpu]->progress = (uintptr_t)number;
}

/*
 * Reports the address of a load or store of the instruction that was started last. Adjacent ones of
 * an instruction are reported as one. An instruction that faults has reported its earlier accesses.
 */
static void accessed(unsigned vcpu, uint32_t info, uint64_t address, void *unused)
{
    struct vcpu *v = vcpus[vcpu];
    uint64_t begun = one_thread ? progress : v->progress;
    uint32_t bytes = 1u << qemu_plugin_mem_size_shift(info);
    if (v->cut || begun == 0 || begun > 4096 || v->expected == 0)
        return;
    uint32_t head = ACCESS | (uint32_t)(begun - 1) << 16;
    if (qemu_plugin_mem_is_store(info))
        head |= ACCESS_STORES;
    if (v->access) {
        uint32_t *last = v->words + v->access - 1;
        uint32_t before = *last & 0xffff;
        if ((*last & ~0xffffu) == head && before + bytes <= 0xffff
            && (last[1] | (uint64_t)last[2] << 32) + before == address) {
            *last += bytes;
            return;
        }
    }
    room(v);
    v->access = v->count + 1;
    v->words[v->count++] = head | bytes;
    v->words[v->count++] = (uint32_t)address;
    v->words[v->count++] = (uint32_t)(address >> 32);
}

/* Reports a store; used only while the program is single-stepped. */
static void stored(unsigned vcpu, uint32_t info, uint64_t address, void *unused)
{
    /* This is called for loads too. */
    if (!qemu_plugin_mem_is_store(info))
        return;
    pthread_mutex_lock(&out_lock);
    put_chunk(STORE, vcpus[vcpu]->core, 1u << qemu_plugin_mem_size_shift(info), &address, 8);
    pthread_mutex_unlock(&out_lock);
}

/* Disassembles code, to distinguish A32 from T32 instructions of the same sizes. */
static size_t disassemble(struct qemu_plugin_tb *tb, size_t count, char *text, size_t room_left)
{
    size_t length = 0;
    for (size_t i = 0; i < count && i < MAX_DISASSEMBLED; i++) {
        char *line = qemu_plugin_insn_disas(qemu_plugin_tb_get_insn(tb, i));
        if (!line)
            break;
        size_t n = strlen(line);
        if (length + n + 1 > room_left) {
            free(line);
            break;
        }
        memcpy(text + length, line, n);
        text[length + n] = '\n';
        length += n + 1;
        free(line);
    }
    return length;
}

/* Returns the number of the register that an A64 instruction writes to CONTEXTIDR_EL1, _EL12 or _EL2, plus 1; or 0. */
static uint8_t writes_context(struct qemu_plugin_insn *insn)
{
    uint32_t word;
    if (qemu_plugin_insn_size(insn) != 4)
        return 0;
    memcpy(&word, qemu_plugin_insn_data(insn), 4);
    uint32_t system = word & ~0x1fu;
    int writes = system == 0xd518d020 || system == 0xd51dd020 || system == 0xd51cd020;
    return writes ? 1 + (word & 31) : 0;
}

/* Keeps the code of a block until its address and instruction set are known. */
static int keep(struct block *block, struct qemu_plugin_tb *tb)
{
    size_t bytes = 0;
    for (size_t i = 0; i < block->count; i++)
        bytes += qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    block->bytes = bytes;
    block->code = malloc(block->count + bytes);
    if (!block->code)
        return 0;
    uint8_t *at = block->code + block->count;
    for (size_t i = 0; i < block->count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        size_t size = qemu_plugin_insn_size(insn);
        block->code[i] = size;
        memcpy(at, qemu_plugin_insn_data(insn), size);
        at += size;
    }
    block->context = writes_context(qemu_plugin_tb_get_insn(tb, block->count - 1));
    if (place_wanted) {
        uintptr_t host = (uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
        if (!place_at && host && bytes >= 8
            && !memcmp(block->code + block->count, &place_words, 8))
            place_at = host + place_offset;
        block->place = place_at && host == place_at;
    }
    return 1;
}

/*
 * Returns whether execution always continues at the next instruction after an A64 instruction that is not
 * the last one of its block: data processing, except for authentication of addresses (Arm ARM DDI 0487,
 * C4.1).
 */
static int completes(struct qemu_plugin_insn *insn)
{
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(insn), 4);
    uint32_t group = word >> 25 & 15;
    int immediate = (group & 14) == 8, registers = (group & 7) == 5, vectors = (group & 7) == 7;
    int authenticates = (word & 0xffff0000) == 0xdac10000;
    return immediate || vectors || (registers && !authenticates);
}

/* Makes generated code note that the instructions of the current block up to this number were started. */
static void note_started(struct qemu_plugin_insn *insn, uint32_t before, uint32_t number)
{
    if (one_thread)
        qemu_plugin_register_vcpu_insn_exec_inline(insn, INLINE_ADD_U64, &progress, number - before);
    else
        qemu_plugin_register_vcpu_insn_exec_cb(
            insn, instruction_executed, CB_NO_REGS, (void *)(uintptr_t)number);
}

/*
 * Makes generated code note each instruction that may leave the block, and that the last one of these did
 * not.
 */
static void note_progress(struct block *block, struct qemu_plugin_tb *tb)
{
    int all = in_system || is_arm;
    uint32_t started = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        if (all || !completes(insn)) {
            note_started(insn, started, i + 1);
            started = i + 1;
        }
    }
    if (started > 0 && started < block->count) {
        note_started(qemu_plugin_tb_get_insn(tb, started), started, block->count);
        started = block->count;
    }
    block->complete = started;
}

/* Returns whether an instruction is a branch, and not a system call in any instruction set. */
static int branches(struct qemu_plugin_insn *insn)
{
    uint32_t word = 0;
    size_t size = qemu_plugin_insn_size(insn);
    if (size != 2 && size != 4)
        return 0;
    memcpy(&word, qemu_plugin_insn_data(insn), size);
    if (!is_arm) /* B and BL; B.cond; CBZ and TBZ; BR, BLR and RET */
        return (word & 0x7c000000) == 0x14000000 || (word & 0xfe000000) == 0x54000000
            || (word & 0x7c000000) == 0x34000000 || (word & 0xfe000000) == 0xd6000000;
    if (size == 2) /* B; CBZ; BX and BLX */
        return ((word & 0xf000) == 0xd000 && (word & 0x0e00) != 0x0e00) || (word & 0xf800) == 0xe000
            || (word & 0xf500) == 0xb100 || (word & 0xff00) == 0x4700;
    /* Whether it is A32 or T32 is not known. A32: B and BL; BX and BLX. */
    int wide = (word & 0x0e000000) == 0x0a000000 || (word & 0x0fffffd0) == 0x012fff10;
    /* T32: BL, BLX and B; the other one is SVC in A32. */
    int narrow = (word & 0x8000f800) == 0x8000f000 && (word & 0x50000000) != 0 && (word & 0x0f000000) != 0x0f000000;
    return wide || narrow;
}

static void block_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t count = qemu_plugin_tb_n_insns(tb);
    uint64_t address = qemu_plugin_tb_vaddr(tb);
    struct block *block = calloc(1, sizeof *block);
    if (dead || !block || count == 0 || count > 4096) {
        free(block);
        return;
    }
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
    block->count = count;
    block->pc = address;
    block->last = qemu_plugin_insn_vaddr(last);
    block->last_size = qemu_plugin_insn_size(last);
    block->branches = branches(last);
    if (!have_guest_base && !in_system) {
        void *host = qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
        guest_base = (int64_t)((uintptr_t)host - address);
        have_guest_base = 1;
    }
    if (use_state) {
        if (!keep(block, tb)) {
            free(block);
            fail("out of memory");
            return;
        }
        qemu_plugin_register_vcpu_tb_exec_cb(tb, with_state, CB_NO_REGS, block);
    } else {
        int same_sizes = is_arm && address % 4 == 0;
        size_t bytes = 0;
        for (size_t i = 0; i < count; i++) {
            size_t size = qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
            same_sizes &= size == 4;
            bytes += size;
        }
        char text[1024];
        uint32_t text_length = same_sizes ? disassemble(tb, count, text, sizeof text) : 0;
        pthread_mutex_lock(&out_lock);
        define_head(block, bytes, text_length);
        for (size_t i = 0; i < count; i++) {
            uint8_t size = qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
            define(&size, 1);
        }
        for (size_t i = 0; i < count; i++) {
            struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
            define(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        }
        define(text, text_length);
        pthread_mutex_unlock(&out_lock);
        qemu_plugin_register_vcpu_tb_exec_cb(tb, block_executed, CB_NO_REGS, block);
    }
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        if (accesses)
            qemu_plugin_register_vcpu_mem_cb(insn, accessed, CB_NO_REGS, MEM_RW, NULL);
        if (stores)
            qemu_plugin_register_vcpu_mem_cb(insn, stored, CB_NO_REGS, MEM_W, NULL);
    }
    note_progress(block, tb);
}

static void vcpu_began(qemu_plugin_id_t id, unsigned index)
{
    if (index >= MAX_CORES) {
        fail("the program has more threads than can be recorded");
        /* The reader ends the emulator. */
        for (;;)
            pause();
    }
    open_log();
    struct vcpu *v = calloc(1, sizeof *v);
    uint32_t *words = malloc(WORDS * 4);
    if (!v || !words) {
        fprintf(stderr, "out of memory for the trace of a core\n");
        abort();
    }
    v->words = words;
    pthread_cond_init(&v->has_turn, NULL);
    v->live = 1;
    v->called = 1;
    pthread_mutex_lock(&out_lock);
    /* Events of the first thread precede the start of the second one. */
    if (!in_system && cores == 1 && current)
        flush_locked(current);
    v->core = cores++;
    put_chunk(BEGIN, v->core, index, NULL, 0);
    /* QEMU retranslates all code before a second thread runs. */
    if (!in_system && v->core > 0 && one_thread) {
        if (inputs)
            begin_turns();
        if (current) {
            current->progress = progress;
            current = NULL;
        }
        sole = NULL;
        one_thread = 0;
    }
    /* An ended core is not freed: its thread may still be exiting. */
    vcpus[index] = v;
    if (index >= vcpu_count)
        vcpu_count = index + 1;
    pthread_mutex_unlock(&out_lock);
}

static void vcpu_ended(qemu_plugin_id_t id, unsigned index)
{
    if (index >= MAX_CORES || !vcpus[index])
        return;
    struct vcpu *v = vcpus[index];
    pthread_mutex_lock(&out_lock);
    if (v->live) {
        v->live = 0;
        flush_locked(v);
        /* Counts as one, so whatever a thread does later has a later time. */
        uint64_t now = __atomic_fetch_add(&clock_now, 1, __ATOMIC_SEQ_CST);
        put_chunk(END, v->core, 0, &now, in_system ? 0 : sizeof now);
    }
    pthread_mutex_unlock(&out_lock);
}

static void flush_all(void)
{
    for (unsigned i = 0; i < vcpu_count; i++)
        if (vcpus[i] && vcpus[i]->live) {
            if (!vcpus[i]->cut && (!one_thread || vcpus[i] == current)) {
                room(vcpus[i]);
                settle(vcpus[i]);
            }
            flush(vcpus[i]);
        }
    pthread_mutex_lock(&out_lock);
    put_log_locked();
    pthread_mutex_unlock(&out_lock);
}

static void process_ends(qemu_plugin_id_t id, void *data)
{
    /* An exiting program has ended at its system call. */
    if (exiting)
        return;
    flush_all();
    pthread_mutex_lock(&out_lock);
    put_chunk(END, UINT32_MAX, 0, NULL, 0);
    pthread_mutex_unlock(&out_lock);
}

/* Reports signal handlers set by rt_sigaction and sigaction. */
static void note_handler(uint64_t number, uint64_t action, int old)
{
    union { uint64_t wide[2]; uint32_t narrow[3]; } there;
    uint64_t handler[2];
    struct iovec to = { &there, is_arm ? 12 : 16 };
    struct iovec from = { (void *)(uintptr_t)(action + guest_base), to.iov_len };
    if (action == 0 || !have_guest_base
        || process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)to.iov_len)
        return;
    handler[0] = is_arm ? there.narrow[0] : there.wide[0];
    handler[1] = is_arm ? there.narrow[old ? 2 : 1] : there.wide[1];
    pthread_mutex_lock(&out_lock);
    put_chunk(HANDLER, 0, (uint32_t)number, handler, sizeof handler);
    pthread_mutex_unlock(&out_lock);
}

/* Reports changes of the signal mask by rt_sigprocmask and rt_sigreturn. */
static void note_mask(struct vcpu *v)
{
    pthread_mutex_lock(&out_lock);
    put_chunk(MASK, v->core, v->tid, NULL, 0);
    pthread_mutex_unlock(&out_lock);
}

static unsigned live_count(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < vcpu_count; i++)
        count += vcpus[i] && vcpus[i]->live;
    return count;
}

/*
 * Makes exit_group fail on this host thread, with an internal error code that makes the emulator
 * retry the guest's call.
 */
static void refuse_exit(void)
{
    enum { RESTART = 512 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | RESTART),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fprintf(stderr, "cannot hold the program at its exit: %s\n", strerror(errno));
}

/*
 * Holds a program that is about to exit. The emulator's GDB server cannot be used inside a system
 * call. So the call fails as if interrupted by a signal, and is restarted; before that, the signal
 * stops the program at the call. If the program blocks signals, it is stopped by a trap, which
 * replaces the call for this time. Other threads are recorded to the end of their current block.
 */
static void exit_begins(struct vcpu *v, uint64_t status, int group)
{
    struct { uint64_t address; uint32_t size, status; } call;
    struct vcpu *none = NULL;
    if (!__atomic_compare_exchange_n(&exiting, &none, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        /* Another thread was first; or this one was not stopped, and nothing remains to be done. */
        while (none != v && !dead)
            usleep(500);
        return;
    }
    /* The emulator tells its GDB server of the exit: no other thread may be in it then, or later. */
    enter_gdb();
    __atomic_fetch_or(&halting, EXITING, __ATOMIC_SEQ_CST);
    room(v);
    /* Everything before the call was executed. */
    if (v->expected > 0)
        v->words[v->count++] = LEFT | (v->expected - 1);
    v->expected = 0;
    v->complete = 0;
    v->cut = 1;
    v->pc = call.address = v->block->last;
    call.size = v->block->last_size;
    call.status = status;
    flush(v);
    pthread_mutex_lock(&out_lock);
    put_chunk(EXIT, v->core, v->tid, &call, sizeof call);
    pthread_mutex_unlock(&out_lock);
    while (!may_leave && !dead)
        usleep(500);
    if (dead)
        return;
    if (group)
        refuse_exit();
    /* The emulator never blocks this signal. */
    syscall(SYS_tgkill, getpid(), v->tid, SIGSEGV);
}

/*
 * Holds a thread that is about to end while the program is stopped, or exits: the emulator's GDB
 * server would use the thread after it is gone.
 */
static void thread_ends(struct vcpu *v)
{
    v->ends = 1;
    if (!v->listed) {
        v->listed = 1;
        pthread_mutex_lock(&out_lock);
        v->ending = ending;
        ending = v;
        pthread_mutex_unlock(&out_lock);
    }
    for (;;) {
        __atomic_store_n(&v->state, ENDING, __ATOMIC_SEQ_CST);
        if (!(__atomic_load_n(&halting, __ATOMIC_SEQ_CST) & HOLDING) || dead)
            return;
        __atomic_store_n(&v->state, IN_SYSCALL, __ATOMIC_SEQ_CST);
        while (halting & HOLDING && !dead)
            usleep(500);
    }
}

/* Returns whether a thread is between thread_ends() and its end, according to the host's kernel. */
static int one_is_ending(void)
{
    int found = 0;
    pthread_mutex_lock(&out_lock);
    for (struct vcpu *v = ending; v && !found; v = v->ending)
        found = v->ends && v->tid != 0
            && __atomic_load_n(&v->state, __ATOMIC_SEQ_CST) == ENDING
            && (syscall(SYS_tgkill, getpid(), v->tid, 0) == 0 || (v->ends = 0));
    pthread_mutex_unlock(&out_lock);
    return found;
}

/* Sends memory of the program, as far as it can be read. */
static void put_memory(struct vcpu *v, uint64_t address, uint64_t length)
{
    static uint8_t piece[8 + (256u << 10)];
    if (is_arm)
        address &= UINT32_MAX;
    else
        address &= UINT64_MAX >> 8;
    while (length > 0) {
        size_t wanted = length < sizeof piece - 8 ? length : sizeof piece - 8;
        struct iovec to = { piece + 8, wanted };
        struct iovec from = { (void *)(uintptr_t)(address + guest_base), wanted };
        ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
        if (n <= 0)
            return;
        memcpy(piece, &address, 8);
        put_chunk(MEMORY, v->core, 0, piece, 8 + n);
        if ((size_t)n < wanted)
            return;
        address += n;
        length -= n;
    }
}

static void put_zeros(struct vcpu *v, uint64_t address, uint64_t length)
{
    uint64_t range[2] = { address, length };
    put_chunk(MEMORY, v->core, 1, range, sizeof range);
}

/* Reads memory of the program; returns whether all of it can be read. */
static int read_memory(uint64_t address, void *into, size_t length)
{
    struct iovec to = { into, length };
    struct iovec from = { (void *)(uintptr_t)(address + guest_base), length };
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)length;
}

/* Reads numbers of the size of a pointer. */
static int read_words(uint64_t address, uint64_t *into, unsigned count)
{
    uint32_t narrow[8];
    if (!is_arm)
        return read_memory(address & (UINT64_MAX >> 8), into, count * 8);
    if (!read_memory(address & UINT32_MAX, narrow, count * 4))
        return 0;
    for (unsigned i = 0; i < count; i++)
        into[i] = narrow[i];
    return 1;
}

/* Sends what an array of struct iovec describes, up to a number of bytes. */
static void put_vector(struct vcpu *v, uint64_t address, uint64_t count, uint64_t bytes)
{
    uint64_t part[2], size = is_arm ? 8 : 16;
    for (uint64_t i = 0; i < count && i < 1024 && bytes > 0 && read_words(address + i * size, part, 2); i++) {
        uint64_t length = part[1] < bytes ? part[1] : bytes;
        put_memory(v, part[0], length);
        bytes -= length;
    }
}

/* Sends what a struct msghdr describes: name, buffers, control data. */
static void put_message(struct vcpu *v, uint64_t address, uint64_t bytes)
{
    uint64_t head[7];
    put_memory(v, address, is_arm ? 28 : 56);
    if (!read_words(address, head, 7))
        return;
    if (head[0])
        put_memory(v, head[0], 128);
    put_vector(v, head[2], head[3], bytes);
    if (head[4])
        put_memory(v, head[4], head[5] < (64u << 10) ? head[5] : 64u << 10);
}

/* Sends a buffer that a call filled; see the arguments. */
static void put_filled(struct vcpu *v, unsigned argument, unsigned code, int64_t returned)
{
    uint64_t address = v->arguments[argument], size = code & 0xfff, done = returned > 0 ? (uint64_t)returned : 0;
    uint64_t other = (code & 7) < 6 ? v->arguments[code & 7] : 0;
    const uint64_t most = 1 << 20;
    uint32_t length = 0;
    if (!address)
        return;
    switch (code >> 12) {
    case 8:
        size = done <= other ? done : 0;
        break;
    case 9:
        size = other < most ? other * (code >> 4 & 0xff) : 0;
        break;
    case 10:
        size = done < most ? done * (code & 0xfff) : 0;
        break;
    case 11:
        size = other && read_memory(other & (is_arm ? UINT32_MAX : UINT64_MAX >> 8), &length, 4) ? length : 0;
        /* The emulator writes a byte even if the size is 0. */
        size = size < 4 ? 4 : size < most ? size : most;
        break;
    case 12:
        put_vector(v, address, other, done);
        return;
    case 13:
        put_message(v, address, done);
        return;
    }
    put_memory(v, address, size);
}

/* Sends what a call that changes the program's mappings brought into them. */
static void put_mapped(struct vcpu *v, uint64_t result)
{
    enum { ANONYMOUS = 0x20, SHARED = 1, PAGE = 4096 };
    const uint64_t most = (uint64_t)64 << 20;
    const uint64_t *a = v->arguments;
    if (v->call == (is_arm ? 45 : 214)) {
        uint64_t before = heap_end;
        heap_end = result;
        if (before && before < result && result - before <= most)
            put_memory(v, before, ((result + PAGE - 1) & -(uint64_t)PAGE) - before);
    } else if (result >= (is_arm ? 0xfffff001u : (uint64_t)-4095)) {
        return;
    } else if (v->call == (is_arm ? 192 : 222)) {
        uint64_t length = (a[1] + PAGE - 1) & -(uint64_t)PAGE;
        if (a[3] & SHARED)
            return;
        if (a[3] & ANONYMOUS)
            put_zeros(v, result, length);
        else if (length <= most)
            put_memory(v, result, length);
    } else if (v->call == (is_arm ? 163 : 216)) {
        uint64_t before = (a[1] + PAGE - 1) & -(uint64_t)PAGE, after = (a[2] + PAGE - 1) & -(uint64_t)PAGE;
        if (before < after && after - before <= most)
            put_memory(v, result + before, after - before);
    }
}

/* Reports a system call that returned. */
static void put_call(struct vcpu *v, int64_t number, int64_t returned)
{
    uint64_t result = is_arm ? (uint32_t)returned : (uint64_t)returned;
    uint64_t call[10] = { v->call_pc, (uint64_t)number, result };
    memcpy(call + 3, v->arguments, sizeof v->arguments);
    call[9] = v->turn;
    v->sends = 1;
    pthread_mutex_lock(&out_lock);
    if (number >= 0 && number < 1024 && fills[number][0].known && have_guest_base) {
        for (int i = 0; i < MOST_FILLS && fills[number][i].known; i++)
            put_filled(v, fills[number][i].argument, fills[number][i].size, returned);
    } else if (have_guest_base) {
        put_mapped(v, result);
    }
    put_chunk(CALL, v->core, 0, call, sizeof call);
    pthread_mutex_unlock(&out_lock);
    v->sends = 0;
}

static void read_rules(const char *text)
{
    unsigned number, argument, size;
    inputs = 1;
    for (; sscanf(text, "%3x%1x%4x", &number, &argument, &size) == 3; text += 8)
        for (int i = 0; i < MOST_FILLS && number < 1024 && argument < 6; i++)
            if (!fills[number][i].known) {
                fills[number][i].known = 1;
                fills[number][i].argument = argument;
                fills[number][i].size = size;
                break;
            }
}

static void syscall_begins(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1,
                           uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6,
                           uint64_t a7, uint64_t a8)
{
    if (is_arm) {
        if (number == 174 || number == 67)
            note_handler(a1, a2, number == 67);
        else if (number == 175 || number == 126 || number == 173 || number == 119)
            note_mask(vcpus[vcpu]);
    } else if (number == 134) {
        note_handler(a1, a2, 0);
    } else if (number == 135 || number == 139) {
        note_mask(vcpus[vcpu]);
    }
    struct vcpu *v = vcpus[vcpu];
    if (inputs && (one_thread || in_turns) && !child) {
        uint64_t arguments[6] = { a1, a2, a3, a4, a5, a6 };
        for (int i = 0; i < 6; i++)
            v->arguments[i] = is_arm ? (uint32_t)arguments[i] : arguments[i];
        v->call = number;
        v->call_pc = v->block ? v->block->last : 0;
    }
    if (!one_thread) {
        /* Before threads that wait for this call continue. */
        __atomic_fetch_add(&clock_now, v->untimed, __ATOMIC_SEQ_CST);
        v->untimed = 0;
        v->called = 1;
    }
    __atomic_store_n(&v->state, IN_SYSCALL, __ATOMIC_SEQ_CST);
    int group = number == (is_arm ? 248 : 94);
    int ends = number == (is_arm ? 1 : 93);
    if (!child && (group || (ends && live_count() == 1)))
        exit_begins(v, a1, group);
    else if (!child && ends) {
        if (in_turns) {
            /* The kernel clears the thread's ID, for which others wait, after this. */
            put_call(v, number, 0);
            pthread_setspecific(turn_ends, v);
        }
        thread_ends(v);
    } else if (!child && in_turns && !keeps_turn(number)) {
        leave_turn(v);
    }
}

static void syscall_ended(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result)
{
    struct vcpu *v = vcpus[vcpu];
    v->ends = 0;
    if (in_turns && !child && turn != v)
        take_turn(v, 1, 0);
    if (inputs && (one_thread || in_turns) && !child)
        put_call(v, number, result);
    /* A pending signal would otherwise lead it into the GDB server while another thread is there. */
    do {
        __atomic_store_n(&v->state, IN_SYSCALL, __ATOMIC_SEQ_CST);
        while (halting & FREEZING && !dead && !in_gdb)
            usleep(500);
        __atomic_store_n(&v->state, RUNNING, __ATOMIC_SEQ_CST);
    } while (halting & FREEZING && !dead && !in_gdb);
    if (child == 1) {
        /* Retranslates all code, without this plugin and without traps. */
        child = 2;
        qemu_plugin_uninstall(id, NULL);
    }
}

static int all_still(uint32_t except)
{
    if (!in_system && one_is_ending())
        return 0;
    for (unsigned i = 0; i < vcpu_count; i++) {
        struct vcpu *v = vcpus[i];
        if (v && v->live && v->tid != 0 && v->tid != except && !v->cut
            && __atomic_load_n(&v->state, __ATOMIC_SEQ_CST) == RUNNING)
            return 0;
    }
    return 1;
}

/* Traps in the program, and the code that they replace. */
#define MAX_TRAPS 1024
static struct { uint64_t address; uint32_t code, size; } traps[MAX_TRAPS];

static void note_trap(uint64_t address, uint32_t code, uint32_t size)
{
    unsigned place = 0;
    while (place < MAX_TRAPS - 1 && traps[place].size > 0)
        place++;
    for (unsigned i = 0; i < MAX_TRAPS; i++)
        if (traps[i].size > 0 && traps[i].address == address)
            place = i;
    traps[place].address = address;
    traps[place].code = code;
    traps[place].size = size;
}

/* Reports the state of each core. */
static void report(uint32_t still)
{
    pthread_mutex_lock(&out_lock);
    struct { uint32_t core, tid, state, index; uint64_t pc; } *rows = calloc(vcpu_count + 1, 24);
    size_t count = 0;
    for (unsigned i = 0; rows && i < vcpu_count; i++) {
        struct vcpu *v = vcpus[i];
        if (!v || !v->live)
            continue;
        rows[count].core = v->core;
        rows[count].tid = v->tid;
        int state = v->state == WAITING ? RUNNING : v->state == ENDING ? IN_SYSCALL : v->state;
        rows[count].state = v->cut && v != exiting ? CUT : state;
        rows[count].index = i;
        rows[count].pc = v->pc;
        count++;
    }
    put_definitions();
    put_chunk(STOPPED, still, 0, rows, count * 24);
    pthread_mutex_unlock(&out_lock);
    free(rows);
}

static void obey(const struct command *command)
{
    uint32_t still = 1;
    switch (command->kind) {
    case NOTE:
        for (unsigned i = 0; i < vcpu_count; i++) {
            struct vcpu *v = vcpus[i];
            if (!v || !v->live || v->tid != command->tid)
                continue;
            room(v);
            settle(v);
            v->words[v->count++] = EXCEPTION;
            v->words[v->count++] = command->a;
            v->words[v->count++] = (uint32_t)command->value;
            v->words[v->count++] = (uint32_t)(command->value >> 32);
        }
        break;
    case FREEZE:
        __atomic_fetch_or(&halting, FREEZING, __ATOMIC_SEQ_CST);
        still = all_still(command->tid);
        for (uint32_t waited = 0; !still && waited < command->wait_ms; waited++) {
            usleep(1000);
            still = all_still(command->tid);
        }
        if (still)
            flush_all();
        report(still);
        break;
    case RESUME:
        __atomic_fetch_and(&halting, ~FREEZING, __ATOMIC_SEQ_CST);
        held = 0;
        break;
    case LEAVE:
        may_leave = 1;
        break;
    case TRAP:
        note_trap(command->value, command->tid, command->a);
        break;
    case ASK:
        pthread_mutex_lock(&out_lock);
        until_checkpoint = command->value;
        if (until_checkpoint == 0)
            __atomic_fetch_or(&halting, ASKING, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&out_lock);
        break;
    case FLUSH:
        flush_all();
        report(1);
        break;
    }
}

static void *listen_to_commands(void *unused)
{
    struct command command;
    while (recv(out, &command, sizeof command, MSG_WAITALL) == sizeof command)
        obey(&command);
    /* The reader is gone: a program is released; a machine, which would never end, exits. */
    dead = 1;
    halting = 0;
    if (in_system)
        _exit(1);
    return NULL;
}

/* Detaches a forked child: it is not recorded, and traps are removed from its memory. */
static void forked(void)
{
    child = 1;
    dead = 1;
    halting = 0;
    in_gdb = 0;
    gdb_users = 0;
    in_turns = 0;
    close(out);
    int memory = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
    for (unsigned i = 0; memory >= 0 && i < MAX_TRAPS; i++)
        if (traps[i].size > 0
            && pwrite(memory, &traps[i].code, traps[i].size, traps[i].address + guest_base) < 0)
            fprintf(stderr, "a trap stays in a forked process: %s\n", strerror(errno));
    close(memory);
}

static void has_forked(void)
{
    pthread_mutex_lock(&out_lock);
    put_chunk(CHILD, 0, 0, NULL, 0);
    pthread_mutex_unlock(&out_lock);
}

/*
 * The emulator of a machine crashes: first, what the core of this host thread executed is sent. If the
 * crashing thread itself holds the lock, that is not possible.
 */
static void dies(int number)
{
    signal(number, SIG_DFL);
    if (!current || current->tid != (uint32_t)syscall(SYS_gettid)
        || pthread_mutex_trylock(&out_lock) != 0)
        return;
    pthread_mutex_unlock(&out_lock);
    flush_all();
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int first = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A number above those that the program uses. */
    int moved = fcntl(first, F_DUPFD_CLOEXEC, 900);
    if (moved >= 0) {
        close(first);
        first = moved;
    }
    int size = 1 << 20;
    setsockopt(first, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return connect(first, (struct sockaddr *)&address, sizeof address) == 0 ? first : -1;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *socket_path = "";
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "socket=", 7))
            socket_path = argv[i] + 7;
        else if (!strcmp(argv[i], "stores=on"))
            stores = 1;
        else if (!strcmp(argv[i], "accesses=on"))
            accesses = 1;
        else if (!strcmp(argv[i], "state=on"))
            use_state = HAVE_STATE;
        else if (!strncmp(argv[i], "place=", 6))
            place_wanted = sscanf(argv[i] + 6, "%" SCNx64 "/%" SCNx64, &place_words, &place_offset) == 2;
        else if (!strncmp(argv[i], "limit=", 6))
            limit = strtoull(argv[i] + 6, NULL, 10);
        else if (!strncmp(argv[i], "checkpoints=", 12))
            until_checkpoint = strtoull(argv[i] + 12, NULL, 10);
        else if (!strncmp(argv[i], "inputs=", 7))
            read_rules(argv[i] + 7);
        else if (!strncmp(argv[i], "log=", 4))
            log_path = strdup(argv[i] + 4);
    }
    in_system = info->system_emulation;
    if (in_system) {
        signal(SIGABRT, dies);
        signal(SIGSEGV, dies);
        signal(SIGBUS, dies);
        signal(SIGILL, dies);
        signal(SIGFPE, dies);
    }
    is_arm = !strcmp(info->target_name, "arm");
    out = connect_to(socket_path);
    if (out < 0) {
        fprintf(stderr, "cannot connect to %s: %s\n", socket_path, strerror(errno));
        return -1;
    }
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&thread, NULL, listen_to_commands, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return -1;
    pthread_detach(thread);
    pthread_atfork(NULL, has_forked, forked);
    qemu_plugin_register_vcpu_init_cb(id, vcpu_began);
    qemu_plugin_register_vcpu_exit_cb(id, vcpu_ended);
    qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
    qemu_plugin_register_atexit_cb(id, process_ends, NULL);
    if (!in_system) {
        qemu_plugin_register_vcpu_syscall_cb(id, syscall_begins);
        qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall_ended);
    }
    return 0;
}

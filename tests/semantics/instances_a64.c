// Executes single A64 instructions on states from its input and writes the states after them.
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct instance {
    uint64_t word; // in; out: the signal that it raised, or 0
    uint64_t x[31], sp, nzcv, fpcr;
    uint64_t v[64];
    uint8_t memory[1024];
};

enum { BATCH = 256, SLOT = 4, PAGE = 0x1000 };
#define CODE ((uint32_t *)0x04000000)
#define MEMORY ((uint8_t *)0x10000000)

uint64_t machine[98]; // an instance from x on
uint64_t host[32];
void enter(void *slot);
void leave(void);
void fault(void);

__asm__(
    ".text\n.globl enter, leave, fault\n"
    "enter:\n"
    "  adrp x9, host\n  add x9, x9, :lo12:host\n"
    "  stp x19, x20, [x9]\n  stp x21, x22, [x9, 16]\n  stp x23, x24, [x9, 32]\n"
    "  stp x25, x26, [x9, 48]\n  stp x27, x28, [x9, 64]\n  stp x29, x30, [x9, 80]\n"
    "  mov x10, sp\n  mrs x11, tpidr_el0\n  stp x10, x11, [x9, 96]\n"
    "  stp d8, d9, [x9, 112]\n  stp d10, d11, [x9, 128]\n"
    "  stp d12, d13, [x9, 144]\n  stp d14, d15, [x9, 160]\n"
    "  mov x29, x0\n"
    "  adrp x30, machine\n  add x30, x30, :lo12:machine\n"
    "  ldr x0, [x30, 248]\n  mov sp, x0\n"
    "  ldr x0, [x30, 256]\n  msr nzcv, x0\n"
    "  ldr x0, [x30, 264]\n  msr fpcr, x0\n"
    "  .irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30\n"
    "  ldr q\\n, [x30, 272 + 16 * \\n]\n"
    "  .endr\n"
    "  .irp n, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31\n"
    "  ldr q\\n, [x30, 272 + 16 * \\n]\n"
    "  .endr\n"
    "  .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22\n"
    "  ldr x\\n, [x30, 8 * \\n]\n"
    "  .endr\n"
    "  .irp n, 23, 24, 25, 26, 27, 28\n"
    "  ldr x\\n, [x30, 8 * \\n]\n"
    "  .endr\n"
    "  br x29\n" // the slot loads x29 and x30
    "leave:\n"
    "  msr tpidr_el0, x0\n"
    "  adrp x0, machine\n  add x0, x0, :lo12:machine\n"
    "  .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22\n"
    "  str x\\n, [x0, 8 * \\n]\n"
    "  .endr\n"
    "  .irp n, 23, 24, 25, 26, 27, 28, 29, 30\n"
    "  str x\\n, [x0, 8 * \\n]\n"
    "  .endr\n"
    "  mrs x1, tpidr_el0\n  str x1, [x0]\n"
    "  mov x1, sp\n  str x1, [x0, 248]\n"
    "  mrs x1, nzcv\n  str x1, [x0, 256]\n"
    "  mrs x1, fpcr\n  str x1, [x0, 264]\n"
    "  .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "  str q\\n, [x0, 272 + 16 * \\n]\n"
    "  .endr\n"
    "  .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
    "  str q\\n, [x0, 272 + 16 * \\n]\n"
    "  .endr\n"
    "fault:\n"
    "  msr fpcr, xzr\n"
    "  adrp x9, host\n  add x9, x9, :lo12:host\n"
    "  ldp x19, x20, [x9]\n  ldp x21, x22, [x9, 16]\n  ldp x23, x24, [x9, 32]\n"
    "  ldp x25, x26, [x9, 48]\n  ldp x27, x28, [x9, 64]\n  ldp x29, x30, [x9, 80]\n"
    "  ldp x10, x11, [x9, 96]\n  mov sp, x10\n  msr tpidr_el0, x11\n"
    "  ldp d8, d9, [x9, 112]\n  ldp d10, d11, [x9, 128]\n"
    "  ldp d12, d13, [x9, 144]\n  ldp d14, d15, [x9, 160]\n"
    "  ret\n");

static volatile sig_atomic_t raised;

static void on_signal(int number, siginfo_t *info, void *context) {
    raised = number;
    ((ucontext_t *)context)->uc_mcontext.pc = (uintptr_t)fault;
}

static int transfer(ssize_t (*move)(int, void *, size_t), int file, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t count = move(file, (char *)data + done, size - done);
        if (count <= 0) return 0;
        done += (size_t)count;
    }
    return 1;
}

static ssize_t write_out(int file, void *data, size_t size) { return write(file, data, size); }

static uint32_t branch(uint32_t *from, void *to) {
    return 0x14000000 | ((((uintptr_t)to - (uintptr_t)from) >> 2) & 0x03ffffff);
}

static struct instance instances[BATCH];
static char signal_stack[65536];

int main(void) {
    int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(MEMORY, PAGE, PROT_READ | PROT_WRITE, fixed, -1, 0) == MAP_FAILED) return 1;
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGTRAP, SIGFPE};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, 0);
    for (;;) {
        if (!transfer(read, 0, instances, sizeof instances)) return 0;
        // New pages: the emulator watches those whose code it has translated.
        if (mmap(CODE, SLOT * 4 * BATCH, PROT_READ | PROT_WRITE | PROT_EXEC, fixed, -1, 0) == MAP_FAILED) return 1;
        for (unsigned i = 0; i < BATCH; i++) {
            uint32_t *slot = CODE + SLOT * i;
            slot[0] = 0xf94077dd; // ldr x29, [x30, 232]
            slot[1] = 0xf9407bde; // ldr x30, [x30, 240]
            slot[2] = (uint32_t)instances[i].word;
            slot[3] = branch(slot + 3, leave);
        }
        __builtin___clear_cache((char *)CODE, (char *)(CODE + SLOT * BATCH));
        for (unsigned i = 0; i < BATCH; i++) {
            struct instance *at = instances + i;
            memcpy(machine, at->x, sizeof machine);
            memcpy(MEMORY + 0x600, at->memory, sizeof at->memory);
            raised = 0;
            enter(CODE + SLOT * i);
            at->word = (uint64_t)raised;
            memcpy(at->x, machine, sizeof machine);
            memcpy(at->memory, MEMORY + 0x600, sizeof at->memory);
        }
        if (!transfer(write_out, 1, instances, sizeof instances)) return 1;
    }
}

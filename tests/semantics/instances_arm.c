// Executes single A32 and T32 instructions on states from its input and writes the states after
// them.
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct instance {
    uint32_t word;  // in; out: the signal that it raised, or 0. T32: the first halfword below.
    uint16_t thumb; // in: 1 for T32
    uint16_t it;    // in: the IT instruction before it, or 0
    uint64_t r[31], unused, cpsr, fpscr;
    uint64_t d[64];
    uint8_t memory[1024];
};

enum { BATCH = 256, SLOT = 16, PAGE = 0x1000 };
#define CODE ((uint8_t *)0x00800000)
#define MEMORY ((uint8_t *)0x10000000)

uint64_t machine[98]; // an instance from r on
uint32_t host[2];
void enter(void *slot);
void leave(void);
void leave_from_t32(void);
void fault(void);

__asm__(
    ".text\n.arm\n.fpu neon\n.globl enter, leave, leave_from_t32, fault\n"
    ".type enter, %function\n.type leave, %function\n.type fault, %function\n"
    "enter:\n"
    "  push {r4-r11, lr}\n  vpush {d8-d15}\n"
    "  ldr r1, =host\n  str sp, [r1]\n"
    "  mov r12, r0\n  ldr lr, =machine\n"
    "  add r0, lr, #272\n  vldm r0!, {d0-d15}\n  vldm r0, {d16-d31}\n"
    "  add r0, lr, #256\n  ldr r1, [r0]\n  msr apsr_nzcvqg, r1\n"
    "  ldr r1, [r0, #8]\n  vmsr fpscr, r1\n"
    "  .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
    "  ldr r\\n, [lr, #8 * \\n]\n"
    "  .endr\n"
    "  ldr sp, [lr, #104]\n"
    "  bx r12\n" // the slot loads r12 and lr
    "  .ltorg\n"
    "leave:\n"
    "  mcr p15, 0, r0, c13, c0, 2\n"
    "  ldr r0, =machine\n"
    "  .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12\n"
    "  str r\\n, [r0, #8 * \\n]\n"
    "  .endr\n"
    "  str sp, [r0, #104]\n  str lr, [r0, #112]\n"
    "  mrc p15, 0, r1, c13, c0, 2\n  str r1, [r0]\n"
    "  mrs r1, cpsr\n  add r2, r0, #256\n  str r1, [r2]\n"
    "  vmrs r1, fpscr\n  str r1, [r2, #8]\n"
    "  add r2, r0, #272\n  vstm r2!, {d0-d15}\n  vstm r2, {d16-d31}\n"
    "fault:\n"
    "  mov r1, #0\n  vmsr fpscr, r1\n"
    "  ldr r1, =host\n  ldr sp, [r1]\n"
    "  vpop {d8-d15}\n  pop {r4-r11, pc}\n"
    "  .ltorg\n"
    "  .thumb\n  .align 2\n"
    "leave_from_t32:\n"
    "  bx pc\n  nop\n"
    "  .arm\n"
    "  b leave\n");

static volatile sig_atomic_t raised;

static void on_signal(int number, siginfo_t *info, void *context) {
    raised = number;
    mcontext_t *state = &((ucontext_t *)context)->uc_mcontext;
    state->arm_pc = (uintptr_t)fault & ~1u;
    state->arm_cpsr &= ~0x0600fe20u; // A32, no IT block, little-endian
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

static void put_a32(uint32_t *at, uint32_t word) {
    at[0] = 0xe59ec060; // ldr r12, [lr, #96]
    at[1] = 0xe59ee070; // ldr lr, [lr, #112]
    at[2] = word;
    at[3] = 0xea000000 | ((((uintptr_t)leave - (uintptr_t)(at + 3) - 8) >> 2) & 0x00ffffff);
}

static void put_t32(uint16_t *at, uint16_t it, uint32_t word) {
    at[0] = 0xf8de, at[1] = 0xc060; // ldr.w r12, [lr, #96]
    at[2] = 0xf8de, at[3] = 0xe070; // ldr.w lr, [lr, #112]
    at += 4;
    *at++ = it ? it : 0xbf00;
    *at++ = (uint16_t)word;
    if ((word & 0xf800) >= 0xe800) *at++ = (uint16_t)(word >> 16);
    else *at++ = 0xbf00;
    uint32_t offset = ((uintptr_t)leave_from_t32 & ~1u) - ((uintptr_t)at + 4);
    uint32_t s = offset >> 31, j1 = !(offset >> 23 & 1) ^ s, j2 = !(offset >> 22 & 1) ^ s;
    at[0] = (uint16_t)(0xf000 | s << 10 | (offset >> 12 & 0x3ff));
    at[1] = (uint16_t)(0x9000 | j1 << 13 | j2 << 11 | (offset >> 1 & 0x7ff));
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
        if (mmap(CODE, 2 * SLOT * BATCH, PROT_READ | PROT_WRITE | PROT_EXEC, fixed, -1, 0) == MAP_FAILED) return 1;
        for (unsigned i = 0; i < BATCH; i++) {
            void *slot = CODE + 2 * SLOT * i;
            if (instances[i].thumb) put_t32(slot, instances[i].it, instances[i].word);
            else put_a32(slot, instances[i].word);
        }
        __builtin___clear_cache((char *)CODE, (char *)CODE + 2 * SLOT * BATCH);
        for (unsigned i = 0; i < BATCH; i++) {
            struct instance *at = instances + i;
            memcpy(machine, at->r, sizeof machine);
            memcpy(MEMORY + 0x600, at->memory, sizeof at->memory);
            raised = 0;
            enter(CODE + 2 * SLOT * i + (at->thumb ? 1 : 0));
            at->word = (uint32_t)raised;
            at->thumb = at->it = 0;
            memcpy(at->r, machine, sizeof machine);
            memcpy(at->memory, MEMORY + 0x600, sizeof at->memory);
        }
        if (!transfer(write_out, 1, instances, sizeof instances)) return 1;
    }
}

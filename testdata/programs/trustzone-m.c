/* A Cortex-M33 with TrustZone on QEMU's mps2-an505: calls between non-secure and secure code in both
 * directions, with interrupts of the secure side in each of them. Built twice: secure with -mcmse, and non-secure. */
#include <stdint.h>

#define REG(address) (*(volatile uint32_t *)(address))

#ifdef __ARM_FEATURE_CMSE
#if __ARM_FEATURE_CMSE & 2
#define SECURE
#endif
#endif

#ifdef SECURE

#include <arm_cmse.h>

typedef int non_secure_function(int) __attribute__((cmse_nonsecure_call));
typedef void non_secure_start(void) __attribute__((cmse_nonsecure_call));

extern uint32_t secure_stack;
extern const void *non_secure_vectors[];

static volatile uint32_t ticks;

__attribute__((noinline)) static int triple(int a) { return 3 * a; }

__attribute__((cmse_nonsecure_entry, noinline)) int entry_sum(int a, int b) {
  return triple(a) + b;
}

__attribute__((cmse_nonsecure_entry, noinline)) int entry_apply(non_secure_function *function, int a) {
  function = (non_secure_function *)cmse_nsfptr_create(function);
  int result = function(a);
  /* The entry of a function called by secure code returns to it. */
  return result + entry_sum(a, 1);
}

void on_tick(void) { ticks++; }

void on_fault(void) {
  for (;;)
    ;
}

void reset(void) {
  /* Non-secure code may be in the code region, and the upper half of its SRAM is not secure. */
  REG(0x50080014) = 1;
  uint32_t last = REG(0x58007010);
  for (uint32_t block = 0; block <= last; block++) {
    REG(0x58007018) = block;
    REG(0x5800701c) = block > last / 2 ? 0xffffffff : 0;
  }
  /* SAU: 0x00200000 to 0x003fffff is not secure, 0x10080000 to 0x100800ff can be called by non-secure code. */
  REG(0xe000edd8) = 0;
  REG(0xe000eddc) = 0x00200000;
  REG(0xe000ede0) = 0x003fffe0 | 1;
  REG(0xe000edd8) = 1;
  REG(0xe000eddc) = 0x10080000;
  REG(0xe000ede0) = 0x100800e0 | 3;
  REG(0xe000edd0) = 1;
  __asm__ volatile("dsb\n isb");
  /* VTOR_NS, SysTick. */
  REG(0xe002ed08) = (uint32_t)non_secure_vectors;
  REG(0xe000e014) = 40;
  REG(0xe000e018) = 0;
  REG(0xe000e010) = 7;
  __asm__ volatile("msr msp_ns, %0" ::"r"(non_secure_vectors[0]));
  ((non_secure_start *)cmse_nsfptr_create((non_secure_start *)non_secure_vectors[1]))();
  on_fault();
}

__attribute__((section(".vectors"), used)) const void *vectors[16] = {
    &secure_stack, reset, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, 0, 0, 0, on_fault, 0, 0, on_fault,
    on_tick};

#else

extern uint32_t non_secure_stack;

/* The veneers, in the order of the functions. */
#define entry_sum ((int (*)(int, int))0x10080001)
#define entry_apply ((int (*)(int (*)(int), int))0x10080009)

volatile int total;

__attribute__((noinline)) int twice(int a) { return 2 * a; }

void on_call(void) { total++; }

void finish(void) {
  __asm__ volatile("mov r0, #0x18\n movw r1, #0x26\n movt r1, #2\n bkpt #0xab");
  for (;;)
    ;
}

void run(void) {
  for (int i = 0; i < 40; i++) {
    total += entry_sum(i, i);
    total += entry_apply(twice, i);
    __asm__ volatile("svc 0" ::: "r0", "r1", "r2", "r3", "r12", "memory");
  }
  finish();
}

__attribute__((section(".vectors"), used)) const void *non_secure_vectors[16] = {
    &non_secure_stack, run, on_call, on_call, on_call, on_call, on_call, on_call, 0, 0, 0, on_call};

#endif

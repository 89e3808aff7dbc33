/* Faults of a Cortex-M in different ways: -DFAULT=NUMBER. With -DSEPARATE the faults have their own
   handlers, with -DTASK the code runs on the process stack, and with -DCHANGES the handler changes
   LR. */

#define REGISTER(address) (*(volatile unsigned *)(address))
enum { CCR = 0xE000ED14, SHCSR = 0xE000ED24 };

extern unsigned stack_top;
static volatile unsigned sink;

__attribute__((noinline)) unsigned element(volatile unsigned *array, unsigned index) {
  return array[index];
}

__attribute__((noinline)) void fail(void) {
#if FAULT == 0
  sink = element((unsigned *)0xCCCCCC00, 3);
#elif FAULT == 1
  REGISTER(CCR) |= 1 << 4;
  volatile unsigned zero = 0;
  sink = 5 / zero;
#elif FAULT == 2
  REGISTER(CCR) |= 1 << 3;
  sink = element((unsigned *)((unsigned)&sink + 2), 1);
#elif FAULT == 3
  __asm__ volatile("udf #7");
#elif FAULT == 4
  ((void (*)(void))((unsigned)fail & ~1u))();
#elif FAULT == 5
  ((void (*)(void))0x40000001)();
#elif FAULT == 6
  __asm__ volatile("cdp p0, #0, c0, c0, c0, #0");
#elif FAULT == 7
  __asm__ volatile("bkpt #1");
#endif
  sink++;
}

__attribute__((noinline)) void halted(void) {
  for (;;)
    sink++;
}

__attribute__((naked)) void fault(void) {
#ifdef CHANGES
  __asm__ volatile("push {r4, r5, r6, lr}\n bl halted");
#else
  __asm__ volatile("b fault");
#endif
}

__attribute__((naked, noreturn)) void reset(void) {
#ifdef SEPARATE
  REGISTER(SHCSR) |= 7 << 16;
#endif
#ifdef TASK
  __asm__ volatile("msr psp, %0\n movs r0, #2\n msr control, r0\n isb"
                   :
                   : "r"((unsigned)&stack_top - 0x1000)
                   : "r0");
#endif
  __asm__ volatile("bl fail\n b .");
  __builtin_unreachable();
}

__attribute__((section(".vectors"), used)) void *vectors[] = {
    &stack_top, reset, fault, fault, fault, fault, fault, fault};

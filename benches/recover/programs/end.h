/* How each program ends: with a fault that depends on its result. */
__attribute__((noinline)) static void fall_down(unsigned long result)
{
    *(volatile unsigned long *)(result & 7) = result;
    __builtin_trap();
}

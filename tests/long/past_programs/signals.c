/* Handlers on the program's stack and on their own, one inside another, and one that mends a fault. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

struct seen { int number; long sum; char name[8]; };
struct seen shared_seen[16];
int shared_count;
volatile long shared_good = 5, *volatile shared_pointer;
static char other_stack[65536];

__attribute__((noinline)) static long note(int number, long more)
{
    struct seen *here = &shared_seen[shared_count++ & 15];
    here->number = number;
    here->sum = number * 100L + more;
    memcpy(here->name, "noted", 6);
    return here->sum;
}
static void on_first(int number)
{
    long before = shared_count;
    long noted = note(number, before);
    if (before < 3)
        raise(SIGUSR2);
    shared_count += noted & 1;
}
static void on_second(int number, siginfo_t *info, void *context)
{
    int code = info->si_code, of = info->si_signo;
    note(number, code + of + (context != 0));
}
static void on_fault(int number, siginfo_t *info, void *context)
{
    long address = (long)info->si_addr;
    note(number, address);
    shared_pointer = &shared_good;
#ifdef __aarch64__
    ((ucontext_t *)context)->uc_mcontext.pc += 4;
#else
    ucontext_t *where = context;
    where->uc_mcontext.arm_pc += where->uc_mcontext.arm_cpsr & 0x20 ? 2 : 4;
#endif
}
__attribute__((noinline)) static long load(long n)
{
    long at = 0, out = n;
#ifdef __aarch64__
    __asm__ volatile("ldr %0, [%1]" : "+r"(out) : "r"(at));
#else
    __asm__ volatile("ldr %0, [%1]" : "+l"(out) : "l"(at));
#endif
    return out + *shared_pointer;
}
__attribute__((noinline)) static long work(int rounds)
{
    long sum = 1, kept[4] = { 1, 2, 3, 4 };
    for (int i = 0; i < rounds; i++) {
        kept[i & 3] += sum;
        if (i % 3 == 0)
            raise(SIGUSR1);
        if (i % 4 == 1)
            sum += load(i);
        sum = sum * 3 + kept[i + 1 & 3];
    }
    return sum + note(0, sum);
}
int main(void)
{
    stack_t own = { .ss_sp = other_stack, .ss_size = sizeof other_stack };
    struct sigaction action = { .sa_handler = on_first };
    sigaltstack(&own, 0);
    sigaction(SIGUSR1, &action, 0);
    action.sa_sigaction = on_second;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR2, &action, 0);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    shared_pointer = &shared_good;
    long all = work(10);
    printf("%ld %d\n", all, shared_count);
    return 0;
}

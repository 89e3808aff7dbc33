/* Signals of Linux in A64 without libc: from tgkill, and from a fault, whose handler goes on after the
   instruction that faulted. With INSIDE the program ends in a handler; with DIES a handler lets the next
   fault end the program, and returns to the instruction that faulted, as Rust's does. */
typedef unsigned long word;
struct action { void (*handler)(int, word *, word *); word flags; void (*restorer)(void); word mask; };
enum { SIGINFO = 4, RESTORER = 0x04000000, USR1 = 10, SEGV = 11, ALRM = 14 };
#ifdef INSIDE
enum { FAULT = 8 };
#else
enum { FAULT = 1 };
#endif
static word total, count;

static long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
void restore(void);
__asm__(".global restore\n.type restore, %function\nrestore: mov x8, #139\n svc #0\n");

__attribute__((noinline)) static word deep(word n)
{
    total = total * 3 + n;
    return total ^ n << 5;
}
__attribute__((noinline)) static void on_user(int number, word *information, word *context)
{
    word seen = deep((word)number);
    count += seen + (information != 0) + (context != 0);
}
static void on_alarm(int number, word *information, word *context)
{
    (void)information;
    (void)context;
    count += deep((word)number);
}
static void install(int number, void (*handler)(int, word *, word *), word flags, void (*restorer)(void))
{
    struct action action = { handler, flags, restorer, 0 };
    call(134, number, (long)&action, 0, 8);
}
static void on_fault(int number, word *information, word *context)
{
#ifdef INSIDE
    __asm__ volatile(".inst 0");
#endif
    (void)information;
    count += deep((word)number);
#ifdef DIES
    (void)context;
    install(number, 0, RESTORER, restore);
    return;
#endif
    context[0xb8 / 8 + 9] = 77;
    context[0x1b8 / 8] += 4;
}
static void send(int number)
{
    call(131, call(172, 0, 0, 0, 0), call(178, 0, 0, 0, 0), number, 0);
}
__attribute__((noinline)) static word fault(word kept)
{
    word out;
    __asm__ volatile("mov x9, #5\n mov x10, #8\n ldr x9, [x10]\n mov %0, x9"
                     : "=r"(out) : : "x9", "x10", "memory");
    return out + kept;
}
__attribute__((noinline)) static word work(word n)
{
    word sum = n;
    for (word i = 0; i < n; i++) {
        sum += deep(i);
        if (i == FAULT)
            sum += fault(i);
        if (i == 3)
            send(USR1);
        if (i == 5)
            send(ALRM);
    }
    return sum;
}
void begin(void)
{
    install(USR1, on_user, SIGINFO | RESTORER, restore);
    install(ALRM, on_alarm, 0, 0);
    install(SEGV, on_fault, SIGINFO | RESTORER, restore);
    word sum = work(12);
    count = sum;
    __asm__ volatile(".inst 0");
}
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl begin\n b .");

/* Calls that are open for long, and are left in every way, while shards begin and end. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf back;
static volatile unsigned sum;

static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static int compare(const void *a, const void *b)
{
    const unsigned *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void deep(unsigned n)
{
    if (n == 0)
        longjmp(back, 1);
    sum += n;
    deep(n - 1);
    sum += 1;
}

static void on_signal(int number) { sum += (unsigned)number; }

static unsigned twice(unsigned n) { return 2 * n; }
static unsigned half(unsigned n) { return n / 2; }
static unsigned (*const functions[])(unsigned) = { twice, half, fib };

static void work(unsigned round)
{
    unsigned values[64];
    char text[64];
    for (unsigned i = 0; i < 64; i++)
        values[i] = (i * 7919u + round * 104729u) % 1009u;
    qsort(values, 64, sizeof values[0], compare);
    for (unsigned i = 0; i < 9; i++)
        sum += functions[i % 3](i);
    snprintf(text, sizeof text, "%u %s %x", values[round % 64], "round", round);
    sum += strlen(text);
    if (setjmp(back) == 0)
        deep(20 + round);
    raise(SIGUSR1);
}

int main(void)
{
    signal(SIGUSR1, on_signal);
    for (unsigned round = 0; round < 12; round++) {
        work(round);
        sum += fib(9);
    }
    printf("%u\n", sum);
    return 0;
}

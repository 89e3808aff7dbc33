// Loops, branches, recursion and longjmp, for the tests of exports.

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf back;
static volatile int sink;

static int classify(int n) {
    if (n < 0)
        return -1;
    if (n == 0 || n == 7)
        return 0;
    switch (n % 4) {
    case 0:
        return 1;
    case 1:
        return 2;
    default:
        break;
    }
    return 3;
}

static int sum(int n) {
    int total = 0;
    for (int i = 0; i < n; i++) {
        if (i % 3 == 0)
            continue;
        total += classify(i);
    }
    return total;
}

static int fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void deep(int n) {
    if (n == 0)
        longjmp(back, 1);
    deep(n - 1);
    sink = n;
}

__attribute__((noinline)) static int never(int n) {
    while (n > 10)
        n -= 3;
    return n;
}

int main(int argc, char **argv) {
    int total = sum(40);
    if (setjmp(back) == 0)
        deep(5);
    total += fib(10);
    if (argc > 3)
        total += never(argc);
    printf("%d\n", total);
    return 0;
}

/* Threads that work one after another. */
#include "one_after_another.h"
#include <stdio.h>

struct job { int from, to; long sum; };
struct job shared_jobs[3];
long shared_board[16];
int shared_rounds;
static __thread long own;

#define WORKER(name, expression) \
    static void *name(void *argument) \
    { \
        struct job *job = argument; \
        for (int round = 0; round < 3; round++) { \
            long here = 0; \
            for (int i = job->from; i < job->to; i++) { \
                own += i; \
                here += (expression); \
                shared_board[i & 15] = here; \
            } \
            job->sum += here; \
        } \
        return (void *)own; \
    }
WORKER(adds, i + own)
WORKER(mixes, i * 31 ^ own)
WORKER(counts, (i & 3) + round)

__attribute__((noinline)) static long after(long n)
{
    long sum = n;
    for (int i = 0; i < 16; i++) {
        sum += shared_board[i] * i;
        shared_board[i] = sum;
    }
    return sum;
}
int main(void)
{
    static void *(*const functions[3])(void *) = { adds, mixes, counts };
    long all = 0;
    for (int i = 0; i < 3; i++) {
        struct job *job = &shared_jobs[i];
        job->from = i * 5;
        job->to = i * 5 + 8;
        all += (long)result_of(functions[i], job);
        all = after(all + job->sum & 0xffff);
        shared_rounds++;
    }
    for (int i = 0; i < 6; i++)
        all = after(all & 0xffff);
    printf("%ld\n", all);
    return 0;
}

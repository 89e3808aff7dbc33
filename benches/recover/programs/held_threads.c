/* Threads that share counters under a mutex; at the end one is left, which adds up. */
#include "end.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counters[64];

static void *work(void *argument)
{
    long number = (long)argument;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&lock);
        counters[(number * 7 + i) % 64] += i;
        pthread_mutex_unlock(&lock);
    }
    return argument;
}

int main(void)
{
    unsigned long sum = 0;
    for (long i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
        pthread_join(thread, NULL);
    }
    for (int round = 0; round < 150; round++)
        for (int i = 0; i < 64; i++) {
            counters[i] += counters[(i + round) % 64] & 0xff;
            sum = sum * 31 + counters[i];
        }
    fall_down(sum);
}

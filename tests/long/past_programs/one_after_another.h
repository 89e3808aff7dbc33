/* Starts a thread and waits for it. No place is chosen here, where two threads run at once. */
#include <pthread.h>

__attribute__((noinline)) static void *result_of(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, function, argument);
    pthread_join(thread, &result);
    return result;
}

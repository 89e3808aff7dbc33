/* Errors that jump over several calls, and out of a signal's handler. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

struct state { int level; long sum; const char *text; };
struct state shared_state;
int shared_errors[8], shared_failed;
static jmp_buf out;
static sigjmp_buf again;

__attribute__((noinline)) static long parse(const char *text, int level)
{
    long here = level * 10;
    shared_state.level = level;
    for (; *text; text++) {
        if (*text == '(') {
            here += parse(text + 1, level + 1);
            break;
        } else if (*text == '!') {
            shared_errors[shared_failed++ & 7] = level;
            longjmp(out, level + 1);
        }
        here = here * 3 + *text;
        shared_state.sum += here;
    }
    return here;
}
__attribute__((noinline)) static long tries(const char *const *texts, int count)
{
    volatile long sum = 0;
    for (volatile int i = 0; i < count; i++) {
        int error = setjmp(out);
        if (error) {
            sum -= error;
            continue;
        }
        shared_state.text = texts[i];
        sum += parse(texts[i], 0);
    }
    return sum;
}
static void on_signal(int number)
{
    shared_failed += number;
    siglongjmp(again, number);
}
__attribute__((noinline)) static int interrupted(int n)
{
    int local = n * 7;
    volatile int kept = n;
    int number = sigsetjmp(again, 1);
    if (number == 0) {
        raise(SIGUSR1);
        return -1;
    }
    return local + kept + number;
}
int main(void)
{
    static const char *const texts[] = { "ab(cd", "x(y(z!", "!", "plain", "((((!", "a(b(c(d" };
    signal(SIGUSR1, on_signal);
    long all = tries(texts, 6);
    for (int i = 0; i < 3; i++)
        all += interrupted(i);
    all += tries(texts, 6);
    printf("%ld %d\n", all, shared_failed);
    return 0;
}

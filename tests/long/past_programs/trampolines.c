/* Nested functions, whose addresses are code on the stack. */
#include <stdio.h>
#include <stdlib.h>

long shared_total;
int shared_calls;

__attribute__((noinline)) static void each(const int *numbers, int count, void (*call)(int))
{
    for (int i = 0; i < count; i++)
        call(numbers[i]);
}
__attribute__((noinline)) static long weighed(const int *numbers, int count, int weight)
{
    long sum = 0;
    int most = -1;
    void add(int number)
    {
        sum += number * weight;
        if (number > most)
            most = number;
        shared_calls++;
    }
    each(numbers, count, add);
    return sum + most;
}
__attribute__((noinline)) static int nearest(int *numbers, int count, int wanted)
{
    int compared = 0;
    int order(const void *a, const void *b)
    {
        int left = abs(*(const int *)a - wanted), right = abs(*(const int *)b - wanted);
        compared++;
        return left - right;
    }
    qsort(numbers, count, sizeof *numbers, order);
    shared_calls += compared;
    return numbers[0];
}
int main(void)
{
    int numbers[10];
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < 10; i++)
            numbers[i] = (i * 37 + round * 11) % 100;
        shared_total += weighed(numbers, 10, round);
        shared_total += nearest(numbers, 10, round * 20);
    }
    printf("%ld %d\n", shared_total, shared_calls);
    return 0;
}

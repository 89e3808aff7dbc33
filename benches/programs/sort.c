/* A quicksort of pseudo-random numbers: its trace does not repeat. The argument is their count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 88172645463325252;

/* xorshift64 (Marsaglia) */
static uint32_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void sort(uint32_t *values, long count)
{
    while (count > 1) {
        uint32_t pivot = values[count / 2];
        long low = 0;
        long high = count - 1;
        while (low <= high) {
            while (values[low] < pivot)
                low++;
            while (values[high] > pivot)
                high--;
            if (low <= high) {
                uint32_t value = values[low];
                values[low++] = values[high];
                values[high--] = value;
            }
        }
        sort(values, high + 1);
        values += low;
        count -= low;
    }
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    uint32_t *values = malloc((size_t)count * sizeof *values);
    if (!values)
        return 1;
    for (long i = 0; i < count; i++)
        values[i] = random_number();
    sort(values, count);
    for (long i = 1; i < count; i++)
        if (values[i - 1] > values[i])
            return 1;
    puts("sorted");
    return 0;
}

/* qsort, a heap, and a merge sort. */
#include "end.h"
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static void sink(int *heap, int at, int count)
{
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[at] >= heap[child])
            return;
        int value = heap[at];
        heap[at] = heap[child];
        heap[child] = value;
    }
}

static void heap_sort(int *values, int count)
{
    for (int i = count / 2; i-- > 0;)
        sink(values, i, count);
    for (int i = count; i-- > 1;) {
        int value = values[0];
        values[0] = values[i];
        values[i] = value;
        sink(values, 0, i);
    }
}

static void merge_sort(int *values, int *other, int count)
{
    if (count < 2)
        return;
    int half = count / 2;
    merge_sort(values, other, half);
    merge_sort(values + half, other + half, count - half);
    int left = 0, right = half;
    for (int i = 0; i < count; i++)
        other[i] = right >= count || (left < half && values[left] <= values[right]) ? values[left++]
                                                                                    : values[right++];
    memcpy(values, other, count * sizeof *values);
}

int main(void)
{
    enum { COUNT = 260 };
    static int a[COUNT], b[COUNT], c[COUNT], other[COUNT];
    for (int i = 0; i < COUNT; i++)
        a[i] = b[i] = c[i] = (int)(i * 2654435761u >> 16);
    qsort(a, COUNT, sizeof *a, by_value);
    heap_sort(b, COUNT);
    merge_sort(c, other, COUNT);
    unsigned long sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum = sum * 31 + (a[i] ^ b[i]) + c[i];
    fall_down(sum);
}

/* printf in many forms. */
#include "end.h"
#include <stdio.h>
#include <string.h>

struct order {
    const char *item;
    int count;
    double price;
};

static int describe(char *into, size_t size, const struct order *order)
{
    return snprintf(into, size, "%-10s %5d x %8.2f = %#x", order->item, order->count, order->price,
                    (unsigned)(order->count * order->price));
}

int main(void)
{
    static const char *const names[] = { "bolt", "nut", "washer", "thread", "spring" };
    char line[100];
    unsigned long sum = 0;
    for (int i = 0; i < 60; i++) {
        struct order order = { names[i % 5], i * 17 % 23, i * 1.25 };
        int length = describe(line, sizeof line, &order);
        for (int k = 0; k < length; k++)
            sum = sum * 33 + line[k];
    }
    fall_down(sum);
}

/* Doubly linked lists: insertion in order, removal, reversal, allocation. */
#include "end.h"
#include <stdlib.h>

struct item {
    struct item *next, *before;
    long value;
};

static struct item *first;
static unsigned long seed = 12345;

static long random_number(void)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return seed >> 40 & 0xfff;
}

static void insert(long value)
{
    struct item **place = &first, *before = NULL;
    while (*place && (*place)->value < value) {
        before = *place;
        place = &before->next;
    }
    struct item *item = malloc(sizeof *item);
    item->value = value;
    item->next = *place;
    item->before = before;
    if (item->next)
        item->next->before = item;
    *place = item;
}

static void take_out(struct item *item)
{
    if (item->before)
        item->before->next = item->next;
    else
        first = item->next;
    if (item->next)
        item->next->before = item->before;
    free(item);
}

static struct item *reversed(struct item *list)
{
    struct item *out = NULL;
    while (list) {
        struct item *next = list->next;
        list->next = out;
        if (out)
            out->before = list;
        list->before = NULL;
        out = list;
        list = next;
    }
    return out;
}

int main(void)
{
    unsigned long sum = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 90; i++)
            insert(random_number());
        for (struct item *item = first, *next; item; item = next) {
            next = item->next;
            if (item->value % 3 == 0)
                take_out(item);
        }
        first = reversed(reversed(first));
        for (struct item *item = first; item; item = item->next)
            sum = sum * 31 + item->value;
    }
    fall_down(sum);
}

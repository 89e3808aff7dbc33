// The second core: writes numbers into a ring of text and waits for an interrupt.

#include "shop.h"

typedef float vector __attribute__((vector_size(16)));

struct ring {
    unsigned head, tail;
    char text[32];
};

static struct ring ring = {.head = 0, .text = "log: "};
volatile int log_is_waiting;

static void put(struct ring *to, char c)
{
    to->text[(5 + to->head++) % sizeof to->text] = c;
}

static unsigned wait_for_reader(struct ring *from, unsigned timeout)
{
    unsigned unread = from->head - from->tail;
    vector level = {unread / 32.0f, 1.0f, -0.5f, 0.0f};
    level = level * level + (vector){0.0f, 0.5f, 0.25f, 2.0f};
    log_is_waiting = 1;
    while (from->tail != from->head && timeout--)
        __asm__ volatile("wfi");
    return unread;
}

// Decimal digits, most significant first; the last digit waits for the reader.
static int put_decimal(struct ring *to, unsigned long value, int digits)
{
    int before = 0;
    if (value >= 10)
        before = put_decimal(to, value / 10, digits + 1);
    put(to, '0' + value % 10);
    if (digits == 0)
        wait_for_reader(to, 100);
    return before + 1;
}

void second_main(unsigned long seed)
{
    struct { unsigned long state; int rounds; } random = {seed, 3};
    for (;;) {
        random.state = random.state * 6364136223846793005ul + 1442695040888963407ul;
        put_decimal(&ring, random.state >> 48, 0);
        put(&ring, random.rounds-- > 0 ? ' ' : '\n');
    }
}

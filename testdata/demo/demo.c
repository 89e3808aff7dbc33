// The program of `armsnap demo`: a shop adds up its open orders, and crashes at one that was spoiled
// long before.

struct item {
    const char *name;
    int price;
};
struct order {
    int pieces;
    const struct item *item;
};

static const struct item pen = {"pen", 120}, ink = {"ink", 450}, paper = {"paper", 80};
static struct order orders[4];

__attribute__((noinline)) static void place(int number, int pieces, const struct item *item) {
    orders[number].pieces = pieces;
    orders[number].item = item;
}

// Orders are counted from 1 by customers, from 0 in the table.
__attribute__((noinline)) static void cancel(int number) {
    orders[number - 1].pieces = 0;
    orders[number].item = 0;
}

__attribute__((noinline)) static int price(const struct order *order) {
    return order->pieces * order->item->price;
}

__attribute__((noinline)) static int total(void) {
    int sum = 0;
    for (int i = 0; i < 4; i++)
        if (orders[i].pieces > 0)
            sum += price(&orders[i]);
    return sum;
}

int shop(void) {
    place(0, 2, &pen);
    place(1, 1, &ink);
    place(2, 5, &paper);
    place(3, 3, &pen);
    cancel(2);
    return total();
}

// Without a C library: the entry, and Linux' exit_group with the total.
__asm__(".global _start\n .type _start, %function\n"
        "_start: mov x29, #0\n mov x30, #0\n bl shop\n mov x8, #94\n svc #0\n");

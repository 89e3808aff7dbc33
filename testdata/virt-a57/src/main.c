// The first core sorts orders into a search tree and prices them; the second keeps a log.

#include "shop.h"

static struct order book[] = {
    {1007, "kettle", {3, 0, 2}, 19.5},
    {1003, "teapot", {1, 1, 0}, 32.25},
    {1011, "saucer", {12, 6, 6}, 2.75},
    {1009, "strainer", {0, 4, 1}, 5.5},
    {1010, "tray", {2, 2, 2}, 14.125},
};

static struct node nodes[sizeof book / sizeof book[0]];
static unsigned nodes_used;

static struct node *insert(struct node *at, const struct order *order)
{
    if (!at) {
        struct node *fresh = &nodes[nodes_used++];
        fresh->order = order;
        return fresh;
    }
    if (order->id < at->order->id)
        at->left = insert(at->left, order);
    else
        at->right = insert(at->right, order);
    return at;
}

// Where the first core is halted.
static void receipt(const struct price *price, const char *item)
{
    int length = 0;
    while (item[length])
        length++;
    __asm__ volatile("halt_here: nop" : : "r"(price), "r"(length) : "memory");
}

static double discount(const struct order *order, enum grade grade, int pieces)
{
    static const double rate[] = {[BRONZE] = 0.0, [SILVER] = 0.125, [GOLD] = 0.25};
    double full = pieces * order->price;
    double part = full * rate[grade];
    char mark[4] = {'n', 'e', 't', 0};
    struct price price = {full, full - part, mark[0]};
    receipt(&price, order->item);
    return price.net;
}

static double price_order(const struct order *order, enum grade grade)
{
    int pieces = 0;
    for (unsigned shelf = 0; shelf < SHELVES; shelf++)
        pieces += order->count[shelf];
    return discount(order, grade, pieces);
}

// Prices the tree in order and stops at the deepest order.
static double price_tree(const struct node *at, enum grade grade, unsigned depth)
{
    if (!at)
        return 0.0;
    double here = 0.0, left = 0.0, right = 0.0;
    if (!at->left && !at->right && depth > 2)
        here = price_order(at->order, grade);
    left = price_tree(at->left, grade, depth + 1);
    right = price_tree(at->right, grade, depth + 1);
    return here + left + right;
}

static long start_second_core(void)
{
    register long x0 __asm__("x0") = (long)PSCI_CPU_ON;
    register long x1 __asm__("x1") = 1;
    register long x2 __asm__("x2") = (long)second_start;
    register long x3 __asm__("x3") = 0x5eed;
    __asm__ volatile("hvc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}

int main(void)
{
    struct shop shop = {.name = "The Copper Kettle", .grade = SILVER};
    for (unsigned i = 0; i < sizeof book / sizeof book[0]; i++)
        shop.root = insert(shop.root, &book[i]);
    long status = start_second_core();
    while (status == 0 && !log_is_waiting)
        __asm__ volatile("yield");
    shop.total = price_tree(shop.root, shop.grade, 0);
    return status == 0 ? 0 : 1;
}

/* Lists, structures, tables, strings, floating-point numbers and recursion, with libc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct item {
    int key;
    long value;
    struct item *next;
    char name[12];
};
struct point { double x, y; };
struct wide { struct point corners[3]; short kind; unsigned flags : 5, mode : 3; };

struct item *shared_head;
int shared_counter;
double shared_mean;
unsigned char shared_bytes[64];
struct wide shared_wide;
static long (*shared_table[3])(long, long);

__attribute__((noinline)) static struct item *add(int key, const char *name)
{
    struct item *item = malloc(sizeof *item);
    item->key = key;
    item->value = key * 3L;
    item->next = shared_head;
    strncpy(item->name, name, sizeof item->name - 1);
    item->name[11] = 0;
    shared_head = item;
    shared_counter++;
    return item;
}
__attribute__((noinline)) static long sum(const struct item *list, int limit)
{
    long total = 0;
    for (; list && limit-- > 0; list = list->next) {
        total += list->value;
        shared_bytes[limit & 63] = total;
        shared_mean = (shared_mean + total) / 2.0;
    }
    return total;
}
static long plus(long a, long b) { return a + b; }
static long minus(long a, long b) { return a - b; }
static long mixed(long a, long b) { return a * 31 ^ b; }

__attribute__((noinline)) static struct wide turned(struct wide wide, int times)
{
    for (int i = 0; i < times; i++) {
        struct point first = wide.corners[0];
        wide.corners[0] = wide.corners[1];
        wide.corners[1] = wide.corners[2];
        wide.corners[2] = first;
        wide.flags++;
        wide.mode ^= times;
    }
    wide.kind += times;
    return wide;
}
__attribute__((noinline)) static int depth(int n, int *out)
{
    int here = n * 2;
    if (n > 0)
        here += depth(n - 1, &here);
    *out += here & 7;
    return here;
}
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline)) static int sorted(unsigned seed)
{
    int numbers[16], seen = 0;
    for (int i = 0; i < 16; i++) {
        seed = seed * 1103515245 + 12345;
        numbers[i] = seed >> 16 & 1023;
    }
    qsort(numbers, 16, sizeof *numbers, order);
    for (int i = 1; i < 16; i++)
        seen += numbers[i] - numbers[i - 1];
    return seen;
}
int main(int argc, char **argv)
{
    char text[32];
    long all = argc;
    shared_table[0] = plus;
    shared_table[1] = minus;
    shared_table[2] = mixed;
    for (int i = 0; i < 3; i++)
        shared_wide.corners[i] = (struct point){ i + 0.5, i * 2 };
    for (int i = 0; i < 8; i++) {
        snprintf(text, sizeof text, "item %d", i);
        struct item *item = add(i, text);
        all = shared_table[i % 3](all, sum(item, i));
        shared_wide = turned(shared_wide, i & 3);
        shared_counter += depth(i, &shared_counter);
        all += sorted(i + 1);
    }
    printf("%ld %f %d\n", all, shared_mean, shared_counter);
    return 0;
}

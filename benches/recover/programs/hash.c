/* An open hash table with strings as keys, which grows. */
#include "end.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *key;
    long count;
};

struct table {
    struct entry *entries;
    size_t used, size;
};

static size_t hash(const char *key)
{
    size_t value = 14695981039346656037ul;
    for (; *key; key++)
        value = (value ^ (unsigned char)*key) * 1099511628211ul;
    return value;
}

static struct entry *find(struct table *table, const char *key)
{
    size_t at = hash(key) & (table->size - 1);
    while (table->entries[at].key && strcmp(table->entries[at].key, key) != 0)
        at = (at + 1) & (table->size - 1);
    return &table->entries[at];
}

static void grow(struct table *table)
{
    struct table larger = { calloc(table->size * 2, sizeof(struct entry)), table->used, table->size * 2 };
    for (size_t i = 0; i < table->size; i++)
        if (table->entries[i].key)
            *find(&larger, table->entries[i].key) = table->entries[i];
    free(table->entries);
    *table = larger;
}

static void count(struct table *table, const char *key)
{
    struct entry *entry = find(table, key);
    if (!entry->key) {
        entry->key = strdup(key);
        if (++table->used * 2 > table->size) {
            entry->count = 1;
            grow(table);
            return;
        }
    }
    entry->count++;
}

int main(void)
{
    struct table table = { calloc(8, sizeof(struct entry)), 0, 8 };
    char key[24];
    unsigned long sum = 0;
    for (unsigned i = 0; i < 700; i++) {
        unsigned number = i * 2654435761u >> 24;
        int length = 0;
        do
            key[length++] = 'a' + number % 26;
        while (number /= 26);
        key[length] = 0;
        count(&table, key);
    }
    for (size_t i = 0; i < table.size; i++)
        if (table.entries[i].key)
            sum = sum * 7 + table.entries[i].count + table.entries[i].key[0];
    fall_down(sum);
}

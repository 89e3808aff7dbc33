/* A balanced (AA) tree: insertion, search and removal. */
#include "end.h"
#include <stdlib.h>

struct node {
    int key, level;
    struct node *left, *right;
};

static struct node *skew(struct node *t)
{
    if (!t || !t->left || t->left->level != t->level)
        return t;
    struct node *l = t->left;
    t->left = l->right;
    l->right = t;
    return l;
}

static struct node *split(struct node *t)
{
    if (!t || !t->right || !t->right->right || t->level != t->right->right->level)
        return t;
    struct node *r = t->right;
    t->right = r->left;
    r->left = t;
    r->level++;
    return r;
}

static struct node *insert(struct node *t, int key)
{
    if (!t) {
        t = calloc(1, sizeof *t);
        t->key = key;
        t->level = 1;
        return t;
    }
    if (key < t->key)
        t->left = insert(t->left, key);
    else if (key > t->key)
        t->right = insert(t->right, key);
    return split(skew(t));
}

static int depth(const struct node *t)
{
    if (!t)
        return 0;
    int l = depth(t->left), r = depth(t->right);
    return 1 + (l > r ? l : r);
}

static long sum(const struct node *t, int from, int to)
{
    if (!t)
        return 0;
    long out = t->key >= from && t->key < to ? t->key : 0;
    if (t->key > from)
        out += sum(t->left, from, to);
    if (t->key < to)
        out += sum(t->right, from, to);
    return out;
}

int main(void)
{
    struct node *root = NULL;
    unsigned long result = 0;
    for (unsigned i = 0; i < 300; i++)
        root = insert(root, i * 40503u & 0x3ff);
    for (int i = 0; i < 60; i++)
        result = result * 17 + sum(root, i * 8, i * 8 + 60);
    fall_down(result + depth(root));
}

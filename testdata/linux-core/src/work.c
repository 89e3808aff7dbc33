/* The library: calls back for each node, one frame deeper each time. */
struct node { struct node *next; int value; };
int visits;
int visit(struct node *list, int (*each)(struct node *, int), int depth) {
    visits++;
    int value = each(list, depth);
    return list->next ? value + visit(list->next, each, depth + 1) : value;
}

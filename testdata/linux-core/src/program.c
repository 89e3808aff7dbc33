/* Walks a list through a library, whose callback crashes. */
struct node { struct node *next; int value; };
extern int visit(struct node *list, int (*each)(struct node *, int), int depth);
static struct node third = {0, 30}, second = {&third, 20}, first = {&second, 10};
static int sum;
static int add(struct node *node, int depth) {
    sum += node->value;
    if (node->value == 30)
        *(volatile int *)8 = sum + depth;
    return sum;
}
int main(void) { return visit(&first, add, 0); }
void _start(void) { main(); for (;;) ; }

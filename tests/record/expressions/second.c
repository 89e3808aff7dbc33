struct opaque { long key; struct opaque *next; };
static int count = 22; int shared = 5; static int lonely = 9;
static struct opaque two = { 8, 0 }, one = { 7, &two };
struct opaque *hidden = &one;
extern volatile int sink;
__attribute__((noinline)) int second(int n) { count += n; lonely++; extern int shared; shared++; return count + shared + (int)one.key; }

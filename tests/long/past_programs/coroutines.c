/* Generators on stacks of their own: switched by libc, or with OWN_SWITCH by the program. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

struct generator {
    long next, limit, yielded;
    int done;
#ifdef OWN_SWITCH
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    char *stack;
};
long shared_order[64];
int shared_count;
static struct generator *current;

#ifdef OWN_SWITCH
static void *main_stack_pointer;
void change(void **save, void *load);
#ifdef __aarch64__
__asm__(".text\n.global change\n.type change, %function\nchange:\n"
        " stp x29, x30, [sp, #-160]!\n stp x19, x20, [sp, #16]\n stp x21, x22, [sp, #32]\n"
        " stp x23, x24, [sp, #48]\n stp x25, x26, [sp, #64]\n stp x27, x28, [sp, #80]\n"
        " stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
        " mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        " ldp x19, x20, [sp, #16]\n ldp x21, x22, [sp, #32]\n ldp x23, x24, [sp, #48]\n"
        " ldp x25, x26, [sp, #64]\n ldp x27, x28, [sp, #80]\n ldp d8, d9, [sp, #96]\n"
        " ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp x29, x30, [sp], #160\n ret\n");
enum { FRAME = 20, LINK = 1 };
#else
__asm__(".text\n.arm\n.global change\n.type change, %function\nchange:\n"
        " push {r4-r11, ip, lr}\n str sp, [r0]\n mov sp, r1\n pop {r4-r11, ip, lr}\n bx lr\n"
#ifdef __thumb__
        ".thumb\n"
#endif
        );
enum { FRAME = 10, LINK = 9 };
#endif
static void to(struct generator *generator) { change(&main_stack_pointer, generator->stack_pointer); }
static void back(struct generator *generator) { change(&generator->stack_pointer, main_stack_pointer); }
#else
static ucontext_t main_context;
static void to(struct generator *generator) { swapcontext(&main_context, &generator->context); }
static void back(struct generator *generator) { swapcontext(&generator->context, &main_context); }
#endif

__attribute__((noinline)) static void yields(long value)
{
    shared_order[shared_count++ & 63] = value;
    current->yielded = value;
    back(current);
}
__attribute__((noinline)) static void walk(long from, long limit, int depth)
{
    long middle = (from + limit) / 2;
    if (limit - from < 2 || depth > 4) {
        yields(from * 10 + depth);
        return;
    }
    walk(from, middle, depth + 1);
    walk(middle, limit, depth + 1);
}
static void start(void)
{
    struct generator *self = current;
    walk(self->next, self->limit, 0);
    self->done = 1;
    back(self);
}
__attribute__((noinline)) static struct generator *generator(long from, long limit)
{
    enum { SIZE = 65536 };
    struct generator *made = calloc(1, sizeof *made);
    made->next = from;
    made->limit = limit;
    made->stack = malloc(SIZE);
#ifdef OWN_SWITCH
    long *top = (long *)((unsigned long)(made->stack + SIZE) & ~15ul) - FRAME;
    for (int i = 0; i < FRAME; i++)
        top[i] = 0;
    top[LINK] = (long)start;
    made->stack_pointer = top;
#else
    getcontext(&made->context);
    made->context.uc_stack.ss_sp = made->stack;
    made->context.uc_stack.ss_size = SIZE;
    makecontext(&made->context, start, 0);
#endif
    return made;
}
__attribute__((noinline)) static int resume(struct generator *generator)
{
    current = generator;
    to(generator);
    return !generator->done;
}
int main(void)
{
    struct generator *all[3] = { generator(0, 6), generator(100, 103), generator(40, 48) };
    long sum = 0;
    for (int alive = 1; alive;) {
        alive = 0;
        for (int i = 0; i < 3; i++) {
            if (!all[i]->done && resume(all[i])) {
                sum = sum * 3 + all[i]->yielded;
                alive++;
            }
        }
    }
    printf("%ld %d\n", sum, shared_count);
    return 0;
}

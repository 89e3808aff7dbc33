volatile int sink;
int shared = 1;
int x = 100;
struct Base {
    static int shared;
};
int Base::shared = 2;
enum class Small : signed char { negative = -3 };
struct Derived : Base {
    Small small : 4;
    static int halt(int x);
};
Derived made;
__attribute__((noinline)) int Derived::halt(int x)
{
    sink = x + shared;
    *(volatile int *)(long)(sink & 0) = 5;
    return x;
}
extern "C" void work()
{
    made.small = Small::negative;
    sink = Derived::halt(41);
}

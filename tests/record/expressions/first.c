struct bits { unsigned a : 3; int b : 5; unsigned c : 11; unsigned char d : 2; unsigned long e : 40; int f : 7; unsigned g; };
struct bits packed = { 5, -7, 0x5a3, 2, 0x123456789aul, -3, 77 };
struct opaque; extern struct opaque *hidden; extern int shared;
static int count = 11; static int twice[3] = {1,2,3};
static const int fixed = 42;
volatile int sink;
union u { int whole; struct { short low, high; }; } both = { 0x12345678 };
int *middle = twice + 1;
__attribute__((noinline)) int counter(int by) { static int total = 100; total += by; return total; }
__attribute__((noinline)) int inner(int x, int n) {
  int sum = x;
  for (int i = 0; i < n; i++) {
    int x = i * 10;
    sum += x;
    { int x = sum + 1; sink = x; }
    sink += x;
  }
  { int i = 7; sink += i; }
  return sum + x;
}
static inline __attribute__((always_inline)) int helper(int x) { int sum = x + 3; sink = sum; return sum * 2; }
__attribute__((noinline)) int uses(int a) { int sum = a * 2; int y = helper(a + 100); sink = y; count += sum; return sum + y; }
extern int second(int);
void work(void) { sink = counter(5) + inner(3, 2) + uses(4) + second(count) + fixed; packed.b = 3; packed.c++; counter(6); }

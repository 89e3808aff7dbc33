struct Base { int id = 1; int common = 4; virtual ~Base(); };
Base::~Base() {}
struct Left : virtual Base { int left = 2; };
struct Right : virtual Base { int right = 3; };
struct Both : Left, Right { int both = 5; static int made; int sum(int more); };
int Both::made = 6;
struct A1 { int v = 8; int a = 1; }; struct B1 { int v = 9; int b = 2; };
struct Multi : A1, B1 { int m = 3; int get(int k) { return m + k; } };
namespace first { int count = 1; static int hidden = 31; namespace inner { int count = 2; int f(int x) { return x + count + hidden; } } int g(int x) { return x + count; } }
namespace { int secret = 50; }
volatile int sink;
int target = 77; int &ref = target; 
struct Holder { int &r; int x; }; Holder holder = { target, 3 };
int Multi::*pm = &Multi::b; int Multi::*pn = &Multi::m; Multi multi; Multi *pmulti = &multi;
__attribute__((noinline)) int byref(int &n, const Multi &m) { n += m.b; sink = n; return n; }
int Both::sum(int more) { int all = left + right + id + both + more; made++; sink = all; return all; }
template <class T> struct Box { T value; static T zero; T get() { return value + zero; } };
template <class T> T Box<T>::zero = 3;
Box<int> box = { 12 };
__attribute__((noinline)) int pass(Both *b) { return b->sum(10); }
void __attribute__((used)) work() __asm__("work");
void work() { Both both; Both *p = &both; int local = 5; sink = byref(local, multi) + pass(p) + first::inner::f(3) + first::g(2) + multi.get(4) + box.get() + secret + ref; }
extern "C" void *memset(void *p, int c, unsigned long n) { volatile char *q = (char *)p; while (n--) *q++ = c; return p; }
extern "C" void __cxa_pure_virtual() {} 
void operator delete(void *, unsigned long) {} void operator delete(void *) {}

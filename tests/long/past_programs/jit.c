/* Code that the program writes, twice to the same place, with data beside it on the page. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct page { unsigned code[24]; volatile long calls, results[8]; unsigned more[16]; };
long shared_total;
int shared_versions;
static struct page *page;

#ifdef __aarch64__
enum { ADD = 0x91000000, SUB = 0xd1000000, TWICE = 0x8b000000, RETURN = 0xd65f03c0 };
static unsigned immediate(unsigned base, unsigned n) { return base | n << 10; }
#else
enum { ADD = 0xe2800000, SUB = 0xe2400000, TWICE = 0xe0800000, RETURN = 0xe12fff1e };
static unsigned immediate(unsigned base, unsigned n) { return base | n; }
#endif

__attribute__((noinline)) static long (*compile(unsigned *into, const char *text))(long)
{
    unsigned *out = into;
    for (const char *at = text; *at; at++) {
        switch (*at) {
        case '+': *out++ = immediate(ADD, at[1] - '0'); break;
        case '-': *out++ = immediate(SUB, at[1] - '0'); break;
        case '*': *out++ = TWICE; break;
        }
    }
    *out++ = RETURN;
    __builtin___clear_cache((char *)into, (char *)out);
    shared_versions++;
    return (long (*)(long))into;
}
__attribute__((noinline)) static long calls(long (*function)(long), long n)
{
    long sum = 0;
    for (int i = 0; i < 6; i++) {
        long result = function(n + i);
        page->calls++;
        page->results[i & 7] = result + sum;
        sum += result;
    }
    return sum;
}
int main(void)
{
    static const char *const texts[] = { "+3*", "*+1-2*", "-1", "**+9" };
    page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++) {
        shared_total += calls(compile(page->code, texts[i]), i * 10);
        shared_total -= calls(compile(page->more, texts[3 - i]), i);
    }
    memset((void *)page->results, 0, sizeof page->results);
    printf("%ld %ld\n", shared_total, page->calls);
    return 0;
}

// Exceptions through several calls, with destructors on their way, thrown again and nested.
#include <cstdio>
#include <stdexcept>
#include <string>

int shared_destroyed;
long shared_total;
int shared_caught[8];

struct Guard {
    int number;
    long *out;
    explicit Guard(int number, long *out) : number(number), out(out) { *out += number; }
    ~Guard() { shared_destroyed++; *out -= number * 2; }
};
struct Problem : std::runtime_error {
    int code;
    Problem(int code, const std::string &text) : std::runtime_error(text), code(code) {}
};
__attribute__((noinline)) static long deep(int depth, int fails)
{
    long local = depth * 3;
    Guard guard(depth, &local);
    if (depth == fails)
        throw Problem(depth, "deep enough");
    if (depth == 0)
        return local;
    return local + deep(depth - 1, fails);
}
__attribute__((noinline)) static long passes(int depth, int fails)
{
    long kept = depth + fails;
    try {
        return deep(depth, fails) + kept;
    } catch (const Problem &problem) {
        shared_caught[problem.code & 7]++;
        if (problem.code % 2)
            throw;
        kept += problem.code;
    }
    return kept;
}
__attribute__((noinline)) static long tries(int round)
{
    long sum = round;
    for (int fails = 0; fails < 6; fails++) {
        try {
            Guard guard(fails, &sum);
            sum += passes(4, fails);
        } catch (const std::exception &error) {
            sum += error.what()[0];
        }
        try {
            if (fails & 1)
                throw fails;
        } catch (int number) {
            sum += number;
        }
    }
    return sum;
}
int main()
{
    for (int round = 0; round < 3; round++)
        shared_total += tries(round);
    std::printf("%ld %d\n", shared_total, shared_destroyed);
}

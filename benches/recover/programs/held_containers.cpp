// Containers of the C++ library: map, vector, string, algorithms.
#include "end.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

struct Visitor {
    virtual ~Visitor() = default;
    virtual unsigned long visit(const std::string &key, int value) = 0;
};

struct Sum : Visitor {
    unsigned long total = 0;
    unsigned long visit(const std::string &key, int value) override
    {
        return total = total * 31 + key.size() * value + key.back();
    }
};

int main()
{
    std::map<std::string, int> counts;
    std::vector<int> numbers(150);
    std::iota(numbers.begin(), numbers.end(), 1);
    for (int &number : numbers)
        number = number * 7919 % 1009;
    std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return a % 10 < b % 10; });
    for (int number : numbers)
        counts["key number " + std::to_string(number % 40)] += number;
    Sum sum;
    Visitor &visitor = sum;
    for (const auto &[key, value] : counts)
        visitor.visit(key, value);
    fall_down(sum.total);
}

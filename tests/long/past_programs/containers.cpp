// Containers, strings, virtual functions, lambdas and templates.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

long shared_total;
double shared_area;
int shared_calls;

struct Shape {
    int id;
    explicit Shape(int id) : id(id) {}
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Box : Shape {
    double width, height;
    Box(int id, double width, double height) : Shape(id), width(width), height(height) {}
    double area() const override { shared_calls++; return width * height; }
};
struct Round : Shape {
    float radius;
    Round(int id, float radius) : Shape(id), radius(radius) {}
    double area() const override { shared_calls += 2; return radius * radius * 3; }
};
template <typename T, typename F> __attribute__((noinline)) static T folded(const std::vector<T> &all, T start, F each)
{
    T out = start;
    for (const T &one : all)
        out = each(out, one);
    return out;
}
__attribute__((noinline)) static double area(const std::vector<std::unique_ptr<Shape>> &shapes)
{
    double sum = 0;
    for (const auto &shape : shapes)
        sum += shape->area() + shape->id;
    return sum;
}
__attribute__((noinline)) static int words(const std::string &text, std::map<std::string, int> &counts)
{
    std::string word;
    for (char c : text + " ") {
        if (c == ' ') {
            if (!word.empty())
                counts[word]++;
            word.clear();
        } else {
            word += c;
        }
    }
    return counts.size();
}
int main()
{
    std::vector<std::unique_ptr<Shape>> shapes;
    std::map<std::string, int> counts;
    for (int i = 0; i < 6; i++) {
        if (i & 1)
            shapes.push_back(std::make_unique<Round>(i, i + 0.5f));
        else
            shapes.push_back(std::make_unique<Box>(i, i, i + 2.0));
    }
    for (int round = 0; round < 3; round++) {
        shared_area += area(shapes);
        shared_total += words("one two three one two one", counts);
        std::vector<long> numbers;
        for (int i = 0; i < 12; i++)
            numbers.push_back((i * 37 + round * 5) % 50);
        std::sort(numbers.begin(), numbers.end(), [&](long a, long b) { shared_calls++; return a > b; });
        std::function<long(long, long)> each = [round](long sum, long n) { return sum * 3 + n + round; };
        shared_total += folded(numbers, 1L, each) & 0xffff;
    }
    for (const auto &[word, count] : counts)
        shared_total += word.size() * count;
    std::printf("%ld %f %d\n", shared_total, shared_area, shared_calls);
}

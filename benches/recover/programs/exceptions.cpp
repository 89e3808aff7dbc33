// Exceptions through several frames, with destructors, and a C++ string.
#include "end.h"
#include <stdexcept>
#include <string>
#include <vector>

struct Guard {
    int &open;
    explicit Guard(int &count) : open(count) { open++; }
    ~Guard() { open--; }
};

static int opened;

static int parse(const std::string &text, size_t at)
{
    Guard guard(opened);
    if (at >= text.size())
        return 0;
    if (text[at] == '!')
        throw std::invalid_argument("at " + std::to_string(at));
    return text[at] - '0' + parse(text, at + 1);
}

int main()
{
    unsigned long sum = 0;
    std::vector<std::string> texts;
    for (int i = 0; i < 12; i++)
        texts.push_back(std::to_string(i * 7919) + (i % 6 ? "" : "!") + "17");
    for (const std::string &text : texts) {
        try {
            sum = sum * 31 + parse(text, 0);
        } catch (const std::invalid_argument &error) {
            sum = sum * 37 + error.what()[3] + opened;
        }
    }
    fall_down(sum);
}

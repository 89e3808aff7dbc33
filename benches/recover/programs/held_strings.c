/* String functions of the library: strlen, memchr, strcpy, strcat, strstr, strtok, memmove. */
#include "end.h"
#include <stdlib.h>
#include <string.h>

static char text[4000];

static unsigned long words(char *line)
{
    unsigned long sum = 0;
    for (char *word = strtok(line, " ,"); word; word = strtok(NULL, " ,"))
        sum = sum * 31 + strlen(word) * 256 + (unsigned char)word[0];
    return sum;
}

static void replace(char *line, const char *what, const char *with)
{
    for (char *at = line; (at = strstr(at, what)) != NULL; at += strlen(with)) {
        memmove(at + strlen(with), at + strlen(what), strlen(at + strlen(what)) + 1);
        memcpy(at, with, strlen(with));
    }
}

int main(void)
{
    static const char *const parts[] = { "the store", "who wrote", "this, then", "came a crash" };
    unsigned long sum = 0;
    for (int i = 0; i < 40; i++) {
        strcat(text, parts[i % 4]);
        strcat(text, i % 5 ? " " : ", ");
    }
    for (int i = 0; i < 10; i++) {
        char *line = strdup(text);
        line[200 + i * 10] = 0;
        char copy[1000];
        strcpy(copy, line);
        replace(copy, "store", i % 2 ? "value" : "st");
        sum += words(copy);
        sum = sum * 3 + (memchr(line, ',', strlen(line)) != NULL) + strcmp(copy, line);
        free(line);
    }
    fall_down(sum);
}

/* Recursion: Ackermann's function, permutations, queens. */
#include "end.h"

static int ackermann(int m, int n)
{
    if (m == 0)
        return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static int queens(int row, int size, int *columns)
{
    if (row == size)
        return 1;
    int found = 0;
    for (int column = 0; column < size; column++) {
        int free = 1;
        for (int before = 0; before < row && free; before++) {
            int distance = columns[before] - column;
            free = distance != 0 && distance != row - before && distance != before - row;
        }
        if (free) {
            columns[row] = column;
            found += queens(row + 1, size, columns);
        }
    }
    return found;
}

static unsigned long permute(char *letters, int from, int count)
{
    if (from == count)
        return (unsigned long)letters[0] * 31 + letters[count - 1];
    unsigned long sum = 0;
    for (int i = from; i < count; i++) {
        char letter = letters[from];
        letters[from] = letters[i];
        letters[i] = letter;
        sum = sum * 3 + permute(letters, from + 1, count);
        letters[i] = letters[from];
        letters[from] = letter;
    }
    return sum;
}

int main(void)
{
    int columns[8];
    char letters[] = "abcdef";
    unsigned long sum = ackermann(2, 9);
    sum = sum * 100 + queens(0, 6, columns);
    fall_down(sum + permute(letters, 0, 6));
}

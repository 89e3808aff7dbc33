/* Matrices and a series in floating point. */
#include "end.h"

#define N 14
static double a[N][N], b[N][N], c[N][N];

static double series(double x, int terms)
{
    double sum = 0, term = 1;
    for (int i = 1; i <= terms; i++) {
        sum += term;
        term *= x / i;
    }
    return sum;
}

static void multiply(double (*into)[N], double (*left)[N], double (*right)[N])
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += left[i][k] * right[k][j];
            into[i][j] = sum;
        }
}

int main(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = series(0.1 * i - 0.07 * j, 12);
            b[i][j] = i == j ? 1.0 : 1.0 / (1 + i + j);
        }
    for (int round = 0; round < 4; round++) {
        multiply(c, a, b);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                a[i][j] = c[i][j] / (1.0 + (c[i][j] < 0 ? -c[i][j] : c[i][j]));
    }
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += a[i][N - 1 - i];
    fall_down((unsigned long)(sum * 1000));
}

// A hundred million instructions and more that check themselves: primes below a million, and the
// CRC-32 of the sieve.
// build a64 a32 t32
// exit 0
#include "linux.h"

#define SIZE 1000000
#define WHOLE 0x492e8601u
static uint8_t composite[SIZE + 4];

__attribute__((noinline)) static unsigned primes(void) {
    for (unsigned i = 0; i < SIZE; i++)
        composite[i] = 0;
    unsigned count = 0;
    for (unsigned i = 2; i < SIZE; i++) {
        if (composite[i])
            continue;
        count++;
        for (unsigned j = 2 * i; j < SIZE; j += i)
            composite[j] = 1;
    }
    return count;
}

__attribute__((noinline)) static uint32_t crc(const uint8_t *data, unsigned length) {
    uint32_t sum = ~0u;
    while (length--) {
        sum ^= *data++;
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0xedb88320 : sum >> 1;
    }
    return ~sum;
}

int run(void) {
    if (crc((const uint8_t *)"123456789", 9) != 0xcbf43926)
        return 1;
    if (primes() != 78498)
        return 2;
    if (crc(composite, SIZE) != WHOLE)
        return 3;
    // The CRC over the data and the CRC is the same for all data.
    for (int i = 0; i < 4; i++)
        composite[SIZE + i] = WHOLE >> (8 * i);
    return crc(composite, SIZE + 4) == 0x2144df1c ? 0 : 4;
}

// A machine that interprets byte code: switch tables (T32: TBB; A32: a load of the PC).
// build a64 a32 t32
// exit 33
#include "linux.h"

enum { PUSH, ADD, SUB, XOR, DUP, SWAP, LESS, JUMP_IF, DROP, SHIFT, HALT };

static const uint8_t code[] = {
    PUSH, 1, PUSH, 0,                                    // sum, i
    DUP, PUSH, 3, XOR, SWAP, PUSH, 1, ADD, SWAP, DROP,   // 4: i++
    SWAP, PUSH, 13, ADD, SHIFT, PUSH, 5, XOR, SWAP,      // sum
    DUP, PUSH, 90, LESS, JUMP_IF, 4, DROP, HALT,
};

__attribute__((noinline)) static unsigned interpret(const uint8_t *program) {
    unsigned stack[8] = {0}, top = 0, at = 0, other;
    for (;;) {
        switch (program[at++]) {
        case PUSH: stack[top++ & 7] = program[at++]; break;
        case ADD: top--; stack[(top - 1) & 7] += stack[top & 7]; break;
        case SUB: top--; stack[(top - 1) & 7] -= stack[top & 7]; break;
        case XOR: top--; stack[(top - 1) & 7] ^= stack[top & 7]; break;
        case DUP: stack[top & 7] = stack[(top - 1) & 7]; top++; break;
        case SWAP:
            other = stack[(top - 1) & 7];
            stack[(top - 1) & 7] = stack[(top - 2) & 7];
            stack[(top - 2) & 7] = other;
            break;
        case LESS: top--; stack[(top - 1) & 7] = stack[(top - 1) & 7] < stack[top & 7]; break;
        case JUMP_IF: top--; at = stack[top & 7] ? program[at] : at + 1; break;
        case DROP: top--; break;
        case SHIFT: stack[(top - 1) & 7] = stack[(top - 1) & 7] * 2 + (stack[(top - 1) & 7] >> 31); break;
        default: return stack[0];
        }
    }
}

int run(void) {
    unsigned x = interpret(code);
    return (x ^ x >> 8 ^ x >> 16 ^ x >> 24) & 0xff;
}

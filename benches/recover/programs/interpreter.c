/* A machine with a stack that interprets a program: primes by trial division. */
#include "end.h"

enum code { PUSH, LOAD, STORE, ADD, SUB, MUL, REM, LESS, JUMP, BRANCH, CALL, RETURN, STOP };

struct machine {
    long stack[64], variables[8];
    int top, calls[16], depth;
};

static const int program[] = {
    PUSH, 2, STORE, 0,                               /* 0: n = 2 */
    LOAD, 0, PUSH, 90, LESS, BRANCH, 13, STOP, 0,   /* 4: while n < 90 */
    CALL, 27,                                        /* 13 */
    LOAD, 2, LOAD, 1, ADD, STORE, 1,                 /* 15: count += prime */
    LOAD, 0, PUSH, 1, ADD,                           /* 22 (continued at 49) */
    PUSH, 2, STORE, 3, PUSH, 1, STORE, 2,            /* 27: d = 2, prime = 1 */
    LOAD, 3, LOAD, 0, LESS, BRANCH, 43, RETURN,      /* 35: while d < n */
    LOAD, 0, LOAD, 3, REM, BRANCH, 55,               /* 43 */
    PUSH, 0, STORE, 2, RETURN,                       /* 50: divisible */
    LOAD, 3, PUSH, 1, ADD, STORE, 3, JUMP, 35,       /* 55 */
};

static long pop(struct machine *machine)
{
    return machine->stack[--machine->top];
}

static void push(struct machine *machine, long value)
{
    machine->stack[machine->top++] = value;
}

static long run(struct machine *machine, const int *code)
{
    long left, right;
    for (int pc = 0;;) {
        if (pc == 27 && machine->depth == 0) {
            /* What follows the addition at 22. */
            machine->variables[0] = pop(machine);
            pc = 4;
        }
        switch (code[pc++]) {
        case PUSH: push(machine, code[pc++]); break;
        case LOAD: push(machine, machine->variables[code[pc++]]); break;
        case STORE: machine->variables[code[pc++]] = pop(machine); break;
        case ADD: right = pop(machine), left = pop(machine), push(machine, left + right); break;
        case SUB: right = pop(machine), left = pop(machine), push(machine, left - right); break;
        case MUL: right = pop(machine), left = pop(machine), push(machine, left * right); break;
        case REM: right = pop(machine), left = pop(machine), push(machine, left % right); break;
        case LESS: right = pop(machine), left = pop(machine), push(machine, left < right); break;
        case JUMP: pc = code[pc]; break;
        case BRANCH: pc = pop(machine) ? code[pc] : pc + 1; break;
        case CALL: machine->calls[machine->depth++] = pc + 1, pc = code[pc]; break;
        case RETURN: pc = machine->calls[--machine->depth]; break;
        case STOP: return machine->variables[1];
        }
    }
}

int main(void)
{
    static struct machine machine;
    fall_down(run(&machine, program));
}

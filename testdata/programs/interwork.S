// A32 and T32 call each other: BLX by label and by register, BX LR, POP {PC}, LDR PC, LDM PC.
// build arm
// exit 54
    .syntax unified
    .global _start
    .type _start, %function

    .arm
_start:
    mov     r0, #0
    mov     r4, #6
1:  blx     t32_leaf            // BLX (immediate) to T32
    bl      a32_middle
    ldr     r3, =t32_middle
    blx     r3                  // BLX (register) to T32
    subs    r4, r4, #1
    bne     1b
    ldr     r3, =t32_tail
    bx      r3                  // BX to T32, never back
after:
    ldr     pc, =t32_exit       // a load of the PC, to T32

    .type a32_middle, %function
a32_middle:
    push    {r4, lr}
    blx     t32_leaf
    tst     r0, #1
    addne   r0, r0, #3
    ldrne   r1, =a32_leaf
    movne   lr, pc              // the old call
    movne   pc, r1
    pop     {r4, pc}

    .type a32_leaf, %function
a32_leaf:
    add     r0, r0, #2
    bx      lr

    .type a32_block, %function
a32_block:
    stmdb   sp!, {r4, r5, lr}
    add     r0, r0, #1
    ldmia   sp!, {r4, r5, pc}   // to T32: the address is odd

    .ltorg
    .thumb
    .type t32_leaf, %function
t32_leaf:
    adds    r0, #1
    bx      lr

    .type t32_middle, %function
t32_middle:
    push    {r4, lr}
    blx     a32_leaf            // BLX (immediate) to A32
    bl      t32_leaf
    blx     a32_block
    cmp     r0, #60
    bgt     2f
    nop.w
2:  pop     {r4, pc}            // to A32: the address is even

    .type t32_tail, %function
t32_tail:
    movs    r5, #9
3:  adds    r0, #2
    subs    r5, #1
    bne     3b
    ldr     r3, =after
    bx      r3

    .type t32_exit, %function
t32_exit:
    movs    r7, #248
    svc     #0
    udf     #0
    .ltorg

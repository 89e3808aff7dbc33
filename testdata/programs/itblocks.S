// IT blocks of all lengths, with branches, calls and returns at their ends; and conditional
// instructions of A32: calls, returns, loads of the PC.
// build arm
// exit 29
    .syntax unified
    .global _start
    .type _start, %function

    .thumb
_start:
    movs    r0, #0              // sum
    movs    r6, #0              // round
round:
    and     r1, r6, #7
    cmp     r1, #3
    it      eq                  // one
    addeq   r0, #1
    ite     lt                  // two: a call at the end
    addlt   r0, #2
    blge    bump
    itt     ne
    addne   r0, #1
    blne    early
    itete   hi                  // four
    addhi   r0, #5
    addls   r0, #6
    subhi   r0, #1
    eorls   r0, #1
    tst     r6, #2
    ittte   eq                  // four, with 32-bit instructions
    addeq.w r0, r0, #300
    eoreq.w r0, r0, r6
    lsreq   r0, r0, #1
    blne    bump
    tst     r6, #4
    itt     ne                  // a jump out of the block's end
    addne   r0, #1
    bne     over
    adds    r0, #9
over:
    cbz     r1, zero
    adds    r0, #1
zero:
    blx     conditional
    // A table branch.
    and     r2, r6, #3
    tbb     [pc, r2]
table:
    .byte   (case0 - table) / 2, (case1 - table) / 2, (case2 - table) / 2, (case3 - table) / 2
case0:
    adds    r0, #1
case1:
    adds    r0, #1
    b       next
case2:
    eor     r0, r0, #0x55
case3:
    adds    r0, #3
next:
    adds    r6, #1
    cmp     r6, #40
    blt.w   round
    ubfx    r1, r0, #8, #8
    eors    r0, r1
    uxtb    r0, r0
    movs    r7, #248
    svc     #0
    udf     #0

    .type bump, %function
bump:
    adds    r0, #7
    bx      lr

    // Returns from inside an IT block, or later.
    .type early, %function
early:
    tst     r0, #1
    it      ne
    bxne    lr
    push    {r4, lr}
    tst     r0, #2
    itt     eq
    addeq   r0, #1
    popeq   {r4, pc}
    adds    r0, #2
    pop     {r4, pc}

    .arm
    .type conditional, %function
conditional:
    tst     r6, #1
    bxeq    lr                  // a conditional return
    push    {r4, lr}
    mov     r4, r0
    tst     r6, #2
    blne    leaf                // a conditional call
    tst     r6, #4
    ldrne   r1, =leaf
    blxne   r1                  // a conditional indirect call
    tst     r6, #8
    popne   {r4, pc}            // a conditional load of the PC
    tst     r6, #16
    addne   pc, pc, #4          // arithmetic on the PC: skips two
    add     r0, r0, #1
    add     r0, r0, #2
    add     r0, r0, #4
    movs    r1, #0
    addseq  r0, r0, #0
    pop     {r4, pc}

    .type leaf, %function
leaf:
    add     r0, r0, r4, lsr #3
    cmp     r0, #1000
    subgt   r0, r0, #500
    moveq   pc, lr
    bx      lr
    .ltorg

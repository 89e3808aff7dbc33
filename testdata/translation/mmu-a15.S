// Bare metal Armv7-A on QEMU's `virt`: switches translation on with the registers at 0x47000000
// (8 bytes each: TTBCR, TTBR0, TTBR1, SCTLR to set), and waits. Its own section must be mapped to
// itself.
    .syntax unified
    .arm
    .global _start
_start:
    ldr     r1, =0x47000000
    ldr     r2, [r1]
    mcr     p15, 0, r2, c2, c0, 2       // TTBCR
    ldrd    r4, r5, [r1, #8]
    ldrd    r6, r7, [r1, #16]
    tst     r2, #0x80000000             // EAE
    bne     1f
    mcr     p15, 0, r4, c2, c0, 0       // TTBR0
    mcr     p15, 0, r6, c2, c0, 1       // TTBR1
    b       2f
1:  mcrr    p15, 0, r4, r5, c2
    mcrr    p15, 1, r6, r7, c2
2:  mvn     r3, #0
    mcr     p15, 0, r3, c3, c0, 0       // DACR: permissions are not checked
    isb
    mcr     p15, 0, r3, c8, c7, 0       // TLBIALL
    dsb
    isb
    ldr     r3, [r1, #24]
    mrc     p15, 0, r2, c1, c0, 0       // SCTLR
    orr     r2, r2, r3
    mcr     p15, 0, r2, c1, c0, 0
    isb
3:  wfi
    b       3b

// Bare metal AArch64 on QEMU's `virt`: switches translation on with the registers at 0x47000000
// (TCR_EL1, TTBR0_EL1, TTBR1_EL1, SCTLR_EL1 to set; VTCR_EL2, VTTBR_EL2, HCR_EL2 if it starts at
// EL2), and waits. Its own page must be mapped to itself.
    .global _start
_start:
    ldr     x1, =0x47000000
    ldp     x2, x3, [x1]
    ldp     x4, x5, [x1, #16]
    ldp     x6, x7, [x1, #32]
    ldr     x8, [x1, #48]
    mrs     x9, currentel
    cmp     x9, #8
    b.ne    1f
    msr     vtcr_el2, x6
    msr     vttbr_el2, x7
    msr     hcr_el2, x8
    tlbi    alle1
    dsb     sy
    adr     x9, 1f
    msr     elr_el2, x9
    mov     x9, #0x3c5
    msr     spsr_el2, x9
    eret
1:  msr     tcr_el1, x2
    msr     ttbr0_el1, x3
    msr     ttbr1_el1, x4
    isb
    tlbi    vmalle1
    dsb     sy
    isb
    mrs     x9, sctlr_el1
    orr     x9, x9, x5
    msr     sctlr_el1, x9
    isb
2:  wfi
    b       2b

// A kernel in small, which panics for want of a root file system.

struct note {
    unsigned name_size, text_size, type;
    char name[12];
    char text[];
};

#define TEXT                                                                                       \
    "OSRELEASE=0.1-small\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)=ffff800009300000\n"                 \
    "NUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)=0xffff7fffc9200000\n"                               \
    "NUMBER(TCR_EL1_T1SZ)=0x10\nKERNELOFFSET=1200000\n"

// The note that Linux keeps in memory for whoever saves it.
__attribute__((used)) struct note vmcoreinfo = {11, sizeof(TEXT) - 1, 0, "VMCOREINFO", TEXT};

volatile int why, panic_cpu = -1;

__attribute__((noinline)) void panic(int reason)
{
    why = reason, panic_cpu = 0;
    for (;;)
        __asm__ volatile("wfi");
}

__attribute__((noinline)) int mount_root(int tries)
{
    if (tries == 0)
        panic(19);
    return mount_root(tries - 1) + why;
}

int start_kernel(void)
{
    return mount_root(2) + 1;
}

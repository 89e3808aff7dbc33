/* A Cortex-M3 program that fails three calls deep, and writes its state as a core dump of Zephyr by
   semihosting. The layout is that of Zephyr (include/zephyr/debug/coredump.h, arch/arm/core/cortex_m/
   coredump.c): header, block of registers of version 2, blocks of memory. */

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

enum { SYS_OPEN = 1, SYS_WRITE = 5, SYS_CLOSE = 2, SYS_EXIT = 0x18 };
#define RAM 0x20000000u
#define STACK_END 0x20004000u

void start(void);
void fault(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
	(void *)STACK_END, start, fault, fault, fault, fault, fault,
};

static u32 semihosting(u32 operation, const void *argument)
{
	register u32 r0 __asm__("r0") = operation;
	register const void *r1 __asm__("r1") = argument;
	__asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
	return r0;
}

static u32 file;

static void write(const void *bytes, u32 length)
{
	const u32 argument[] = { file, (u32)bytes, length };
	semihosting(SYS_WRITE, argument);
}

static void write_memory(u32 start, u32 end)
{
	struct __attribute__((packed)) {
		u8 id;
		u16 version;
		u32 start, end;
	} block = { 'M', 1, start, end };
	write(&block, sizeof block);
	write((const void *)start, end - start);
}

/* R0 to R3, R12, LR, PC and xPSR as the exception saved them; R4 to R11. */
__attribute__((used)) void dump(const u32 *saved, const u32 *callee_saved)
{
	static const char name[] = "zephyr.bin";
	const u32 open[] = { (u32)name, 5 /* wb */, sizeof name - 1 };
	file = semihosting(SYS_OPEN, open);
	struct __attribute__((packed)) {
		u8 id[2];
		u16 version, target;
		u8 pointers, flag;
		u32 reason;
	} header = { { 'Z', 'E' }, 1, 3, 5, 0, 0 };
	write(&header, sizeof header);
	static struct __attribute__((packed)) {
		u8 id;
		u16 version, length;
		u32 registers[17];
	} block = { 'A', 2, sizeof block.registers };
	for (int i = 0; i < 8; i++) {
		block.registers[i] = saved[i];
		block.registers[9 + i] = callee_saved[i];
	}
	/* Bit 9 of xPSR: a word keeps the stack aligned (Armv7-M ARM DDI 0403, B1.5.7). */
	block.registers[8] = (u32)saved + 32 + (saved[7] >> 9 & 1) * 4;
	write(&block, sizeof block);
	write_memory(RAM, STACK_END);
	const u32 close[] = { file };
	semihosting(SYS_CLOSE, close);
	semihosting(SYS_EXIT, (const void *)0x20026);
}

__attribute__((naked)) void fault(void)
{
	__asm__("mov r0, sp\n"
		"push {r4-r11}\n"
		"mov r1, sp\n"
		"bl dump\n"
		"b .");
}

volatile int seed = 5;

__attribute__((noinline)) int third(int value)
{
	int local = value * 3;
	__asm__ volatile("failing: udf #7" : "+r"(local));
	return local + value;
}

__attribute__((noinline)) int second(int value)
{
	return third(value + seed) + seed;
}

__attribute__((noinline)) int first(int value)
{
	return second(value * 2) - seed;
}

void start(void)
{
	seed = first(seed + 1);
	for (;;)
		;
}

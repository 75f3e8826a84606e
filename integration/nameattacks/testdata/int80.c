// The 32-bit call gate from a 64-bit program. Linked to low addresses, without a library.
static const char path[] = ".env";

void _start(void)
{
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(8L), "b"(path), "c"(0644L) : "memory");
	__asm__ volatile("syscall" : : "a"(231L), "D"(r < 0) : "rcx", "r11", "memory");
}

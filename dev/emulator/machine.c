/* As much of a machine as a static C test needs: loads it, answers its system calls, prints through the parallel port.
 *
 * One thread, no files, no signals: a thread or a process that the test asks for is refused, so a pool runs on the
 * calling thread alone. All memory comes from brk; a mapping is refused, and the C library makes do. A fault ends the
 * run, unless vex_vnni.c knows the instruction.
 */
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_END 0x1c000000ul
#define STACK_TOP 0x1f000000ul
#define FS_BASE 0xc0000100u
#define STAR 0xc0000081u
#define LSTAR 0xc0000082u
#define UNKNOWN_INSTRUCTION 6

/* Linux's numbers. */
enum { WRITE = 1, MPROTECT = 10, BRK = 12, RT_SIGACTION = 13, RT_SIGPROCMASK = 14, WRITEV = 20, GETPID = 39, EXIT = 60,
       ARCH_PRCTL = 158, GETTID = 186, SET_TID_ADDRESS = 218, EXIT_GROUP = 231, TGKILL = 234, SET_ROBUST_LIST = 273,
       GETRANDOM = 318, SET_FS = 0x1002, NOT_OFFERED = -38 };

extern const uint8_t *const program, fault_entries[];
void syscall_entry(void);
bool machine_replace(uint8_t *code);
void start_program(void *entry, void *stack) __attribute__((noreturn));
static uint64_t heap_start, heap_end;

static void out(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

static void write_msr(uint32_t msr, uint64_t value)
{
    __asm__ volatile("wrmsr" ::"c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)));
}

static void print(const char *text, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        out(0x378, (uint8_t)text[i]);
        out(0x37a, 0x0d); /* strobe */
        out(0x37a, 0x0c);
    }
}

static void print_words(const char *text)
{
    uint64_t count = 0;
    while (text[count] != 0)
        count++;
    print(text, count);
}

static void print_hex(uint64_t value)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        print(&"0123456789abcdef"[value >> shift & 15], 1);
}

/* The last line is for run.sh; port 0x8900 switches the emulator off. */
static void __attribute__((noreturn)) stop(uint64_t code)
{
    print_words("\nexit ");
    print(&"0123456789abcdef"[code >> 4 & 15], 1);
    print(&"0123456789abcdef"[code & 15], 1);
    print_words("\n");
    for (const char *s = "Shutdown"; *s != 0; s++)
        out(0x8900, (uint8_t)*s);
    for (;;)
        __asm__ volatile("hlt");
}

void machine_fault(uint64_t vector, uint64_t at)
{
    if (vector == UNKNOWN_INSTRUCTION && machine_replace((uint8_t *)at))
        return;
    print_words("\nprocessor fault ");
    print_hex(vector);
    print_words(" at ");
    print_hex(at);
    stop(0xff);
}

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    void *start = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    return start;
}

void *memset(void *to, int value, size_t count)
{
    void *start = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
    return start;
}

/* The C library takes fresh heap for zeros. */
static int64_t set_heap_end(uint64_t end)
{
    if (end >= heap_start && end <= HEAP_END) {
        if (end > heap_end)
            memset((void *)heap_end, 0, end - heap_end);
        heap_end = end;
    }
    return (int64_t)heap_end;
}

static int64_t write_vector(const uint64_t *parts, int64_t count)
{
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        print((const char *)parts[2 * i], parts[2 * i + 1]);
        total += (int64_t)parts[2 * i + 1];
    }
    return total;
}

int64_t machine_call(int64_t number, uint64_t a, uint64_t b, uint64_t c)
{
    switch (number) {
    case WRITE:
        print((const char *)b, c);
        return (int64_t)c;
    case WRITEV:
        return write_vector((const uint64_t *)b, (int64_t)c);
    case BRK:
        return set_heap_end(a);
    case ARCH_PRCTL:
        if (a != SET_FS)
            return NOT_OFFERED;
        write_msr(FS_BASE, b);
        return 0;
    case GETRANDOM:
        memset((void *)a, 7, b);
        return (int64_t)b;
    case GETPID:
    case GETTID:
    case SET_TID_ADDRESS:
        return 1;
    case MPROTECT:
    case RT_SIGACTION:
    case RT_SIGPROCMASK:
    case SET_ROBUST_LIST:
        return 0;
    case EXIT:
    case EXIT_GROUP:
        stop(a & 0xff);
    case TGKILL:
        stop(0x86);
    default:
        return NOT_OFFERED;
    }
}

static void set_vectors(void)
{
    static uint64_t table[32][2];
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t at = (uint64_t)fault_entries + 16 * i;
        table[i][0] = (at & 0xffff) | 0x18u << 16 | 0x8e01ull << 32 | (at >> 16 & 0xffff) << 48;
        table[i][1] = at >> 32;
    }
    struct __attribute__((packed)) {
        uint16_t limit;
        uint64_t base;
    } pointer = {sizeof table - 1, (uint64_t)table};
    __asm__ volatile("lidt %0" ::"m"(pointer));
    write_msr(STAR, 0x18ull << 32);
    write_msr(LSTAR, (uint64_t)syscall_entry);
}

static void load(const Elf64_Ehdr *header)
{
    const Elf64_Phdr *part = (const Elf64_Phdr *)(program + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++, part++) {
        if (part->p_type != PT_LOAD)
            continue;
        memcpy((void *)part->p_vaddr, program + part->p_offset, part->p_filesz);
        memset((void *)(part->p_vaddr + part->p_filesz), 0, part->p_memsz - part->p_filesz);
        uint64_t end = (part->p_vaddr + part->p_memsz + 4095) & ~4095ull;
        if (end > heap_start)
            heap_start = heap_end = end;
    }
}

void machine_main(void)
{
    static char environment[] = ENVIRONMENT;
    static const uint8_t seed[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)program;
    set_vectors();
    load(header);
    uint64_t *stack = (uint64_t *)(STACK_TOP - 4096);
    const uint64_t start[] = {
        1, (uint64_t)"test", 0, (uint64_t)environment, 0,
        AT_PHDR, (uint64_t)program + header->e_phoff, AT_PHENT, header->e_phentsize, AT_PHNUM, header->e_phnum,
        AT_PAGESZ, 4096, AT_ENTRY, header->e_entry, AT_RANDOM, (uint64_t)seed, AT_SECURE, 0, AT_NULL, 0,
    };
    for (size_t i = 0; i < sizeof start / sizeof *start; i++)
        stack[i] = start[i];
    start_program((void *)header->e_entry, stack);
}

/* From the reset vector to 64-bit mode with every vector register on, then machine_main(). The program to run is part
 * of the ROM (PROGRAM names its file). GDT entries lie in ROM, so their accessed bits are set from the start. */
#define PAGE_TABLES 0x1000
#define TASK_STATE 0x8000
#define SEGMENT_BASE 0xffff0000

        .section .program, "a"
        .balign 16
program_file:
        .incbin PROGRAM
        .balign 16

        .data
        .balign 8
        .global program
program:
        .quad program_file

        .section .reset, "ax"
        .code16
        jmp start16

        .section .start, "ax"
        .global start16
start16:
        cli
        lgdtl %cs:(gdt_pointer - SEGMENT_BASE)
        movl %cr0, %eax
        orl $1, %eax
        movl %eax, %cr0
        ljmpl $0x08, $start32

        .code32
start32:
        movw $0x10, %ax
        movw %ax, %ds
        movw %ax, %es
        movw %ax, %ss
        movl $machine_in_rom, %esi
        movl $machine_start, %edi
        movl $machine_words, %ecx
        rep movsl
        /* 4 GiB in 2 MiB pages, virtual = physical; memory is zero at the start */
        movl $(PAGE_TABLES + 0x1003), PAGE_TABLES
        movl $(PAGE_TABLES + 0x2003), PAGE_TABLES + 0x1000
        movl $(PAGE_TABLES + 0x3003), PAGE_TABLES + 0x1008
        movl $(PAGE_TABLES + 0x4003), PAGE_TABLES + 0x1010
        movl $(PAGE_TABLES + 0x5003), PAGE_TABLES + 0x1018
        movl $(PAGE_TABLES + 0x2000), %edi
        movl $0x83, %eax
        movl $2048, %ecx
1:      movl %eax, (%edi)
        addl $0x200000, %eax
        addl $8, %edi
        loop 1b
        movl $0x40620, %eax /* PAE, SSE and its exceptions, XSAVE */
        movl %eax, %cr4
        movl $PAGE_TABLES, %eax
        movl %eax, %cr3
        movl $0xc0000080, %ecx
        movl $0x101, %eax /* long mode, syscall */
        xorl %edx, %edx
        wrmsr
        movl $0x80000033, %eax
        movl %eax, %cr0
        ljmpl $0x18, $start64

        .balign 8
gdt:    .quad 0
        .quad 0x00cf9b000000ffff /* 0x08: 32-bit code */
        .quad 0x00cf93000000ffff /* 0x10: data */
        .quad 0x00af9b000000ffff /* 0x18: 64-bit code */
        .quad 0x00cf93000000ffff /* 0x20: data, the stack of syscall */
        .quad 0x0000890000000067 | TASK_STATE << 16, 0 /* 0x28: task state */
gdt_pointer:
        .word . - gdt - 1
        .long gdt

        .text
        .code64
start64:
        movl $0x20, %eax
        movl %eax, %ss
        movl $machine_stack, %esp
        xorl %ecx, %ecx
        xorl %edx, %edx
        movl $0xe7, %eax /* x87, SSE, AVX, AVX-512 */
        xsetbv
        fninit
        movq $fault_stack, TASK_STATE + 0x24 /* stack 1 of the interrupt table */
        movl $0x28, %eax
        ltr %ax
        call machine_main

        /* The program runs in ring 0 too: a system call is a jump here and back, on a stack of its own. */
        .global syscall_entry
syscall_entry:
        movq %rsp, program_rsp
        movl $machine_stack, %esp
        push %rcx
        push %r11
        push %rdi
        push %rsi
        push %rdx
        push %r8
        push %r9
        push %r10
        movq %rdx, %rcx
        movq %rsi, %rdx
        movq %rdi, %rsi
        movq %rax, %rdi
        call machine_call
        pop %r10
        pop %r9
        pop %r8
        pop %rdx
        pop %rsi
        pop %rdi
        popfq
        pop %rcx
        movq program_rsp, %rsp
        jmp *%rcx

        /* void start_program(void *entry, void *stack) */
        .global start_program
start_program:
        movq %rsi, %rsp
        xorl %edx, %edx
        jmp *%rdi

        /* Vector n enters at fault_entries + 16 n, on a stack of its own. Some push an error code, which is shown as
         * the place. An unknown instruction may be replaced; any other fault ends the run. */
        .balign 16
        .global fault_entries
fault_entries:
        .set vector, 0
        .rept 32
        .balign 16
        push %rdi
        movl $vector, %edi
        jmp fault
        .set vector, vector + 1
        .endr
fault:
        push %rax
        push %rcx
        push %rdx
        push %rsi
        push %rdi
        push %r8
        push %r9
        push %r10
        push %r11
        movq 80(%rsp), %rsi
        call machine_fault
        pop %r11
        pop %r10
        pop %r9
        pop %r8
        pop %rdi
        pop %rsi
        pop %rdx
        pop %rcx
        pop %rax
        pop %rdi
        iretq

        .section .note.GNU-stack, "", @progbits

        .bss
        .balign 16
program_rsp:
        .skip 16
        .skip 65536
machine_stack:
        .skip 65536
fault_stack:

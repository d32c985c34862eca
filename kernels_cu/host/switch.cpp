// The switch from one stack to another. A C++ call may change the caller-saved registers, so only the others are kept.
//
//   pagewalk_switch(void** from, void* to)   keep this stack in *from and go on with the stack `to`
//   pagewalk_resume                          its second half: the stack pointer is already set
//   pagewalk_begin                           where a fresh stack starts

#if defined(__x86_64__)
asm(R"(
.text
.globl pagewalk_switch, pagewalk_resume, pagewalk_begin
.hidden pagewalk_switch, pagewalk_resume, pagewalk_begin
.type pagewalk_switch, @function
.type pagewalk_resume, @function
.type pagewalk_begin, @function
pagewalk_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
pagewalk_resume:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
pagewalk_begin:
    xorl %ebp, %ebp
    call pagewalk_run_fiber
    ud2
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl pagewalk_switch, pagewalk_resume, pagewalk_begin
.hidden pagewalk_switch, pagewalk_resume, pagewalk_begin
.type pagewalk_switch, %function
.type pagewalk_resume, %function
.type pagewalk_begin, %function
pagewalk_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
pagewalk_resume:
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
pagewalk_begin:
    mov x29, xzr
    bl pagewalk_run_fiber
    brk #1
)");
#else
#error "Pagewalk runs kernels on x86-64 and aarch64"
#endif

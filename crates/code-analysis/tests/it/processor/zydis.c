/* Says what Zydis knows of instructions: see second_decoder.rs. */

#include <Zydis/Zydis.h>
#include <stdio.h>

static int digit(int c)
{
    return c >= 'a' ? c - 'a' + 10 : c - '0';
}

/* Reads the bytes of a line. */
static size_t bytes(const char *line, unsigned char *code, size_t most)
{
    size_t count = 0;
    for (; count < most && line[0] > ' ' && line[1] > ' '; line += 2)
        code[count++] = digit(line[0]) << 4 | digit(line[1]);
    return count;
}

static const char *name(ZydisRegister reg)
{
    return reg == ZYDIS_REGISTER_NONE ? "" : ZydisRegisterGetString(reg);
}

static const char *group(ZydisInstructionCategory category)
{
    switch (category) {
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
        return "jump";
    case ZYDIS_CATEGORY_CALL:
        return "call";
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_SYSRET:
        return "ret";
    default:
        return "";
    }
}

static void print_operand(const ZydisDecodedOperand *operand)
{
    const ZydisDecodedOperandMem *memory = &operand->mem;
    /* What is pushed is below the stack pointer, and has no distance here. */
    if (operand->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN && memory->base == ZYDIS_REGISTER_RSP)
        return;
    if (memory->segment != ZYDIS_REGISTER_FS && memory->segment != ZYDIS_REGISTER_GS)
        printf("%s:%s:%lld:%d,", name(memory->base), name(memory->index),
               (long long)memory->disp.value, operand->size / 8);
}

static void print(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands)
{
    printf("%s|", ZydisMnemonicGetString(insn->mnemonic));
    for (int place = 0; place < insn->operand_count; place++)
        if (operands[place].type == ZYDIS_OPERAND_TYPE_REGISTER &&
            operands[place].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)
            printf("%s,", name(operands[place].reg.value));
    putchar('|');
    for (int place = 0; place < insn->operand_count; place++)
        if (operands[place].type == ZYDIS_OPERAND_TYPE_MEMORY &&
            operands[place].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)
            print_operand(&operands[place]);
    printf("|%s\n", group(insn->meta.category));
}

int main(void)
{
    char line[64];
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    while (fgets(line, sizeof line, stdin)) {
        unsigned char code[ZYDIS_MAX_INSTRUCTION_LENGTH];
        size_t length = bytes(line, code, sizeof code);
        ZydisDecodedInstruction insn;
        ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
        ZyanStatus status = ZydisDecoderDecodeFull(&decoder, code, length, &insn, operands);
        if (ZYAN_SUCCESS(status) && insn.length == length)
            print(&insn, operands);
        else
            puts("-");
    }
    return 0;
}

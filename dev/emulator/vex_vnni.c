/* The VEX forms of the dot products (AVX-VNNI), which the emulated processor lacks, by their EVEX forms, which it has.
 *
 * Both compute the same, but the EVEX form is a byte longer. So the faulting instruction, which has five bytes or more,
 * is overwritten by a jump to a copy in EVEX form that jumps back. The trap: a displacement of one byte counts vectors
 * in EVEX, so displacements become four bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static uint8_t copies[1 << 16];
static size_t used;

/* `to` minus the end of a four-byte field at `field`, stored there. */
static void store_distance(uint8_t *field, uint64_t to)
{
    uint32_t distance = (uint32_t)(to - ((uint64_t)field + 4));
    for (int i = 0; i < 4; i++)
        field[i] = (uint8_t)(distance >> 8 * i);
}

static int32_t read_displacement(const uint8_t *at, int bytes)
{
    uint32_t value = bytes == 1 ? (uint32_t)(int8_t)at[0] : 0;
    for (int i = 0; bytes == 4 && i < 4; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return (int32_t)value;
}

/* C4, map 0F38, prefix 66, W 0, opcodes 50 to 53: vpdpbusd, vpdpbusds, vpdpwssd, vpdpwssds. */
static bool is_vex_dot_product(const uint8_t *code)
{
    return code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[2] & 0x83) == 1 && code[3] >= 0x50 && code[3] <= 0x53;
}

bool machine_replace(uint8_t *code)
{
    if (!is_vex_dot_product(code) || used + 32 > sizeof copies)
        return false;
    uint8_t *copy = copies + used, *to = copy, *from = code + 4;
    uint8_t modrm = *from++, mode = modrm >> 6, base = modrm & 7;
    bool in_register = mode == 3, has_sib = !in_register && base == 4, at_next = mode == 0 && base == 5;
    bool wide = mode == 2 || at_next || (mode == 0 && has_sib && (*from & 7) == 5);
    *to++ = 0x62;
    *to++ = (uint8_t)((code[1] & 0xe0) | (in_register ? 0x40 : 0) | 0x12);
    *to++ = (uint8_t)((code[2] & 0x78) | 0x05);
    *to++ = (uint8_t)((code[2] & 0x04) << 3 | 0x08);
    *to++ = code[3];
    *to++ = mode == 1 ? (uint8_t)(modrm + 0x40) : modrm;
    if (has_sib)
        *to++ = *from++;
    if (mode == 1 || wide) {
        int bytes = mode == 1 ? 1 : 4;
        int64_t displacement = read_displacement(from, bytes);
        from += bytes;
        uint64_t start = at_next ? (uint64_t)from : (uint64_t)to + 4; /* of the distance that is stored */
        store_distance(to, start + (uint64_t)displacement);
        to += 4;
    }
    *to++ = 0xe9;
    store_distance(to, (uint64_t)from);
    used += (size_t)(to + 4 - copy);
    code[0] = 0xe9;
    store_distance(code + 1, (uint64_t)copy);
    return true;
}

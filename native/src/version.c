#include "h3k.h"

int32_t h3k_abi_version(void)
{
    return H3K_ABI_VERSION;
}

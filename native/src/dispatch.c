#include "dispatch.h"

const h3k_kernels *h3k_kernels_chosen(void)
{
    return &h3k_kernels_generic;
}

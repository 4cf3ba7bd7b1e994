#include "h3k.h"

const char *h3k_status_name(int32_t status)
{
    switch (status) {
    case H3K_OK:
        return "ok";
    case H3K_CANCELLED:
        return "cancelled";
    case H3K_BAD_ARGUMENT:
        return "bad argument";
    case H3K_BAD_SCRATCH:
        return "scratch missing or too small";
    case H3K_NO_MEMORY:
        return "out of memory";
    default:
        return "unknown status";
    }
}

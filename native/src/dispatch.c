/* The table of instruction sets and the one in use. */
#include "dispatch.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "cpu_features.h"
#include "h3k.h"

/* Fastest first; the last runs everywhere. */
static const h3k_kernels table[] = {
#if defined(__x86_64__)
    {.name = "avx512vnni",
     .runs_here = h3k_has_avx512vnni,
     .panel_product = h3k_panel_product_avx2,
     .rows = &h3k_row_kernels_avx512vnni,
     .integer = &h3k_integer_avx512vnni,
     .attention = &h3k_attention_avx512vnni},
    {.name = "avxvnni",
     .runs_here = h3k_has_avxvnni,
     .panel_product = h3k_panel_product_avx2,
     .rows = &h3k_row_kernels_avx2,
     .integer = &h3k_integer_avxvnni,
     .attention = &h3k_attention_avxvnni},
    {.name = "avx2",
     .runs_here = h3k_has_avx2,
     .panel_product = h3k_panel_product_avx2,
     .rows = &h3k_row_kernels_avx2,
     .integer = &h3k_integer_avx2,
     .attention = &h3k_attention_avx2},
#elif defined(__aarch64__)
    {.name = "i8mm",
     .runs_here = h3k_has_i8mm,
     .panel_product = h3k_panel_product_generic,
     .rows = &h3k_row_kernels_neon,
     .integer = &h3k_integer_dotprod,
     .attention = &h3k_attention_i8mm},
    {.name = "dotprod",
     .runs_here = h3k_has_dotprod,
     .panel_product = h3k_panel_product_generic,
     .rows = &h3k_row_kernels_neon,
     .integer = &h3k_integer_dotprod,
     .attention = &h3k_attention_dotprod},
#endif
    {.name = "generic",
     .runs_here = h3k_always,
     .panel_product = h3k_panel_product_generic,
     .rows = &h3k_row_kernels_generic},
};
#define TABLE_ROWS (int32_t)(sizeof table / sizeof *table)

static _Atomic(const h3k_kernels *) chosen;

/* Row `index` among those this processor runs, or null. */
static const h3k_kernels *offered(int32_t index)
{
    for (int32_t i = 0; index >= 0 && i < TABLE_ROWS; i++)
        if (table[i].runs_here() && index-- == 0)
            return &table[i];
    return NULL;
}

const h3k_kernels *h3k_kernels_chosen(void)
{
    const h3k_kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (kernels == NULL) {
        kernels = offered(0);
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

const char *h3k_isa_name(void)
{
    return h3k_kernels_chosen()->name;
}

const char *h3k_isa_offered(int32_t index)
{
    const h3k_kernels *kernels = offered(index);
    return kernels == NULL ? NULL : kernels->name;
}

h3k_status h3k_isa_choose(const char *name)
{
    const h3k_kernels *kernels = offered(0);
    for (int32_t i = 0; name != NULL && kernels != NULL && strcmp(kernels->name, name) != 0; i++)
        kernels = offered(i + 1);
    if (kernels == NULL)
        return H3K_BAD_ARGUMENT;
    atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    return H3K_OK;
}

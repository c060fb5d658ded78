/* kaiju.h is C99 without a warning, and every function it declares can be linked: the list is made from
 * capi/kaiju.symbols. */
#include "kaiju.h"

typedef void (*any_function)(void);

const any_function kaiju_every_function[] = {
#define KAIJU_SYMBOL(name) (any_function) name,
#include "kaiju_symbols.inc"
};
const size_t kaiju_every_function_count = sizeof kaiju_every_function / sizeof kaiju_every_function[0];

/* Structs begin with what never moves. */
typedef char metrics_begin_with_their_size[offsetof(kaiju_metrics, struct_size) == 0 ? 1 : -1];
typedef char device_info_begins_with_its_size[offsetof(kaiju_device_info, struct_size) == 0 ? 1 : -1];
typedef char option_info_begins_with_its_size[offsetof(kaiju_option_info, struct_size) == 0 ? 1 : -1];
typedef char event_begins_with_its_request[offsetof(kaiju_event, request) == 0 ? 1 : -1];

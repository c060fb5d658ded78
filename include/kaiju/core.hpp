// Door two: the header-only core. The engine over an executor of the host's own, and the arithmetic with its reference
// backend; nothing to link, and no header wanted but xxhash.h. What reads checkpoints and text is compiled: kaiju.hpp.
#pragma once

#if !defined(KAIJU_HEADER_ONLY)
#define KAIJU_HEADER_ONLY 1
#endif

#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/engine/conversation.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/step/executor.hpp"

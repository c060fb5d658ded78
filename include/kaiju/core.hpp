// The header-only core of kaiju: the engine for an executor that the host program writes, and the arithmetic with its
// reference backend. The core needs no library to link and no other header than xxhash.h. A program that reads
// checkpoints or converts text to tokens needs the compiled library (kaiju.hpp).
#pragma once

#if __cplusplus < 202002L
#error "kaiju needs C++20: compile with -std=c++20 or newer"
#endif

#if !defined(KAIJU_HEADER_ONLY)
#define KAIJU_HEADER_ONLY 1
#endif

#include "kaiju/backend/backend.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/engine/conversation.hpp"
#include "kaiju/engine/engine.hpp"
#include "kaiju/step/executor.hpp"

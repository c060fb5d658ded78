// KAIJU_INLINE: lets the engine be compiled in two ways. By default src/engine.cpp compiles it into the library; a
// program includes declarations and links. With KAIJU_HEADER_ONLY, which core.hpp sets, the -inl.hpp files are included
// where they are used, and a program links nothing.
#pragma once

#if defined(KAIJU_HEADER_ONLY)
#define KAIJU_INLINE inline
#else
#define KAIJU_INLINE
#endif

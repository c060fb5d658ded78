// How the engine reaches a program. Door one: compiled once into the library (src/engine.cpp); a program includes
// declarations and links. Door two, KAIJU_HEADER_ONLY, which core.hpp sets: the -inl.hpp files are included where they
// are used, and there is nothing to link.
#pragma once

#if defined(KAIJU_HEADER_ONLY)
#define KAIJU_INLINE inline
#else
#define KAIJU_INLINE
#endif

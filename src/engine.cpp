// Compiles the engine and conversations into the library (base/detail/inline.hpp).
#include "kaiju/engine/detail/conversation-inl.hpp"
#include "kaiju/engine/detail/engine-inl.hpp"

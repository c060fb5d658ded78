// The engine and its conversations, compiled once (base/detail/inline.hpp).
#include "kaiju/engine/detail/conversation-inl.hpp"
#include "kaiju/engine/detail/engine-inl.hpp"

// The engine and its conversations, compiled once (base/inline.hpp).
#include "kaiju/engine/conversation-inl.hpp"
#include "kaiju/engine/engine-inl.hpp"

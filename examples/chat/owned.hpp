// Types that own the handles of kaiju.h, and the failure type of the chat.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "kaiju.h"

namespace chat {

// Something the person at the keyboard should read, in one line.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
using ModelHandle = std::unique_ptr<kaiju_model, Destroyer<kaiju_model_destroy>>;
using EngineHandle = std::unique_ptr<kaiju_engine, Destroyer<kaiju_engine_destroy>>;
using ConversationHandle = std::unique_ptr<kaiju_conversation, Destroyer<kaiju_conversation_destroy>>;
using OptionsHandle = std::unique_ptr<kaiju_options, Destroyer<kaiju_options_destroy>>;
using ErrorHandle = std::unique_ptr<kaiju_error, Destroyer<kaiju_error_destroy>>;

// Calls a function of kaiju.h that takes an error last; throws its message.
template <class Call>
void must(const Call& call) {
  kaiju_error* error = nullptr;
  const kaiju_status status = call(&error);
  const ErrorHandle owned(error);
  if (status != KAIJU_OK) throw Problem(error ? kaiju_error_message(error) : kaiju_status_name(status));
}

// Creates a handle of a given owner.
template <class Owner, class Call>
Owner make(const Call& call) {
  typename Owner::pointer handle = nullptr;
  must([&](kaiju_error** error) { return call(&handle, error); });
  return Owner(handle);
}

}  // namespace chat

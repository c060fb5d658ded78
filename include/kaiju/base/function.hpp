// Function: a callable held by value, like std::function. Public headers use Function because <functional> would add
// 20,000 lines to each file that includes them.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace kaiju {

template <class Signature>
class Function;

// Copies of a Function share one target callable. An empty Function converts to false and must not be called. A
// Function made from a null pointer is empty. Constructing a Function from a callable allocates memory and may throw
// std::bad_alloc.
template <class Answer, class... Arguments>
class Function<Answer(Arguments...)> {
 public:
  Function() = default;
  Function(std::nullptr_t) {}
  template <class Target>
    requires(!std::is_same_v<std::remove_cvref_t<Target>, Function> &&
             std::is_invocable_r_v<Answer, std::decay_t<Target>&, Arguments...>)
  Function(Target&& target) {
    using Held = std::decay_t<Target>;
    if constexpr (std::is_constructible_v<bool, Held&> && !std::is_same_v<Held, bool>) {
      if (!static_cast<bool>(target)) return;
    }
    target_ = std::make_shared<Held>(std::forward<Target>(target));
    call_ = [](void* held, Arguments... arguments) -> Answer {
      return (*static_cast<Held*>(held))(std::forward<Arguments>(arguments)...);
    };
  }

  explicit operator bool() const { return call_ != nullptr; }
  Answer operator()(Arguments... arguments) const {
    return call_(target_.get(), std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<void> target_;
  Answer (*call_)(void* held, Arguments... arguments) = nullptr;
};

}  // namespace kaiju

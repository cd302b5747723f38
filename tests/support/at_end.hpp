#pragma once

#include <utility>

namespace support {

/// Runs `action` at the end of the scope, also if a check throws: so that a thread which waits for
/// the test ends with it.
template <typename Action>
class at_end {
public:
    explicit at_end(Action action) : action_{std::move(action)} {}
    at_end(const at_end&) = delete;
    at_end& operator=(const at_end&) = delete;
    ~at_end() { action_(); }

private:
    Action action_;
};

}  // namespace support

#pragma once

#include <string>
#include <vector>

namespace rowlock::detail {

/// The labels of the holds that the calling thread may share with other threads of its client: what
/// it waits for blocks those holds, too (party_labels.hpp).
[[nodiscard]] inline std::vector<std::string>& shared_labels() noexcept {
    thread_local std::vector<std::string> of_this_thread;
    return of_this_thread;
}

}  // namespace rowlock::detail

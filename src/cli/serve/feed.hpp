#pragma once

#include "cli/serve/live_overview.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

namespace rowlock::cli::serving {

/// One page's stream of server-sent events: first all locks, then what changes. Used by one thread.
class feed {
public:
    explicit feed(live_overview& from) : from_{from} {}

    /// Waits up to a second for the next event, and writes it, or now and then a comment that keeps
    /// the connection alive. Returns false when the server stops, or if it could not be written.
    [[nodiscard]] bool send(const std::function<bool(std::string_view)>& write);

private:
    live_overview& from_;
    std::shared_ptr<const seen> before_{};
    std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

}  // namespace rowlock::cli::serving

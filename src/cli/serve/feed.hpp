#pragma once

#include "cli/serve/live_overview.hpp"

#include <memory>
#include <optional>
#include <string>

namespace rowlock::cli::serving {

/// What has changed between two answers, as JSON on one line: all of it if `before` is null.
[[nodiscard]] std::string changes_text(const seen& now, const seen* before);

/// One page's stream of server-sent events: first all locks, then what changes. Used by one thread.
class feed {
public:
    explicit feed(live_overview& from) : from_{from} {}

    /// Waits for the next event, which may be a comment that keeps the connection alive. Returns
    /// nullopt when the server stops.
    [[nodiscard]] std::optional<std::string> next();

private:
    live_overview& from_;
    std::shared_ptr<const seen> before_{};
};

}  // namespace rowlock::cli::serving

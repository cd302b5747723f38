#pragma once

#include <algorithm>
#include <chrono>

namespace support {

/// A limit for a statement that must succeed: longer than a busy machine stalls a server.
constexpr std::chrono::seconds unhurried_limit{20};

/// Options whose statements have that limit.
template <typename Options>
Options unhurried(Options options = {}) {
    options.statement_timeout = unhurried_limit;
    if constexpr (requires { options.keepalive_timeout; }) {
        // A shorter one than the statements' is refused.
        options.keepalive_timeout =
            std::max<std::chrono::milliseconds>(options.keepalive_timeout, std::chrono::minutes{1});
    }
    return options;
}

}  // namespace support

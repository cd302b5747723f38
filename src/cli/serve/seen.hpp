#pragma once

#include "view/overview.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace rowlock::cli::serving {

/// What was read last of all locks in use.
struct seen {
    std::uint64_t version = 0;  ///< rises with each attempt to read
    view::snapshot all{};
    std::map<std::string, std::string> rows{};  ///< JSON of each lock, by its key
    std::string problem{};                      ///< why the last attempt failed; the rest is older
    std::string text{};  ///< all of it, as JSON on one line: made once for all that ask
};

/// @param rows of `all`
[[nodiscard]] seen seen_now(std::uint64_t version, view::snapshot all);
/// The same as before, and why it could not be read again.
[[nodiscard]] seen seen_before(std::uint64_t version, const seen& before, std::string problem);

/// What has changed since `before`, as JSON on one line.
[[nodiscard]] std::string changes_text(const seen& now, const seen& before);

}  // namespace rowlock::cli::serving

#pragma once

#include "cli/json.hpp"
#include "view/overview.hpp"

#include <string>

/// What the server says of locks, for its page and for scripts: docs/serve.md. Times are
/// milliseconds since the epoch by the database's clock, ids and tokens texts.
namespace rowlock::cli::serving {

/// Unique among the locks of a snapshot.
[[nodiscard]] std::string key_of(const view::lock& one);

/// A lock with the first of its holders and waiters, on one line of ASCII.
[[nodiscard]] std::string row_text(const view::lock& one);
/// A lock with up to `most` of its holders, and of its waiters.
[[nodiscard]] json lock_to_json(const view::lock& one, std::size_t most);

[[nodiscard]] json cycles_to_json(const view::snapshot& all);
[[nodiscard]] json sessions_to_json(const view::sessions_seen& all);

[[nodiscard]] std::int64_t milliseconds_of(view::time_point time);

/// ASCII on one line; invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string text_of(const json& value);

}  // namespace rowlock::cli::serving
